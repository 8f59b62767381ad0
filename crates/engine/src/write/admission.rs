//! Slowing writers down as the tier that they write to fills, before it is full.

use std::time::Duration;

use esker_gc::Pacer;
use parking_lot::Mutex;

use crate::segments::space::Space;

/// Below this share of free slots of a fast tier in front of another, writers are paced.
const RELAXED: f64 = 0.25;

/// How long it is remembered that a writer had to wait.
const MOMENT: Duration = Duration::from_millis(20);
/// Writers are let in at this rate at least, however little relocation frees.
const LEAST_DRAIN_BYTES_PER_S: f64 = 65536.0;

/// Admission of writes.
#[derive(Default)]
pub(crate) struct Admission {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pacer: Pacer,
    /// Bytes of the tier that writers write to which relocations of late have freed, and what they took: means with the
    /// greatest weight on the last.
    freed_bytes: f64,
    took_s: f64,
    /// When a writer was last told to wait.
    held_back: Option<Duration>,
}

impl State {
    /// Bytes a second that relocation frees when it makes no pauses; none as long as nobody knows.
    fn drain_bytes_per_s(&self) -> Option<f64> {
        (self.took_s > 0.0).then(|| (self.freed_bytes / self.took_s).max(LEAST_DRAIN_BYTES_PER_S))
    }
}

impl Admission {
    /// Waits until a write of so many bytes may go on.
    pub(crate) async fn wait(&self, space: &Space, bytes: u64) {
        let tier = space.first_tier();
        let free = tier.free_slots();
        let (free_share, relaxed) = if space.both_tiers().is_some() {
            (f64::from(free) / f64::from(tier.slots_in_reach()), RELAXED)
        } else {
            // The slot that a lane's next segment takes is not there for the taking.
            (f64::from(free.saturating_sub(1)) / f64::from(space.free_target()), 1.0)
        };
        if free_share >= relaxed {
            return;
        }
        let wait = {
            let mut state = self.state.lock();
            let Some(drain) = state.drain_bytes_per_s() else { return };
            let now = space.runtime.now();
            let wait = state.pacer.wait(now, bytes, free_share, relaxed, drain);
            if wait > Duration::ZERO {
                state.held_back = Some(now);
            }
            wait
        };
        if wait > Duration::ZERO {
            space.counters.count_stall(wait);
            space.runtime.sleep(wait).await;
        }
    }

    /// Whether writers were held back within the last moment: then relocation makes no pauses.
    pub(crate) fn holds_back(&self, now: Duration) -> bool {
        self.state.lock().held_back.is_some_and(|at| now.saturating_sub(at) < MOMENT)
    }

    /// A relocation freed so many bytes more than it filled, of the tier that writers write to, in so long.
    pub(crate) fn drained(&self, bytes: i64, took: Duration) {
        let mut state = self.state.lock();
        let blend = |known: f64, new: f64| if state.took_s == 0.0 { new } else { known * 0.8 + new * 0.2 };
        let took_s = blend(state.took_s, took.as_secs_f64().max(1e-6));
        let freed_bytes = blend(state.freed_bytes, bytes as f64);
        (state.freed_bytes, state.took_s) = (freed_bytes, took_s);
    }
}
