//! What a store that drops keys where it is full may have dropped, by what it counts.

use esker_engine::{Stats, WhenFull};

use super::{Model, State};

/// What is known of evictions since the model was last made what was found.
pub(super) struct Evicting {
    when_full: WhenFull,
    /// Records that the open store has evicted.
    now: u64,
    /// And those before it.
    before: u64,
    /// What was found gone and must have been evicted.
    missed: u64,
    /// The open store was near its limit when somebody looked last.
    is_near: bool,
    /// A process ended in which an eviction may have been under way, so that it is not counted.
    unsure: bool,
    /// It evicted, ever.
    pub(super) ever: bool,
}

impl Evicting {
    pub(super) fn new(when_full: WhenFull) -> Evicting {
        Evicting { when_full, now: 0, before: 0, missed: 0, is_near: false, unsure: false, ever: false }
    }

    /// A key was found gone that was not before.
    pub(super) fn miss(&mut self) {
        self.missed += 1;
        let evicted = self.before + self.now;
        assert!(
            self.unsure || self.missed <= evicted,
            "{} keys are gone, but {evicted} were evicted",
            self.missed
        );
    }

    /// What was found is the truth from now on.
    pub(super) fn settle(&mut self) {
        (self.before, self.missed, self.unsure) = (0, 0, false);
    }

    /// Whether keys are evicted that do not expire.
    pub(super) fn drops_any(&self) -> bool {
        self.when_full == WhenFull::Evict
    }

    /// Whether a state is one that may be evicted.
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
    /// The open store has evicted so many records.
    pub(crate) fn told_of_evictions(&mut self, records: u64) {
        self.evicting.now = records;
        self.evicting.ever |= records > 0;
    }

    /// Somebody looked at the store.
    pub(crate) fn look_at(&mut self, stats: &Stats) {
        self.told_of_evictions(stats.activity.records_evicted);
        let no_slots = stats.tiers.last().is_some_and(|tier| tier.segments_free <= FEW_SEGMENTS);
        self.evicting.is_near = no_slots || 2 * stats.live_bytes > stats.user_limit_bytes;
    }

    /// The process has ended; whether by a close.
    pub(crate) fn ended(&mut self, closed: bool) {
        let evicting = &mut self.evicting;
        evicting.unsure |= !closed && evicting.when_full.evicts() && (evicting.is_near || evicting.now > 0);
        evicting.before += evicting.now;
        (evicting.now, evicting.is_near) = (0, false);
    }

    /// Whether it may have evicted anything since the model was last made what was found.
    pub(crate) fn may_have_evicted(&self) -> bool {
        self.evicting.unsure || self.evicting.before + self.evicting.now > 0
    }

    /// Whether it may have evicted a key that had one of these states.
    pub(crate) fn may_have_dropped(&self, states: &[State]) -> bool {
        self.may_have_evicted() && states.iter().any(|state| self.evicting.takes(state))
    }
}

/// With no more free segments than these a store may look for what can be dropped.
const FEW_SEGMENTS: u64 = 3;
