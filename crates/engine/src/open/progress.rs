//! Progress and result of an opening.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Progress of the opening of a store, for its caller to watch. All clones refer to the same opening; pass one to
/// [`Options::progress`](crate::Options::progress).
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<AtomicU32>);

impl Progress {
    /// Returns the percentage of segment summaries read so far. Reading them is most of the work if the store holds
    /// much data.
    pub fn percent(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the share of the summaries that was read, from 0 to 1.
    pub(crate) fn set(&self, part: f64) {
        self.0.store((100.0 * part.clamp(0.0, 1.0)) as u32, Ordering::Relaxed);
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
}
