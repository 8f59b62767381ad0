//! How often each verb was called, how long it took, and how often it was refused or failed.
//!
//! The clock is read once for a group of commands that went to the store together (`run`). What the group took is parted
//! evenly over its commands, so that the times of all commands add up to the time that was spent.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker_engine::{Histogram, Latency};

use crate::base::counting::count;

/// Limit of the rows of the table of RESP commands, by whose places calls are counted.
pub(crate) const ROWS_MAX: usize = 256;

/// Of one verb. Two verbs share no cache line.
#[derive(Default)]
#[repr(align(128))]
struct OfVerb {
    /// Allocated at the first call: most verbs are never called.
    times: OnceLock<Box<Histogram>>,
    took_ns: AtomicU64,
    rejected: AtomicU64,
    failed: AtomicU64,
}

/// What is known of one verb.
pub(crate) struct Known {
    pub(crate) times: Latency,
    pub(crate) took: Duration,
    /// Commands that were refused before they ran.
    pub(crate) rejected: u64,
    /// Commands that ran and answered an error.
    pub(crate) failed: u64,
}

/// Of all verbs.
pub(crate) struct Calls([OfVerb; ROWS_MAX]);

impl Default for Calls {
    fn default() -> Calls {
        Calls(std::array::from_fn(|_| OfVerb::default()))
    }
}

impl Calls {
    /// So many commands took so long together.
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

    /// What is known of a verb, if anything was ever asked of it.
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

/// Commands that ended and are not counted yet, and the time that passed for them.
#[derive(Default)]
pub(crate) struct Tally {
    ended: Vec<(usize, u64)>,
    took: Duration,
}

impl Tally {
    pub(crate) fn ended(&mut self, verb: usize, calls: u64) {
        match self.ended.last_mut() {
            Some((last, counted)) if *last == verb => *counted += calls,
            _ => self.ended.push((verb, calls)),
        }
    }

    /// Takes the commands of another one, whose time is not known by itself.
    pub(crate) fn absorb(&mut self, other: &mut Tally) {
        other.ended.drain(..).for_each(|(verb, ended)| self.ended(verb, ended));
    }

    /// Parts the time over the commands that ended; if none did, it is for those that end next. Returns how many did.
    pub(crate) fn settle(&mut self, took: Duration, calls: &Calls) -> u64 {
        self.took += took;
        let ended = self.ended.iter().map(|(_, ended)| ended).sum();
        if let Some(each) = (self.took.as_nanos() as u64).checked_div(ended) {
            let each = Duration::from_nanos(each);
            for (verb, ended) in self.ended.drain(..) {
                calls.took(verb, ended, each);
            }
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
