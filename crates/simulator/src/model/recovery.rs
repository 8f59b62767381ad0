//! Checks of a reopened store, and the resulting state of the model.

use esker_engine::{Entry, Error};

use super::{Ended, Found, Model, State, matches_state};
use crate::plan::End;

/// The surviving state of a slot.
#[derive(Debug)]
pub(super) struct Survivor {
    /// Position of the state in the slot's history.
    pub(super) at: usize,
    /// True if the slot's keys are present.
    pub(super) present: bool,
    /// Positions of all states that match the found entries, in order; empty if the slot was evicted.
    pub(super) may_be: Vec<usize>,
}

impl Model {
    /// Checks the entries found after a crash or a clean close: `found` has every key of every slot. They are the truth
    /// from then on. If a device failed before the end, the age of lost writes is not checked.
    pub(crate) fn recovered(
        &mut self,
        ended: Ended,
        found: &[Vec<Result<Option<Entry>, Error>>],
        (began_ms, wall_ms): (u64, u64),
    ) {
        self.clock(wall_ms);
        let mut survivors = Vec::new();
        for (slot, entries) in found.iter().enumerate() {
            let keys = self.slots[slot].keys.clone();
            let entries = entries.iter().map(|entry| entry.as_ref().ok()?.as_ref());
            let stamps: Vec<Found> =
                keys.iter().zip(entries).map(|(key, entry)| self.check_entry(slot, key, entry)).collect();
            survivors.push(match self.is_lied_to() {
                true => Survivor { at: self.slots[slot].newest(), present: false, may_be: Vec::new() },
                false => self.survivor(slot, &stamps, ended.how, began_ms),
            });
        }
        if !self.is_lied_to() {
            self.check_groups(&survivors);
            // A store that has evicted has two append points: keys that come back go to segments of their own. The same
            // holds for a store with coalescing.
            if !self.evicting.ever && self.coalesces_for.is_zero() {
                self.check_order(&survivors);
            }
            if !ended.failed {
                self.check_age(&survivors, ended.at);
            }
        }
        for (slot, survivor) in self.slots.iter_mut().zip(&survivors) {
            let state = State {
                acked_at: Some(self.moment),
                acked_time: ended.at,
                group: 0,
                ..slot.history[survivor.at]
            };
            (slot.visible, slot.durable, slot.outlives_process) = (0, 0, 0);
            slot.history = vec![state];
        }
        self.evicting.settle();
    }

    /// Determines the surviving state of a slot from the entries under its keys.
    fn survivor(&mut self, number: usize, stamps: &[Found], end: End, began_ms: u64) -> Survivor {
        let (slot, latest_ms) = (&self.slots[number], self.latest_ms);
        let least = self.least(number, end);
        let there = stamps.iter().copied().find(Option::is_some);
        // Keys of a batch may be evicted one by one, all of them in the same state.
        let is_of =
            |state: &State| there.is_none_or(|there| matches_state(state, there, began_ms, latest_ms));
        let places: Vec<usize> = (least..slot.history.len()).filter(|at| is_of(&slot.history[*at])).collect();
        let states: Vec<State> = places.iter().map(|at| slot.history[*at]).collect();
        let may_be_dropped = self.may_have_dropped(&states);
        let was_gone = |key: usize| there.is_some() && places.iter().any(|at| slot.was_dropped(key, *at));
        let is_dropped = |key: usize| stamps[key].is_none() && (may_be_dropped || was_gone(key));
        let found = if (0..stamps.len()).any(is_dropped) { there.flatten() } else { stamps[0] };
        // A key of a batch may expire while the others are read.
        let expired =
            |state: &State| state.expires_at_ms.is_some_and(|at| (began_ms..=latest_ms).contains(&at));
        assert!(
            (0..stamps.len()).all(|key| stamps[key] == found || is_dropped(key))
                || slot.history.iter().any(expired),
            "slot {number}: part of a batch survived: {stamps:?}"
        );
        if may_be_dropped && found.is_none() {
            // Whatever state it had, it was evicted.
            let slot = &mut self.slots[number];
            slot.history.push(State { stamp: None, expires_at_ms: None, ..slot.last() });
            slot.dropped.fill(0);
            return Survivor { at: slot.newest(), present: false, may_be: Vec::new() };
        }
        let still_dropped = stamps.iter().zip(&slot.dropped).filter(|(stamp, _)| stamp.is_some());
        let least = still_dropped.map(|(_, dropped)| *dropped).fold(least, usize::max);
        let fits = |at: &usize| matches_state(&slot.history[*at], found, began_ms, latest_ms);
        let may_be: Vec<usize> = (least..slot.history.len()).filter(fits).collect();
        // The newest match, to be lenient: several states match if the keys are absent.
        let Some(&at) = may_be.last() else {
            panic!(
                "slot {number}, key {}: found {found:?} after {end:?}, but must be one of {:?} (history {:?})",
                String::from_utf8_lossy(&slot.keys[0][..slot.keys[0].len().min(24)]),
                slot.history[least..].iter().map(|s| s.stamp).collect::<Vec<_>>(),
                slot.history.iter().enumerate().map(|(at, s)| (at, *s)).collect::<Vec<_>>()
            );
        };
        let dropped = stamps.iter().map(|stamp| usize::from(stamp.is_none() && found.is_some())).collect();
        self.slots[number].dropped = dropped;
        Survivor { at, present: found.is_some(), may_be }
    }

    /// Returns the oldest state of a slot that may survive.
    fn least(&self, number: usize, end: End) -> usize {
        let slot = &self.slots[number];
        match end {
            End::PowerCut => slot.durable,
            End::Kill => slot.durable.max(slot.outlives_process),
            End::Close => slot.history.iter().rposition(|s| s.acked_at.is_some()).expect("the first one is"),
        }
    }
}
