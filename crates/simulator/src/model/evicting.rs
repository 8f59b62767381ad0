//! Keys that a store may have evicted, according to its counters.

use esker_engine::{Stats, WhenFull};

use super::{Model, State};

/// Evictions since the model was last settled.
pub(super) struct Evicting {
    when_full: WhenFull,
    /// Records that the open store has evicted.
    now: u64,
    /// Records that earlier openings evicted.
    before: u64,
    /// Keys found absent that must have been evicted.
    missed: u64,
    /// True if the open store was near its limit at the last look.
    is_near: bool,
    /// True if a process ended during a possible eviction, so that the count may be too low.
    unsure: bool,
    /// True if the store ever evicted.
    pub(super) ever: bool,
}

impl Evicting {
    pub(super) fn new(when_full: WhenFull) -> Evicting {
        Evicting { when_full, now: 0, before: 0, missed: 0, is_near: false, unsure: false, ever: false }
    }

    /// Counts a key that was found absent without having been deleted.
    pub(super) fn miss(&mut self) {
        self.missed += 1;
        let evicted = self.before + self.now;
        assert!(
            self.unsure || self.missed <= evicted,
            "{} keys are gone, but {evicted} were evicted",
            self.missed
        );
    }

    /// Takes the recovered state as the truth: resets the counts.
    pub(super) fn settle(&mut self) {
        (self.before, self.missed, self.unsure) = (0, 0, false);
    }

    /// True if keys without an expiry are evicted too.
    pub(super) fn drops_any(&self) -> bool {
        self.when_full == WhenFull::Evict
    }

    /// True if a key in this state may be evicted.
    fn takes(&self, state: &State) -> bool {
        let may = match self.when_full {
            WhenFull::Refuse => false,
            WhenFull::Evict => true,
            WhenFull::EvictExpiring => state.expires_at_ms.is_some(),
        };
        may && state.stamp.is_some()
    }
}

impl Model {
    /// Updates the number of records that the open store has evicted.
    pub(crate) fn told_of_evictions(&mut self, records: u64) {
        self.evicting.now = records;
        self.evicting.ever |= records > 0;
    }

    /// Updates the eviction state from the store's statistics.
    pub(crate) fn look_at(&mut self, stats: &Stats) {
        self.told_of_evictions(stats.activity.records_evicted);
        let no_slots = stats.tiers.last().is_some_and(|tier| tier.segments_free <= FEW_SEGMENTS);
        self.evicting.is_near = no_slots || 2 * stats.live_bytes > stats.user_limit_bytes;
    }

    /// Records the end of the process. `closed`: the store was closed.
    pub(crate) fn ended(&mut self, closed: bool) {
        let evicting = &mut self.evicting;
        evicting.unsure |= !closed && evicting.when_full.evicts() && (evicting.is_near || evicting.now > 0);
        evicting.before += evicting.now;
        (evicting.now, evicting.is_near) = (0, false);
    }

    /// True if the store may have evicted anything since the model was last settled.
    pub(crate) fn may_have_evicted(&self) -> bool {
        self.evicting.unsure || self.evicting.before + self.evicting.now > 0
    }

    /// True if the store may have evicted a key that had one of these states.
    pub(crate) fn may_have_dropped(&self, states: &[State]) -> bool {
        self.may_have_evicted() && states.iter().any(|state| self.evicting.takes(state))
    }
}

/// Number of free segments up to which a store may look for keys to evict.
const FEW_SEGMENTS: u64 = 3;
