//! Slowing writers down before what they use up is gone: free room of the tier that they write to, and memory for
//! unverified overwrites.

use std::time::Duration;

use esker_gc::Pacer;
use esker_index::Indexes;
use parking_lot::Mutex;

use crate::segments::space::Space;

/// Below this share of free slots of a fast tier in front of another, writers are paced.
const RELAXED: f64 = 0.25;

/// How long it is remembered that a writer had to wait.
const MOMENT: Duration = Duration::from_millis(20);
/// Writers are let in at this rate at least, however little relocation frees.
const LEAST_DRAIN_BYTES_PER_S: f64 = 65536.0;
/// The same for overwrites, however few are verified; and before anybody knows how many are.
const LEAST_VERIFIED_PER_S: f64 = 512.0;
const GUESSED_VERIFIED_PER_S: f64 = 100_000.0;
/// Unverified overwrites settle between their limit and this multiple of it.
const MOST_UNVERIFIED: f64 = 1.25;

/// Admission of writes.
#[derive(Default)]
pub(crate) struct Admission {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    room: Pacer,
    /// Bytes of the tier that writers write to which relocations free.
    freed: Rate,
    overwrites: Pacer,
    /// Unverified overwrites that are verified while there are too many of them.
    verified: Rate,
    /// None of them could be verified when that was last tried.
    out_of_reach: bool,
    /// When a writer was last told to wait.
    held_back: Option<Duration>,
}

/// How much is done in a second: means with the greatest weight on the last.
#[derive(Default)]
struct Rate {
    amount: f64,
    took_s: f64,
}

impl Rate {
    fn note(&mut self, amount: f64, took: Duration) {
        let blend = |known: f64, new: f64| if self.took_s == 0.0 { new } else { known * 0.8 + new * 0.2 };
        let took_s = blend(self.took_s, took.as_secs_f64().max(1e-6));
        *self = Rate { amount: blend(self.amount, amount), took_s };
    }

    /// None as long as nobody knows.
    fn per_s(&self, at_least: f64) -> Option<f64> {
        (self.took_s > 0.0).then(|| (self.amount / self.took_s).max(at_least))
    }
}

impl Admission {
    /// Waits until so many records of so many bytes may be written.
    pub(crate) async fn wait(&self, space: &Space, index: &Indexes, records: usize, bytes: u64) {
        let tier = space.first_tier();
        let free = space.free_slots(tier);
        let (free_share, relaxed) = if space.both_tiers().is_some() {
            (f64::from(free) / f64::from(tier.slots_in_reach()), RELAXED)
        } else {
            // The slot that a lane's next segment takes is not there for the taking.
            (f64::from(free.saturating_sub(1)) / f64::from(space.free_target()), 1.0)
        };
        let unverified = index.unverified_pressure();
        if free_share >= relaxed && unverified <= 1.0 {
            return;
        }
        let (for_room, for_memory) = {
            let mut state = self.state.lock();
            let State { room, freed, overwrites, verified, out_of_reach, held_back } = &mut *state;
            let now = space.runtime.now();
            let drain = freed.per_s(LEAST_DRAIN_BYTES_PER_S);
            let for_room = drain.map(|drain| room.wait(now, bytes, free_share, relaxed, drain));
            let for_room = for_room.unwrap_or_default();
            let for_memory = if *out_of_reach {
                Duration::ZERO
            } else {
                let left = (MOST_UNVERIFIED - unverified) / (MOST_UNVERIFIED - 1.0);
                let verified = verified.per_s(LEAST_VERIFIED_PER_S).unwrap_or(GUESSED_VERIFIED_PER_S);
                overwrites.wait(now, records as u64, left, 1.0, verified)
            };
            if for_room > Duration::ZERO {
                *held_back = Some(now);
            }
            (for_room, for_memory)
        };
        let wait = for_room.max(for_memory);
        if wait > Duration::ZERO {
            space.counters.count_stall(wait);
            space.runtime.sleep(wait).await;
        }
    }

    /// Whether writers were held back for want of room within the last moment: then relocation makes no pauses.
    pub(crate) fn holds_back(&self, now: Duration) -> bool {
        self.state.lock().held_back.is_some_and(|at| now.saturating_sub(at) < MOMENT)
    }

    /// A relocation freed so many bytes more than it filled, of the tier that writers write to, in so long.
    pub(crate) fn drained(&self, bytes: i64, took: Duration) {
        self.state.lock().freed.note(bytes as f64, took);
    }

    /// While there were too many unverified overwrites, so many were verified in so long.
    pub(crate) fn verified(&self, overwrites: u64, took: Duration) {
        let mut state = self.state.lock();
        state.out_of_reach = false;
        state.verified.note(overwrites as f64, took);
    }

    /// None of the unverified overwrites can be verified now, so nobody waits for that.
    pub(crate) fn cannot_verify(&self) {
        self.state.lock().out_of_reach = true;
    }
}
