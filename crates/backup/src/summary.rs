//! What is told of a backup.

use std::fmt;
use std::ops::Range;

use esker_log::Tier;

/// What a backup is, in short.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Its number, which [`restore`](crate::restore) takes.
    pub id: u64,
    /// When it was taken, in milliseconds since the Unix epoch.
    pub taken_at_ms: u64,
    /// How many keys the store had, those that had expired and were not collected yet among them.
    pub keys: u64,
    /// How many segments.
    pub segments: usize,
    /// Bytes of the segments, most of which it may share with other backups.
    pub bytes: u64,
    /// What the device of the store did not give when it was taken. Records there are damaged
    /// in what is restored of it; those that were written last before it was taken may be missing. Where nothing says which keys
    /// were there, what is restored opens with `accept_loss` only.
    pub unread: Vec<Unread>,
}

/// Bytes of a store that could not be read when it was backed up: the backup has zeros there.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unread {
    /// Which tier the segment lay on.
    pub tier: Tier,
    /// Number of the segment.
    pub segment: u64,
    /// Which of its bytes.
    pub bytes: Range<u32>,
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { start, end } = self.bytes;
        write!(f, "bytes {start} to {end} of segment {} of the {} tier", self.segment, self.tier.name())
    }
}
