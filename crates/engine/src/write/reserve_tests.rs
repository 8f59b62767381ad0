use futures_util::FutureExt;

use crate::write::reserve::{Reservations, Reserved};

fn holds(reserved: &Reserved) -> bool {
    reserved.1.as_ref().is_none_or(|granted| granted.wait().now_or_never().is_some())
}

#[test]
fn those_who_want_a_key_have_it_in_their_order() {
    let reservations = Reservations::default();
    let first = reservations.take(vec![1, 2]);
    let second = reservations.take(vec![2, 3]);
    let third = reservations.take(vec![3]);
    let other = reservations.take(vec![4]);
    assert!(holds(&first) && holds(&other));
    assert!(!holds(&second));
    assert!(!holds(&third), "it would overtake the second, which could then wait forever");
    drop(first);
    assert!(holds(&second) && !holds(&third));
    drop(second);
    assert!(holds(&third));
}

#[test]
fn reservation_of_all_keys_waits_only_for_earlier_requests() {
    let reservations = Reservations::default();
    let (one, two) = (reservations.take(vec![1]), reservations.take(vec![2]));
    let all = reservations.take_all();
    let (later, put) = (reservations.take(vec![3]), reservations.share(vec![4]));
    assert!(!holds(&all) && !holds(&later) && !holds(&put));
    assert!(reservations.conflict([9]) && reservations.try_take(vec![9]).is_none());
    drop(one);
    assert!(!holds(&all));
    drop(two);
    assert!(holds(&all) && !holds(&later) && !holds(&put));
    let second = reservations.take_all();
    drop(all);
    assert!(holds(&later) && holds(&put) && !holds(&second));
    drop((later, put));
    assert!(holds(&second));
}

#[test]
fn plain_puts_share_their_turn() {
    let reservations = Reservations::default();
    let writer = reservations.take(vec![1]);
    assert!(reservations.conflict([2, 1]) && !reservations.conflict([2]));
    let (one, two) = (reservations.share(vec![1]), reservations.share(vec![1, 2]));
    let next = reservations.take(vec![1]);
    let late = reservations.share(vec![1]);
    assert!(!holds(&one) && !holds(&two));
    drop(writer);
    assert!(holds(&one) && holds(&two) && !holds(&next));
    assert!(reservations.try_take(vec![2]).is_none(), "a put of the key is about to be appended");
    drop(one);
    assert!(!holds(&next));
    drop(two);
    assert!(holds(&next) && !holds(&late));
    drop(next);
    assert!(holds(&late));
    assert!(!reservations.conflict([1]), "puts among themselves need no turn");
}

#[test]
fn a_place_that_is_given_up_keeps_the_order_of_the_others() {
    let reservations = Reservations::default();
    let first = reservations.take(vec![1]);
    let (gone, gone_too) = (reservations.take(vec![1, 2]), reservations.take_all());
    let last = reservations.take(vec![2]);
    drop((gone, gone_too));
    assert!(!holds(&last), "the request it waits for waits for the first");
    drop(first);
    assert!(holds(&last));
    drop(last);
    assert!(reservations.queue.lock().requests.is_empty() && reservations.queue.lock().last.is_empty());
}

#[test]
fn reservation_of_many_keys_takes_only_free_ones() {
    let reservations = Reservations::default();
    let other = reservations.take(vec![2]);
    let plain = reservations.share(vec![5]);
    let (held, keys) = reservations.take_free(vec![4, 1, 2, 5, 1]);
    assert_eq!(keys, [1, 4]);
    assert!(reservations.conflict([4]) && !holds(&reservations.take(vec![1])));
    assert!(!reservations.conflict([5]), "the key is left to plain puts");
    drop(held);
    assert!(holds(&reservations.take(vec![1, 4])));
    drop((other, plain));
    let all = reservations.take_all();
    assert!(reservations.take_free(vec![1]).1.is_empty(), "another request has all keys");
    drop(all);
    assert!(reservations.queue.lock().requests.is_empty() && reservations.queue.lock().last.is_empty());
}

/// Any sequence of requests and releases: no two conflicting requests hold at once, and in the end every request was granted.
#[test]
fn reservations_never_conflict_and_all_are_granted() {
    let mut state = 0x1234_5678_9abc_def1u64;
    let mut random = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    for _ in 0..200 {
        let reservations = Reservations::default();
        // Keys (as bits), true if exclusive, and the reservation.
        let mut open: Vec<(u64, bool, Reserved)> = Vec::new();
        for _ in 0..120 {
            if random(3) > 0 {
                let bits = 1 + random(63);
                let keys = (0..6).filter(|key| bits >> key & 1 == 1).collect::<Vec<u64>>();
                open.push(match random(8) {
                    0 => (63, true, reservations.take_all()),
                    1..4 => (bits, false, reservations.share(keys)),
                    _ => (bits, true, reservations.take(keys)),
                });
            } else if !open.is_empty() {
                open.swap_remove(random(open.len() as u64) as usize);
            }
            let held: Vec<_> = open.iter().filter(|(.., reserved)| holds(reserved)).collect();
            for (at, (bits, exclusive, _)) in held.iter().enumerate() {
                for (others, other_exclusive, _) in &held[at + 1..] {
                    assert!(bits & others == 0 || !exclusive && !other_exclusive);
                }
            }
            assert!(open.is_empty() || !held.is_empty(), "all requests wait");
        }
        while let Some(at) = open.iter().position(|(.., reserved)| holds(reserved)) {
            open.swap_remove(at);
        }
        assert!(open.is_empty(), "a request was never granted");
        assert!(reservations.queue.lock().last.is_empty() && reservations.queue.lock().last_of_all.is_none());
    }
}
