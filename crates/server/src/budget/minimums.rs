//! Accounting of floors by origin.
//!
//! Floors come from two pools: the memory reserved for floors, and, up to a limit, the general memory. A client with many
//! addresses, or with one address and a thousand connections, must not take all of either pool. An origin is therefore granted
//! another floor only if its total in the pool then does not exceed the part of the pool left for others. One greedy origin gets
//! half of a pool, two get a third each, and an origin without any floor finds room however many are greedy.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::base::address::Origin;

/// Pool that a floor was taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pool {
    /// Reserved for floors.
    Kept,
    /// General memory.
    Left,
}

/// Floors of the open connections, in units of the budget.
#[derive(Debug)]
pub(super) struct Floors {
    /// Maximum for floors per pool, in units.
    most: [usize; 2],
    taken: Mutex<Taken>,
}

/// Units taken, by pool.
#[derive(Debug, Default)]
struct Taken {
    in_all: [usize; 2],
    by_origin: HashMap<Origin, [usize; 2]>,
}

impl Floors {
    pub(super) fn new(most_kept: usize, most_left: usize) -> Floors {
        Floors { most: [most_kept, most_left], taken: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a floor if the origin may have it and `acquire` succeeds in taking it from the pool. Returns true if it was
    /// recorded.
    pub(super) fn take(
        &self,
        pool: Pool,
        origin: Origin,
        units: usize,
        acquire: impl FnOnce() -> bool,
    ) -> bool {
        let mut taken = self.lock();
        let at = pool as usize;
        let of_origin = taken.by_origin.get(&origin).map_or(0, |of| of[at]) + units;
        let left = self.most[at].checked_sub(taken.in_all[at] + units);
        if left.is_none_or(|left| of_origin > left) || !acquire() {
            return false;
        }
        taken.in_all[at] += units;
        taken.by_origin.entry(origin).or_default()[at] = of_origin;
        true
    }

    /// Removes the floor of a closed connection; `release` returns its units to the pool.
    pub(super) fn give_back(&self, pool: Pool, origin: Origin, units: usize, release: impl FnOnce()) {
        let mut taken = self.lock();
        let at = pool as usize;
        release();
        taken.in_all[at] -= units;
        if let Some(of) = taken.by_origin.get_mut(&origin) {
            of[at] -= units;
            if *of == [0, 0] {
                taken.by_origin.remove(&origin);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(last: u8) -> Origin {
        Origin::of([10, 0, 0, last].into())
    }

    /// Returns the number of one-unit floors that an origin is granted.
    fn greedy(floors: &Floors, pool: Pool, origin: Origin) -> usize {
        (0..).take_while(|_| floors.take(pool, origin, 1, || true)).count()
    }

    #[test]
    fn origin_takes_at_most_half_of_remaining_floors() {
        let floors = Floors::new(120, 1200);
        assert_eq!(greedy(&floors, Pool::Kept, origin(1)), 60);
        assert_eq!(greedy(&floors, Pool::Kept, origin(2)), 30);
        assert_eq!(greedy(&floors, Pool::Kept, origin(3)), 15);
        // An origin without floors finds room however many others are greedy.
        assert!((4..=7).all(|last| greedy(&floors, Pool::Kept, origin(last)) > 0));
        assert_eq!(greedy(&floors, Pool::Left, origin(1)), 600, "the other pool is counted by itself");
    }

    #[test]
    fn floors_are_given_back() {
        let floors = Floors::new(100, 100);
        let taken = greedy(&floors, Pool::Kept, origin(1));
        assert!(!floors.take(Pool::Kept, origin(2), 1, || false), "the pool itself has nothing");
        (0..taken).for_each(|_| floors.give_back(Pool::Kept, origin(1), 1, || {}));
        let taken = floors.lock();
        assert!(taken.in_all == [0, 0] && taken.by_origin.is_empty());
    }
}
