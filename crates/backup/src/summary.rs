//! Summaries of backups.

use std::fmt;
use std::ops::Range;

use esker_log::Tier;

/// Summary of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Number, as [`restore`](crate::restore) takes it.
    pub id: u64,
    /// Time of the backup in milliseconds since the Unix epoch.
    pub taken_at_ms: u64,
    /// Number of keys in the store, including expired keys that were not collected yet.
    pub keys: u64,
    /// Number of segments.
    pub segments: usize,
    /// Bytes of the segments, most of which may be shared with other backups.
    pub bytes: u64,
    /// Ranges that the store's device could not read when the backup was taken. Records there are damaged in a restored
    /// store; the most recent writes before the backup may be missing. If it is unknown which keys were there, the
    /// restored store opens only with `accept_loss`.
    pub unread: Vec<Unread>,
}

/// A range of a store that was unreadable during the backup: the backup has zeros there.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unread {
    /// Tier of the segment.
    pub tier: Tier,
    /// Number of the segment.
    pub segment: u64,
    /// Byte range in the segment.
    pub bytes: Range<u32>,
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { start, end } = self.bytes;
        write!(f, "bytes {start} to {end} of segment {} of the {} tier", self.segment, self.tier.name())
    }
}
