//! Progress and result of an opening.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// RecoveryStep of an opening that may take long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecoveryStep {
    /// Reading the start and the end of each slot.
    #[default]
    Slots,
    /// Reading whole segments that a crash left without a summary.
    Unsealed,
    /// Loading the records that summaries name into the index. Most of the work if the store holds much data.
    Records,
}

/// Progress of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepProgress {
    /// The step.
    pub step: RecoveryStep,
    /// Number of slots, segments or records of the step.
    pub all: u64,
    /// Percentage that was done.
    pub percent: u32,
    /// Estimated time until the step ends, extrapolated from its duration so far; `None` while unknown.
    pub remaining: Option<Duration>,
}

/// Progress of the opening of a store, for its caller to watch. All clones refer to the same opening; pass one to
/// [`Options::progress`](crate::Options::progress).
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Noted>);

#[derive(Debug, Default)]
struct Noted {
    step: AtomicU32,
    all: AtomicU64,
    percent: AtomicU32,
    /// Start of the step and time of the last note, in milliseconds by the runtime's clock.
    began_ms: AtomicU64,
    noted_ms: AtomicU64,
}

impl Progress {
    /// Returns the percentage of the records that was loaded so far.
    pub fn percent(&self) -> u32 {
        let at = self.step();
        if at.step == RecoveryStep::Records { at.percent } else { 0 }
    }

    /// Returns the step that the opening has reached, and the progress of that step.
    pub fn step(&self) -> StepProgress {
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let percent = self.0.percent.load(Ordering::Relaxed);
        let took_ms = load(&self.0.noted_ms).saturating_sub(load(&self.0.began_ms));
        let left_ms = (took_ms * u64::from(100 - percent.min(100))).checked_div(u64::from(percent));
        StepProgress {
            step: match self.0.step.load(Ordering::Acquire) {
                0 => RecoveryStep::Slots,
                1 => RecoveryStep::Unsealed,
                _ => RecoveryStep::Records,
            },
            all: load(&self.0.all),
            percent,
            remaining: left_ms.map(Duration::from_millis),
        }
    }

    /// Begins a step over `all` slots, segments or records.
    pub(crate) fn begin(&self, step: RecoveryStep, all: u64, now: Duration) {
        let now_ms = now.as_millis() as u64;
        self.0.percent.store(0, Ordering::Relaxed);
        self.0.all.store(all, Ordering::Relaxed);
        self.0.began_ms.store(now_ms, Ordering::Relaxed);
        self.0.noted_ms.store(now_ms, Ordering::Relaxed);
        self.0.step.store(step as u32, Ordering::Release);
    }

    /// Sets the part of the step that was done, from 0 to 1. Returns its progress if the last whole second since its start was
    /// not noted yet, for the log.
    pub(crate) fn set(&self, part: f64, now: Duration) -> Option<StepProgress> {
        let now_ms = now.as_millis() as u64;
        self.0.percent.store((100.0 * part.clamp(0.0, 1.0)) as u32, Ordering::Relaxed);
        let before_ms = self.0.noted_ms.swap(now_ms, Ordering::Relaxed);
        let second = |at_ms: u64| at_ms.saturating_sub(self.0.began_ms.load(Ordering::Relaxed)) / 1000;
        (second(now_ms) > second(before_ms)).then(|| self.step())
    }
}

/// Result of recovery when the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// Keys found.
    pub keys: u64,
    /// Segments found.
    pub segments: u64,
    /// Bytes read of segment starts, summaries and unsealed segments.
    pub metadata_bytes: u64,
    /// Duration of the opening.
    pub duration: Duration,
    /// True if [`Options::accept_loss`](crate::Options::accept_loss) was set: records that were acknowledged may be lost.
    pub accepts_loss: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_time_is_extrapolated_from_the_step() {
        let (progress, seconds) = (Progress::default(), Duration::from_secs);
        progress.begin(RecoveryStep::Slots, 1000, seconds(5));
        assert_eq!(progress.step().remaining, None);
        assert!(progress.set(0.25, seconds(8)).is_some(), "three seconds have passed");
        let at = progress.step();
        assert_eq!((at.percent, at.all, at.remaining), (25, 1000, Some(seconds(9))));
        assert_eq!(progress.set(0.3, seconds(8)), None, "this second is in the log");
        assert_eq!(progress.percent(), 0, "no record was loaded");
        progress.begin(RecoveryStep::Records, 7, seconds(20));
        assert_eq!(
            progress.step(),
            StepProgress { step: RecoveryStep::Records, all: 7, ..StepProgress::default() }
        );
        progress.set(0.5, seconds(21));
        assert_eq!((progress.percent(), progress.step().remaining), (50, Some(seconds(1))));
    }
}
