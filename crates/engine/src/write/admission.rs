//! Admission: slows writers down before they exhaust the free slots of the tier they write to, or the memory for unverified
//! overwrites.

use std::time::Duration;

use esker_gc::{Pacer, Rate};
use esker_index::Indexes;
use parking_lot::Mutex;

use crate::segments::space::Space;

/// Share of free slots below which writers are paced, for a fast tier in front of a capacity tier.
const RELAXED: f64 = 0.25;

/// Time after a paced write during which writers count as held back.
const MOMENT: Duration = Duration::from_millis(20);
/// Minimum admitted rate in bytes per second, however little relocation frees.
const LEAST_DRAIN_BYTES_PER_S: f64 = 65536.0;
/// Minimum admitted rate of overwrites per second, however few are verified; and the assumed rate (`GUESSED_VERIFIED_PER_S`)
/// before the first measurement.
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
    /// Rate at which relocations free bytes of the tier that writers write to.
    freed: Rate,
    overwrites: Pacer,
    /// Rate at which unverified overwrites are verified while there are too many of them.
    verified: Rate,
    /// True if the last attempt could verify none of them.
    out_of_reach: bool,
    /// Time when a writer last had to wait for room.
    held_back: Option<Duration>,
}

impl Admission {
    /// Waits until `records` records of `bytes` in all may be written.
    pub(crate) async fn wait(&self, space: &Space, index: &Indexes, records: usize, bytes: u64) {
        let tier = space.first_tier();
        let free = space.free_slots(tier);
        let (free_share, relaxed) = if space.both_tiers().is_some() {
            (f64::from(free) / f64::from(tier.slots_in_reach()), RELAXED)
        } else {
            // The slot for a lane's next segment is not available to others.
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

    /// Returns true if writers were held back for lack of room during the last moment: then relocation makes no pauses.
    pub(crate) fn holds_back(&self, now: Duration) -> bool {
        self.state.lock().held_back.is_some_and(|at| now.saturating_sub(at) < MOMENT)
    }

    /// Notes that a relocation freed `bytes` more than it filled, of the tier that writers write to, within `took`.
    pub(crate) fn drained(&self, bytes: i64, took: Duration) {
        self.state.lock().freed.note(bytes as f64, took);
    }

    /// Notes that `overwrites` were verified within `took` while there were too many.
    pub(crate) fn verified(&self, overwrites: u64, took: Duration) {
        let mut state = self.state.lock();
        state.out_of_reach = false;
        state.verified.note(overwrites as f64, took);
    }

    /// Notes that no unverified overwrite can be verified now, so that no writer waits for that.
    pub(crate) fn cannot_verify(&self) {
        self.state.lock().out_of_reach = true;
    }
}
