//! Memory that clients hold: one budget for all of them, and what each has of it.
//!
//! Every connection has a small *floor* from its first to its last byte, which is enough for small commands. Whatever
//! it holds beyond that it takes from what is left, before it allocates. If nothing is left it waits, in the order of
//! arrival, and is dropped if it waited too long; connections that stay within their floors never wait. A quarter of the
//! budget is kept for floors, so that who comes finds room whatever others hold; at most three quarters go to floors, so
//! that something is left. Floors are counted by where a connection comes from (`floors`), so that no one address has all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

use self::minimums::{Floors, Pool};
use crate::base::address::Origin;

mod minimums;

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
    floors: Floors,
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
            floors: Floors::new(kept, units / 2),
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

    /// A connection's share, if there is room for its floor and its origin has not too many already.
    pub(crate) fn share(self: &Arc<Budget>, origin: Origin, floor_bytes: usize) -> Option<Share> {
        let floor = floor_bytes.div_ceil(UNIT_BYTES);
        for pool in [Pool::Kept, Pool::Left] {
            let acquire =
                || self.pool(pool).try_acquire_many(floor as u32).map(|permit| permit.forget()).is_ok();
            if self.floors.take(pool, origin, floor, acquire) {
                return Some(Share { budget: self.clone(), origin, floor, pool, beyond: 0 });
            }
        }
        None
    }

    fn pool(&self, pool: Pool) -> &Semaphore {
        match pool {
            Pool::Kept => &self.kept,
            Pool::Left => &self.left,
        }
    }
}

/// What one connection has of the budget. Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    origin: Origin,
    floor: usize,
    /// Where the floor comes from.
    pool: Pool,
    /// Units beyond the floor.
    beyond: usize,
}

impl Share {
    /// Makes the share so large; waits if it grows and too little is left. Dropping the future leaves it as it was.
    pub(crate) async fn hold(&mut self, bytes: usize) -> Result<(), Refused> {
        if self.try_hold(bytes) {
            return Ok(());
        }
        if bytes > self.budget.each_bytes {
            return Err(self.refuse(bytes));
        }
        let wanted = self.beyond_floor(bytes);
        self.budget.acquire(wanted - self.beyond).await?;
        self.beyond = wanted;
        Ok(())
    }

    /// As [`hold`](Self::hold), but refuses where that would wait.
    pub(crate) fn hold_now(&mut self, bytes: usize) -> Result<(), Refused> {
        if self.try_hold(bytes) { Ok(()) } else { Err(self.refuse(bytes)) }
    }

    /// Counts a refusal of so many bytes; why they are refused.
    fn refuse(&self, bytes: usize) -> Refused {
        self.budget.refusals.fetch_add(1, Ordering::Relaxed);
        let limit = self.budget.each_bytes;
        if bytes > limit { Refused::TooMuch { wanted: bytes, limit } } else { Refused::UsedUp }
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

    /// Whether it is so large already.
    pub(crate) fn covers(&self, bytes: usize) -> bool {
        self.beyond_floor(bytes) <= self.beyond
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
        let budget = &self.budget;
        budget.floors.give_back(self.pool, self.origin, self.floor, || {
            budget.pool(self.pool).add_permits(self.floor);
        });
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

impl Piece {
    pub(crate) fn bytes(&self) -> usize {
        self.units * UNIT_BYTES
    }
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
#[path = "budget/tests.rs"]
mod tests;
