//! Slowing writers down as the tier that they write to fills, before it is full.

use std::time::Duration;

use esker_gc::Pacer;
use parking_lot::Mutex;

use crate::engine::Engine;

/// Below this share of free slots of a fast tier in front of another, writers are paced.
const RELAXED: f64 = 0.25;

/// Admission of writes.
#[derive(Default)]
pub(crate) struct Admission {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pacer: Pacer,
    /// Bytes a second that relocation frees, smoothed.
    drain_bytes_per_s: f64,
}

impl Admission {
    /// Waits until a write of so many bytes may go on.
    pub(crate) async fn wait(&self, engine: &Engine, bytes: u64) {
        let tier = engine.tier(engine.lane.shape.tier);
        let free = tier.free_slots();
        let (free_share, relaxed) = if engine.fast.is_some() && engine.capacity.is_some() {
            (f64::from(free) / f64::from(tier.slots_total()), RELAXED)
        } else {
            // The slot that a lane's next segment takes is not there for the taking.
            (f64::from(free.saturating_sub(1)) / f64::from(engine.free_target()), 1.0)
        };
        if free_share >= relaxed {
            return;
        }
        let wait = {
            let mut state = self.state.lock();
            let drain = state.drain_bytes_per_s;
            state.pacer.wait(engine.runtime.now(), bytes, free_share, relaxed, drain)
        };
        if wait > Duration::ZERO {
            engine.counters.count_stall(wait);
            engine.runtime.sleep(wait).await;
        }
    }

    /// Relocation freed so many bytes in so long.
    pub(crate) fn drained(&self, bytes: u64, took: Duration) {
        let rate = bytes as f64 / took.as_secs_f64().max(1e-6);
        let mut state = self.state.lock();
        let known = state.drain_bytes_per_s;
        state.drain_bytes_per_s = if known == 0.0 { rate } else { known * 0.8 + rate * 0.2 };
    }
}
