//! Per verb: number of calls, their duration, refusals and failures.
//!
//! The clock is read once for a group of commands that went to the store together (`run`). The time of the group is divided
//! evenly among its commands, so that the times of all commands add up to the time spent.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker_engine::{Histogram, Latency};

use crate::base::counting::count;

/// Limit of the rows of the table of RESP commands, by whose places calls are counted.
pub(crate) const ROWS_MAX: usize = 256;

/// Counters of one verb. Aligned so that no two verbs share a cache line.
#[derive(Default)]
#[repr(align(128))]
struct OfVerb {
    /// Allocated at the first call: most verbs are never called.
    times: OnceLock<Box<Histogram>>,
    took_ns: AtomicU64,
    rejected: AtomicU64,
    failed: AtomicU64,
}

/// Snapshot of one verb's counters.
pub(crate) struct Known {
    pub(crate) times: Latency,
    pub(crate) took: Duration,
    /// Commands refused before they ran.
    pub(crate) rejected: u64,
    /// Commands that ran and returned an error.
    pub(crate) failed: u64,
}

/// Counters of all verbs.
pub(crate) struct Calls([OfVerb; ROWS_MAX]);

impl Default for Calls {
    fn default() -> Calls {
        Calls(std::array::from_fn(|_| OfVerb::default()))
    }
}

impl Calls {
    /// Records `calls` commands that took `each`.
    fn took(&self, verb: usize, calls: u64, each: Duration) {
        let of = &self.0[verb];
        of.times.get_or_init(Box::default).record(each, calls);
        count(&of.took_ns, each.as_nanos() as u64 * calls);
    }

    pub(crate) fn rejected(&self, verb: usize) {
        count(&self.0[verb].rejected, 1);
    }

    pub(crate) fn failed(&self, verb: usize, calls: u64) {
        count(&self.0[verb].failed, calls);
    }

    /// Returns the counters of a verb if any is not zero.
    pub(crate) fn of(&self, verb: usize) -> Option<Known> {
        let of = &self.0[verb];
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let times = of.times.get().map(|times| times.snapshot()).unwrap_or_default();
        let (rejected, failed) = (load(&of.rejected), load(&of.failed));
        let known = Known { took: Duration::from_nanos(load(&of.took_ns)), times, rejected, failed };
        (known.times.count() + rejected + failed > 0).then_some(known)
    }

    pub(crate) fn reset(&self) {
        for of in &self.0 {
            if let Some(times) = of.times.get() {
                times.reset();
            }
            for counter in [&of.took_ns, &of.rejected, &of.failed] {
                counter.store(0, Ordering::Relaxed);
            }
        }
    }
}

/// Completed commands that are not yet counted, and the time spent on them.
#[derive(Default)]
pub(crate) struct Tally {
    ended: Vec<(usize, u64)>,
    failed: Vec<usize>,
    took: Duration,
}

impl Tally {
    pub(crate) fn ended(&mut self, verb: usize, calls: u64) {
        match self.ended.last_mut() {
            Some((last, counted)) if *last == verb => *counted += calls,
            _ => self.ended.push((verb, calls)),
        }
    }

    /// Notes a failed call of a verb. It is counted when the tally is settled: the tally of a discarded attempt is not.
    pub(crate) fn failed(&mut self, verb: usize) {
        self.failed.push(verb);
    }

    /// Takes over the commands of another tally, whose time was not measured separately.
    pub(crate) fn absorb(&mut self, other: &mut Tally) {
        self.failed.append(&mut other.failed);
        other.ended.drain(..).for_each(|(verb, ended)| self.ended(verb, ended));
    }

    /// Divides the time among the completed commands; without any, keeps it for the next ones. Returns their number.
    pub(crate) fn settle(&mut self, took: Duration, calls: &Calls) -> u64 {
        self.took += took;
        let ended = self.ended.iter().map(|(_, ended)| ended).sum();
        if let Some(each) = (self.took.as_nanos() as u64).checked_div(ended) {
            let each = Duration::from_nanos(each);
            for (verb, ended) in self.ended.drain(..) {
                calls.took(verb, ended, each);
            }
            self.failed.drain(..).for_each(|verb| calls.failed(verb, 1));
            self.took = Duration::ZERO;
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_parted_over_the_commands_that_ended() {
        let (calls, mut tally) = (Calls::default(), Tally::default());
        let [first, second, third] = [0, 1, 2];
        assert_eq!(tally.settle(Duration::from_micros(30), &calls), 0);
        tally.ended(first, 1);
        tally.ended(first, 1);
        tally.ended(second, 2);
        assert_eq!(tally.settle(Duration::from_micros(10), &calls), 4);
        for verb in [first, second] {
            let known = calls.of(verb).unwrap();
            assert_eq!((known.times.count(), known.took), (2, Duration::from_micros(20)));
            assert_eq!(known.times.count_within(Duration::from_micros(11)), 2);
            assert_eq!(known.times.count_within(Duration::from_micros(9)), 0);
        }
        calls.rejected(third);
        assert_eq!(calls.of(third).map(|known| known.rejected), Some(1));
        calls.reset();
        assert!([first, second, third].iter().all(|&verb| calls.of(verb).is_none()));
    }
}
