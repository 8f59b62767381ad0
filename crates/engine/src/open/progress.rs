//! How far the opening of a store is, for those who wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How far the opening of a store is. All clones tell of the same opening; give one to
/// [`Options::progress`](crate::Options::progress).
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<AtomicU32>);

impl Progress {
    /// How many percent of the segments' summaries were read, which is most of the work where much is stored.
    pub fn percent(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Notes which part of the summaries was read.
    pub(crate) fn set(&self, part: f64) {
        self.0.store((100.0 * part.clamp(0.0, 1.0)) as u32, Ordering::Relaxed);
    }
}

/// What was found when the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// Keys found.
    pub keys: u64,
    /// Segments found.
    pub segments: u64,
    /// Bytes of segment starts, summaries and unsealed segments that had to be read.
    pub metadata_bytes: u64,
    /// How long opening took.
    pub duration: Duration,
}
