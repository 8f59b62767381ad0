//! Memory held by clients: one budget for all of them, and a share for each connection.
//!
//! Every connection has a small *floor* from its first to its last byte, which suffices for small commands. It takes memory
//! beyond its floor from the general memory before allocating. If none is left it waits, in order of arrival. When the wait times
//! out, the command or call fails, or the connection is closed if it cannot go on without the memory. Connections within their
//! floors never wait. A quarter of the budget is reserved for floors, so that new
//! connections find room whatever others hold; floors take at most three quarters, so that general memory remains. Floors are
//! counted by origin (`minimums`), so that no single address takes all of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

use self::minimums::{Floors, Pool};
use crate::base::address::Origin;

mod minimums;

/// Accounting unit of the budget, in bytes.
const UNIT_BYTES: usize = 1 << 10;

/// Reasons for a refused allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    /// The connection would exceed the limit per client.
    #[error("it takes {wanted} bytes of memory, and one client may have {limit} (client-memory-each)")]
    TooMuch { wanted: usize, limit: usize },
    /// All clients together hold the whole budget, and none released enough in time.
    #[error("the memory for clients (client-memory) is used up")]
    UsedUp,
}

/// Memory for all connections together.
#[derive(Debug)]
pub(crate) struct Budget {
    /// General memory, in units.
    left: Semaphore,
    /// Memory reserved for floors, in units.
    kept: Semaphore,
    units: usize,
    floors: Floors,
    /// Maximum per connection, in bytes.
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

    /// Returns true if less than a fifth of the budget is left, so that clients that do not read their replies should be closed.
    pub(crate) fn is_tight(&self) -> bool {
        self.left.available_permits() < self.units / 5
    }

    /// Takes units of general memory. Waits if too few are free.
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

    /// Returns the share of a new connection; `None` without room for its floor or if its origin has too many.
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

/// Share of one connection, released on drop.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    origin: Origin,
    floor: usize,
    /// Pool of the floor.
    pool: Pool,
    /// Units held beyond the floor.
    beyond: usize,
}

impl Share {
    /// Resizes the share to `bytes`. Waits if it grows and too little is left. Dropping the future leaves the share as it was.
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

    /// Resizes the share as [`hold`](Self::hold) does, but fails instead of waiting.
    pub(crate) fn hold_now(&mut self, bytes: usize) -> Result<(), Refused> {
        if self.try_hold(bytes) { Ok(()) } else { Err(self.refuse(bytes)) }
    }

    /// Counts a refused allocation and returns its reason.
    fn refuse(&self, bytes: usize) -> Refused {
        self.budget.refusals.fetch_add(1, Ordering::Relaxed);
        let limit = self.budget.each_bytes;
        if bytes > limit { Refused::TooMuch { wanted: bytes, limit } } else { Refused::UsedUp }
    }

    /// Resizes the share to `bytes` unless that would wait or exceed the limit. Returns true if it was resized.
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

    /// Returns true if the share is at least `bytes` already.
    pub(crate) fn covers(&self, bytes: usize) -> bool {
        self.beyond_floor(bytes) <= self.beyond
    }

    /// Returns the units beyond the floor needed for `bytes`.
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

/// Memory of the concurrent requests of one connection: a part of its floor, which small requests take without waiting, and
/// memory beyond it.
#[derive(Debug)]
pub(crate) struct Pieces {
    budget: Arc<Budget>,
    /// Free units of the floor.
    of_floor: Semaphore,
    floor_units: usize,
    /// Units held or awaited beyond the floor.
    units: AtomicUsize,
}

impl Pieces {
    pub(crate) fn new(budget: Arc<Budget>, floor_bytes: usize) -> Arc<Pieces> {
        let floor_units = floor_bytes / UNIT_BYTES;
        let of_floor = Semaphore::new(floor_units);
        Arc::new(Pieces { budget, of_floor, floor_units, units: AtomicUsize::new(0) })
    }

    /// Takes `bytes` for a request. If too little is left, it waits for general memory, or for earlier requests of the connection
    /// to release its floor. Dropping the future takes nothing.
    pub(crate) async fn take(self: &Arc<Pieces>, bytes: usize) -> Result<Piece, Refused> {
        let units = bytes.div_ceil(UNIT_BYTES);
        if let Ok(permit) = self.of_floor.try_acquire_many(units as u32) {
            permit.forget();
            return Ok(Piece { of: self.clone(), units, from: From::Floor });
        }
        // Counted before waiting, so that several waiting requests together cannot exceed the limit per client.
        let held = self.units.fetch_add(units, Ordering::Relaxed) + units;
        let mut piece = Piece { of: self.clone(), units, from: From::Nowhere };
        if held * UNIT_BYTES > self.budget.each_bytes {
            self.budget.refusals.fetch_add(1, Ordering::Relaxed);
            return Err(Refused::TooMuch { wanted: held * UNIT_BYTES, limit: self.budget.each_bytes });
        }
        tokio::select! {
            biased;
            taken = self.budget.acquire(units) => {
                taken?;
                piece.from = From::Budget;
            }
            permit = self.of_floor.acquire_many(units as u32), if units <= self.floor_units => {
                permit.expect("the floor's semaphore is never closed").forget();
                self.units.fetch_sub(units, Ordering::Relaxed);
                piece.from = From::Floor;
            }
        }
        Ok(piece)
    }
}

/// Source of a piece's units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Floor,
    Budget,
    /// The request waits or is refused.
    Nowhere,
}

/// Memory of one request, released on drop.
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
            self.of.of_floor.add_permits(self.units);
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
