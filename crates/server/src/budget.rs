//! Memory that clients hold: one budget for all of them, and what each has of it.
//!
//! Every connection has a small *floor* from its first to its last byte, which is enough for small commands. Whatever
//! it holds beyond that it takes from what is left, before it allocates. If nothing is left it waits, in the order of
//! arrival, and is dropped if it waited too long; connections that stay within their floors never wait. A quarter of the
//! budget is kept for floors, so that who comes finds room whatever others hold; at most three quarters go to floors, so
//! that something is left.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

/// The budget is counted in such units.
const UNIT_BYTES: usize = 1 << 10;

/// Why memory was not had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    /// One connection would have more than one may.
    #[error("it takes {wanted} bytes of memory, and one client may have {limit} (client-memory-each)")]
    TooMuch { wanted: usize, limit: usize },
    /// All clients together have too much, and none let go in time.
    #[error("the memory for clients (client-memory) is used up")]
    UsedUp,
}

/// What all connections together may hold.
#[derive(Debug)]
pub(crate) struct Budget {
    /// What is left for everything.
    left: Semaphore,
    /// What is left for floors alone.
    kept: Semaphore,
    units: usize,
    units_of_floors: AtomicUsize,
    /// What one connection may hold.
    each_bytes: usize,
    wait: Duration,
    pub(crate) waits: AtomicU64,
    pub(crate) refusals: AtomicU64,
}

impl Budget {
    pub(crate) fn new(limit_bytes: usize, each_bytes: usize, wait: Duration) -> Arc<Budget> {
        let units = (limit_bytes / UNIT_BYTES).clamp(1, u32::MAX as usize);
        let kept = units / 4;
        Arc::new(Budget {
            left: Semaphore::new(units - kept),
            kept: Semaphore::new(kept),
            units,
            units_of_floors: AtomicUsize::new(0),
            each_bytes: each_bytes.min((units - kept) * UNIT_BYTES),
            wait,
            waits: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
        })
    }

    pub(crate) fn limit_bytes(&self) -> usize {
        self.units * UNIT_BYTES
    }

    pub(crate) fn used_bytes(&self) -> usize {
        (self.units - self.left.available_permits() - self.kept.available_permits()) * UNIT_BYTES
    }

    /// Whether so little is left that clients which do not take their answers should go.
    pub(crate) fn is_tight(&self) -> bool {
        self.left.available_permits() < self.units / 5
    }

    /// Takes so many units, waiting for them if it must.
    async fn acquire(&self, units: usize) -> Result<(), Refused> {
        let permit = match self.left.try_acquire_many(units as u32) {
            Ok(permit) => permit,
            Err(_) => {
                self.waits.fetch_add(1, Ordering::Relaxed);
                match timeout(self.wait, self.left.acquire_many(units as u32)).await {
                    Ok(permit) => permit.expect("the budget's semaphore is never closed"),
                    Err(_) => {
                        self.refusals.fetch_add(1, Ordering::Relaxed);
                        return Err(Refused::UsedUp);
                    }
                }
            }
        };
        permit.forget();
        Ok(())
    }

    /// A connection's share, if there is room for its floor.
    pub(crate) fn share(self: &Arc<Budget>, floor_bytes: usize) -> Option<Share> {
        let floor = floor_bytes.div_ceil(UNIT_BYTES);
        let reserve = |used: usize| Some(used + floor).filter(|&used| used <= self.units / 4 * 3);
        let order = Ordering::Relaxed;
        self.units_of_floors.fetch_update(order, order, reserve).ok()?;
        for is_kept in [true, false] {
            if let Ok(permit) = self.floors(is_kept).try_acquire_many(floor as u32) {
                permit.forget();
                return Some(Share { budget: self.clone(), floor, is_kept, beyond: 0 });
            }
        }
        self.units_of_floors.fetch_sub(floor, order);
        None
    }

    /// Where a floor comes from: what is kept for floors, or what is left for everything.
    fn floors(&self, is_kept: bool) -> &Semaphore {
        if is_kept { &self.kept } else { &self.left }
    }
}

/// What one connection has of the budget. Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    floor: usize,
    /// Whether the floor is of what is kept for floors.
    is_kept: bool,
    /// Units beyond the floor.
    beyond: usize,
}

impl Share {
    /// Makes the share so large; waits if it grows and too little is left. Dropping the future leaves it as it was.
    pub(crate) async fn hold(&mut self, bytes: usize) -> Result<(), Refused> {
        if self.try_hold(bytes) {
            return Ok(());
        }
        let wanted = self.beyond_floor(bytes);
        if bytes > self.budget.each_bytes {
            self.budget.refusals.fetch_add(1, Ordering::Relaxed);
            return Err(Refused::TooMuch { wanted: bytes, limit: self.budget.each_bytes });
        }
        self.budget.acquire(wanted - self.beyond).await?;
        self.beyond = wanted;
        Ok(())
    }

    /// Makes the share so large, or leaves it if that takes waiting or is too much; whether it is so large now.
    pub(crate) fn try_hold(&mut self, bytes: usize) -> bool {
        let wanted = self.beyond_floor(bytes);
        if wanted <= self.beyond {
            self.shrink(wanted);
            return true;
        }
        if bytes > self.budget.each_bytes {
            return false;
        }
        match self.budget.left.try_acquire_many((wanted - self.beyond) as u32) {
            Ok(permit) => {
                permit.forget();
                self.beyond = wanted;
                true
            }
            Err(_) => false,
        }
    }

