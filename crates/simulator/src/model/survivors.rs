//! Checks over all survivors of a process end: the order of the lost writes, and their age.

use std::time::Duration;

use esker_engine::Durability;

use super::recovery::Survivor;
use super::{Model, Slot, State};

/// Maximum time of a write and a flush, including those queued before them.
const WRITE_TIME: Duration = Duration::from_millis(50);

/// Time after which a write with no deadline of its own is written and durable, unless it coalesces for longer.
const MAX_UNWRITTEN: Duration = Duration::from_secs(1);

impl Model {
    /// Asserts that no write survives that was appended after a lost one, except for writes of another lane.
    pub(super) fn check_order(&self, survivors: &[Survivor]) {
        let exact = |(slot, survivor): (&Slot, &Survivor)| {
            let state = slot.history[survivor.at];
            let alike = slot.history.iter().filter(|other| other.looks_like(&state)).count();
            (survivor.present && !state.large && alike == 1).then_some(state.issued_at)
        };
        let Some(newest) = self.slots.iter().zip(survivors).filter_map(exact).max() else { return };
        for (number, (slot, Survivor { at, .. })) in self.slots.iter().zip(survivors).enumerate() {
            let before = |s: &State| !s.large && s.acked_at.is_some_and(|acked| acked < newest);
            let needed = slot.history.iter().rposition(before).unwrap_or(0);
            assert!(
                *at >= needed,
                "slot {number}: write {needed} is lost ({:?} is what is left), but one that began after its end survived",
                slot.history[*at].stamp
            );
        }
    }

    /// Asserts that every lost write was recent when the process ended, within the time that its durability allows: an
    /// acknowledged `Sync` write is never lost.
    pub(super) fn check_age(&self, survivors: &[Survivor], ended: Duration) {
        for (number, (slot, Survivor { at, .. })) in self.slots.iter().zip(survivors).enumerate() {
            let old = |s: &State| match s.durability {
                Durability::Periodic(period) => {
                    s.acked_at.is_some() && s.acked_time + period + WRITE_TIME < ended
                }
                Durability::None | Durability::Process => {
                    let unwritten = MAX_UNWRITTEN.max(self.coalesces_for);
                    s.acked_at.is_some() && s.acked_time + unwritten + WRITE_TIME < ended
                }
                Durability::Sync => s.acked_at.is_some(),
            };
            let needed = slot.history.iter().rposition(old).unwrap_or(0);
            let expired = slot.history[needed].expires_at_ms.is_some_and(|at| at <= self.latest_ms);
            assert!(
                *at >= needed || expired,
                "slot {number}: write {needed} of {:?} is lost, but was old enough to be kept",
                slot.history[needed].acked_time
            );
        }
    }
}
