//! Possible values of the shared counters.

use super::Model;
use super::Part;

impl Model {
    pub(crate) fn try_count(&mut self, counter: usize, count: u64) {
        self.counters[counter].tried = self.counters[counter].tried.max(count);
    }

    pub(crate) fn counted(&mut self, counter: usize, count: u64) {
        let begins_anew = self.may_have_dropped_lasting();
        let counter = &mut self.counters[counter];
        let is_first = counter.acked.insert(count);
        assert!(is_first || begins_anew, "two conditional puts made {:?} {count}", counter.key);
        counter.known = counter.known.max(count);
    }

    /// Checks a counter that was read; `known` is its known value when the read began.
    pub(crate) fn read_counter(&mut self, counter: usize, known: u64, found: Option<u64>) {
        let begins_anew = self.may_have_dropped_lasting();
        let counter = &mut self.counters[counter];
        let count = found.unwrap_or(0);
        // An evicted counter restarts at zero, an unknown number of times.
        let known = if begins_anew { 0 } else { known };
        counter.known = if begins_anew { 0 } else { counter.known };
        if counter.cleared_by != 0 && count == 0 {
            let is_sure = known > 0;
            counter.says = is_sure.then_some(Part { group: counter.cleared_by, happened: true });
            counter.known = 0;
            return;
        }
        assert!(
            (known..=counter.tried).contains(&count),
            "{:?} is {count}, but must be {known} to {}",
            counter.key,
            counter.tried
        );
        counter.known = counter.known.max(count);
        let is_sure = counter.cleared_by != 0;
        counter.says = is_sure.then_some(Part { group: counter.cleared_by, happened: false });
    }

    /// True if the store may have evicted keys without an expiry, such as counters.
    pub(crate) fn may_have_dropped_lasting(&self) -> bool {
        self.evicting.drops_any() && self.may_have_evicted()
    }

    /// Takes the value of a counter read after an opening as the truth.
    pub(crate) fn settle_counter(&mut self, counter: usize) {
        let counter = &mut self.counters[counter];
        (counter.tried, counter.cleared_by) = (counter.known, 0);
        let known = counter.known;
        counter.acked.retain(|count| *count <= known);
    }
}