    /// Units beyond the floor that so many bytes take.
    fn beyond_floor(&self, bytes: usize) -> usize {
        bytes.div_ceil(UNIT_BYTES).saturating_sub(self.floor)
    }

    fn shrink(&mut self, beyond: usize) {
        if beyond == self.beyond {
            return;
        }
        self.budget.left.add_permits(self.beyond - beyond);
        self.beyond = beyond;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shrink(0);
        self.budget.units_of_floors.fetch_sub(self.floor, Ordering::Relaxed);
        self.budget.floors(self.is_kept).add_permits(self.floor);
    }
}

/// What the requests of one connection have together, where it runs several at a time: a part of its floor, which small
/// requests get without waiting, and what they take beyond it.
#[derive(Debug)]
pub(crate) struct Pieces {
    budget: Arc<Budget>,
    /// Units of the floor that no request has.
    of_floor: AtomicUsize,
    /// Units that requests have beyond it.
    units: AtomicUsize,
}

impl Pieces {
    pub(crate) fn new(budget: Arc<Budget>, floor_bytes: usize) -> Arc<Pieces> {
        let of_floor = AtomicUsize::new(floor_bytes / UNIT_BYTES);
        Arc::new(Pieces { budget, of_floor, units: AtomicUsize::new(0) })
    }

    /// Takes so many bytes more; waits if too little is left. Dropping the future takes nothing.
    pub(crate) async fn take(self: &Arc<Pieces>, bytes: usize) -> Result<Piece, Refused> {
        let units = bytes.div_ceil(UNIT_BYTES);
        let order = Ordering::Relaxed;
        if self.of_floor.fetch_update(order, order, |left| left.checked_sub(units)).is_ok() {
            return Ok(Piece { of: self.clone(), units, from: From::Floor });
        }
        // First, so that several that wait cannot get more together than one client may have.
        let held = self.units.fetch_add(units, Ordering::Relaxed) + units;
        let mut piece = Piece { of: self.clone(), units, from: From::Nowhere };
        if held * UNIT_BYTES > self.budget.each_bytes {
            self.budget.refusals.fetch_add(1, Ordering::Relaxed);
            return Err(Refused::TooMuch { wanted: held * UNIT_BYTES, limit: self.budget.each_bytes });
        }
        self.budget.acquire(units).await?;
        piece.from = From::Budget;
        Ok(piece)
    }
}

/// Where a piece comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Floor,
    Budget,
    /// It waits, or is refused.
    Nowhere,
}

/// What one request has. Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Piece {
    of: Arc<Pieces>,
    units: usize,
    from: From,
}

impl Drop for Piece {
    fn drop(&mut self) {
        if self.from == From::Floor {
            self.of.of_floor.fetch_add(self.units, Ordering::Relaxed);
            return;
        }
        self.of.units.fetch_sub(self.units, Ordering::Relaxed);
        if self.from == From::Budget {
            self.of.budget.left.add_permits(self.units);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn shares_are_bounded_and_given_back() {
        let budget = Budget::new(100 << 10, 60 << 10, WAIT);
        let mut one = budget.share(10 << 10).unwrap();
        let mut two = budget.share(10 << 10).unwrap();
        assert_eq!(budget.used_bytes(), 20 << 10);
        one.hold(5 << 10).await.unwrap();
        assert_eq!(budget.used_bytes(), 20 << 10, "within the floor nothing is taken");
        assert_eq!(one.hold(61 << 10).await, Err(Refused::TooMuch { wanted: 61 << 10, limit: 60 << 10 }));
        one.hold(60 << 10).await.unwrap();
        assert_eq!(two.hold(50 << 10).await, Err(Refused::UsedUp));
        two.hold(35 << 10).await.unwrap();
        assert!(budget.is_tight());
        assert_eq!(budget.used_bytes(), 95 << 10);
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

    #[tokio::test]
    async fn who_comes_finds_room_whatever_others_hold() {
        let budget = Budget::new(100 << 10, 100 << 10, WAIT);
        let pieces = Pieces::new(budget.clone(), 0);
        let refused = pieces.take(76 << 10).await.unwrap_err();
        assert_eq!(refused, Refused::TooMuch { wanted: 76 << 10, limit: 75 << 10 });
        let all = pieces.take(75 << 10).await.unwrap();
        let mut shares: Vec<_> = (0..).map_while(|_| budget.share(10 << 10)).collect();
        assert_eq!((shares.len(), budget.used_bytes()), (2, 95 << 10));
        drop((all, shares.pop()));
        assert_eq!(budget.used_bytes(), 10 << 10);
        assert_eq!(budget.share(20 << 10).map(|share| share.is_kept), Some(false));
        assert_eq!(budget.share(15 << 10).map(|share| share.is_kept), Some(true));
        drop(shares);
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn floors_leave_something() {
        let budget = Budget::new(100 << 10, 100 << 10, WAIT);
        let shares: Vec<_> = (0..).map_while(|_| budget.share(10 << 10)).collect();
        assert_eq!(shares.len(), 7);
        drop(shares);
        assert!(budget.share(70 << 10).is_some());
    }
}
