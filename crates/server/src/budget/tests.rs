//! Grants and releases of the budget.

use super::*;

/// Origin number `n`.
fn origin(n: u8) -> Origin {
    Origin::of([10, 0, 0, n].into())
}

const WAIT: Duration = Duration::from_millis(20);

#[tokio::test]
async fn shares_are_bounded_and_given_back() {
    let budget = Budget::new(100 << 10, 60 << 10, WAIT);
    let mut one = budget.share(origin(1), 10 << 10).unwrap();
    let mut two = budget.share(origin(1), 10 << 10).unwrap();
    assert_eq!(budget.used_bytes(), 20 << 10);
    one.hold(5 << 10).await.unwrap();
    assert_eq!(budget.used_bytes(), 20 << 10, "within the floor nothing is taken");
    assert_eq!(one.hold(61 << 10).await, Err(Refused::TooMuch { wanted: 61 << 10, limit: 60 << 10 }));
    one.hold(60 << 10).await.unwrap();
    assert_eq!(two.hold(50 << 10).await, Err(Refused::UsedUp));
    assert_eq!(two.hold_now(50 << 10), Err(Refused::UsedUp));
    assert_eq!(budget.refusals.load(Ordering::Relaxed), 3);
    two.hold_now(25 << 10).unwrap();
    assert!(budget.is_tight());
    assert_eq!(budget.used_bytes(), 85 << 10);
    let waiting = async {
        tokio::time::sleep(WAIT / 4).await;
        drop(one);
    };
    let (held, ()) = tokio::join!(two.hold(60 << 10), waiting);
    held.unwrap();
    drop(two);
    assert_eq!(budget.used_bytes(), 0);
}

#[tokio::test]
async fn pieces_are_bounded_together_and_given_back() {
    let budget = Budget::new(100 << 10, 60 << 10, WAIT);
    let (one, other) = (Pieces::new(budget.clone(), 0), Pieces::new(budget.clone(), 0));
    let first = one.take(40 << 10).await.unwrap();
    let refused = one.take(30 << 10).await.unwrap_err();
    assert_eq!(refused, Refused::TooMuch { wanted: 70 << 10, limit: 60 << 10 });
    let second = one.take(20 << 10).await.unwrap();
    assert_eq!(other.take(50 << 10).await.unwrap_err(), Refused::UsedUp);
    drop(first);
    let third = other.take(50 << 10).await.unwrap();
    assert_eq!(budget.used_bytes(), 70 << 10);
    drop((second, third));
    assert_eq!(budget.used_bytes(), 0);
    one.take(60 << 10).await.unwrap();
}

#[tokio::test]
async fn small_pieces_come_from_the_floor_and_never_wait() {
    let budget = Budget::new(100 << 10, 100 << 10, WAIT);
    let all = Pieces::new(budget.clone(), 0).take(75 << 10).await.unwrap();
    let pieces = Pieces::new(budget.clone(), 10 << 10);
    for _ in 0..3 {
        let first = pieces.take(6 << 10).await.unwrap();
        assert_eq!(pieces.take(6 << 10).await.unwrap_err(), Refused::UsedUp);
        let second = pieces.take(4 << 10).await.unwrap();
        assert_eq!(budget.waits.swap(0, Ordering::Relaxed), 1, "only what did not fit waited");
        drop((first, second));
    }
    drop(all);
    assert_eq!(budget.used_bytes(), 0);
}

/// A client that asks again right after an answer finds the floor taken until the server has dropped the answered request.
#[tokio::test]
async fn small_pieces_wait_for_their_floor() {
    let budget = Budget::new(100 << 10, 100 << 10, WAIT);
    let all = Pieces::new(budget.clone(), 0).take(75 << 10).await.unwrap();
    let pieces = Pieces::new(budget.clone(), 10 << 10);
    let answered = pieces.take(6 << 10).await.unwrap();
    let releasing = async {
        tokio::time::sleep(WAIT / 4).await;
        drop(answered);
    };
    let (next, ()) = tokio::join!(pieces.take(6 << 10), releasing);
    assert_eq!((next.unwrap().from, budget.refusals.load(Ordering::Relaxed)), (From::Floor, 0));
    pieces.take(10 << 10).await.unwrap();
    drop(all);
    assert_eq!((budget.used_bytes(), pieces.units.load(Ordering::Relaxed)), (0, 0));
}

#[tokio::test]
async fn budget_keeps_room_for_new_origin_if_others_hold_all() {
    let budget = Budget::new(100 << 10, 100 << 10, WAIT);
    let pieces = Pieces::new(budget.clone(), 0);
    let refused = pieces.take(76 << 10).await.unwrap_err();
    assert_eq!(refused, Refused::TooMuch { wanted: 76 << 10, limit: 75 << 10 });
    let all = pieces.take(75 << 10).await.unwrap();
    let of = |n| budget.share(origin(n), 5 << 10);
    let mut shares: Vec<_> = (0..).map_while(|_| of(1)).collect();
    assert_eq!((shares.len(), budget.used_bytes()), (2, 85 << 10), "one origin has not all that is kept");
    shares.extend(of(2));
    assert_eq!((shares.len(), budget.used_bytes()), (3, 90 << 10));
    assert!(shares.iter().all(|share| share.pool == Pool::Kept));
    drop((all, shares.pop()));
    assert_eq!(budget.used_bytes(), 10 << 10);
    assert_eq!(of(1).map(|share| share.pool), Some(Pool::Left));
    assert_eq!(of(2).map(|share| share.pool), Some(Pool::Kept));
    drop(shares);
    assert_eq!(budget.used_bytes(), 0);
}

#[test]
fn floors_leave_something() {
    let budget = Budget::new(100 << 10, 100 << 10, WAIT);
    let shares: Vec<_> = (0..=255).map_while(|n| budget.share(origin(n), 1 << 10)).collect();
    assert!((70..75).contains(&shares.len()), "{}", shares.len());
    drop(shares);
    assert!(budget.share(origin(1), 60 << 10).is_none());
    assert!(budget.share(origin(1), 25 << 10).is_some());
    assert_eq!(budget.used_bytes(), 0);
}
