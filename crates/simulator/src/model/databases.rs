//! The two databases that clients use: their keys, and the effects of a clear or a swap.

use std::time::Duration;

use bytes::Bytes;
use esker_engine::{Durability, Store};

use super::Model;

/// Number of the second database; the first is database 0.
const SECOND: u8 = 5;

/// Two slots with the same keys, one in each database.
#[derive(Clone, Debug)]
pub(crate) struct Twins {
    pub(crate) slots: [usize; 2],
    pub(crate) keys: Vec<Bytes>,
    /// Stamp of each slot's value.
    pub(crate) stamps: [Option<u64>; 2],
}

impl Model {
    /// Returns the twins with a known state in both databases and no expiry.
    pub(crate) fn twins(&self) -> Vec<Twins> {
        let mut twins = Vec::new();
        for (number, pair) in self.slots.windows(2).enumerate() {
            let are_twins = !pair[0].elsewhere && pair[1].elsewhere && pair[0].keys == pair[1].keys;
            let known = [pair[0].known(), pair[1].known()];
            if let ([Some(first), Some(second)], true) = (known, are_twins)
                && first.expires_at_ms.is_none()
                && second.expires_at_ms.is_none()
            {
                let stamps = [first.stamp, second.stamp];
                twins.push(Twins { slots: [number, number + 1], keys: pair[0].keys.clone(), stamps });
            }
        }
        twins
    }

    /// Returns the number of the database that now contains the keys of the first (or, if `elsewhere`, the second)
    /// database before any swap.
    pub(crate) fn database(&self, elsewhere: bool) -> u8 {
        if elsewhere != self.swapped { SECOND } else { 0 }
    }

    /// Returns the database of a slot's keys.
    pub(crate) fn database_of(&self, slot: usize) -> u8 {
        self.database(self.slots[slot].elsewhere)
    }

    /// Records that a swap is about to be issued. Returns the two databases.
    pub(crate) fn issue_swap(&mut self) -> (u8, u8) {
        self.may_be_swapped = true;
        (SECOND, 0)
    }

    pub(crate) fn swapped(&mut self) {
        (self.swapped, self.may_be_swapped) = (!self.swapped, false);
    }

    /// Takes the mapping of the two databases from a store that was just opened.
    pub(crate) fn settle_databases(&mut self, store: &Store) {
        let second = store.database(SECOND).expect("there is one").keyspace_number();
        let swapped = second != SECOND;
        let both = [store.keyspace_number(), second];
        assert!(both == [0, SECOND] || both == [SECOND, 0], "the databases have keyspaces {both:?}");
        assert!(
            swapped == self.swapped || self.may_be_swapped || self.is_lied_to(),
            "databases are swapped: {swapped}, but a swap that was done must last, and no other must happen"
        );
        (self.swapped, self.may_be_swapped) = (swapped, false);
    }

    /// Records that all keys, or those of one database, are about to be deleted while no other client is active.
    /// Returns the slots and the positions in their histories.
    pub(crate) fn issue_clear(&mut self, which: Option<bool>) -> Vec<(usize, usize)> {
        let is_cleared = |slot: &usize| which.is_none_or(|which| self.slots[*slot].elsewhere == which);
        let slots: Vec<usize> = (0..self.slots.len()).filter(is_cleared).collect();
        let issue = |slot| (slot, self.issue(slot, None, None, Durability::Sync, false));
        let issued: Vec<(usize, usize)> = slots.into_iter().map(issue).collect();
        let group = self.join(&issued);
        // Counters are in the first database.
        if which != Some(true) {
            self.counters.iter_mut().for_each(|counter| counter.cleared_by = group);
        }
        issued
    }

    /// Records that the clear completed.
    pub(crate) fn cleared(&mut self, at: &[(usize, usize)], now: Duration) {
        at.iter().for_each(|(slot, at)| self.ack(*slot, *at, now));
        for counter in self.counters.iter_mut().filter(|counter| counter.cleared_by != 0) {
            (counter.known, counter.tried, counter.cleared_by, counter.says) = (0, 0, 0, None);
            counter.acked.clear();
        }
    }
}
