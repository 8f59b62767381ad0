//! The manifest of a backup: a JSON file that names everything in it.

use esker_log::{Superblock, Tier};
use serde::{Deserialize, Serialize};

/// The format of manifests that this code writes and reads.
pub(crate) const FORMAT: u32 = 1;

/// A backup.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) format: u32,
    /// 1, 2, 3 … within the directory.
    pub(crate) id: u64,
    /// When it was taken, in milliseconds since the Unix epoch.
    pub(crate) taken_at_ms: u64,
    /// How many keys the store had.
    pub(crate) keys: u64,
    /// The superblock of each tier.
    pub(crate) superblocks: Vec<Superblock>,
    pub(crate) segments: Vec<Segment>,
}

/// A segment of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Segment {
    /// Whether it lies on the fast tier.
    pub(crate) fast: bool,
    pub(crate) slot: u32,
    pub(crate) number: u64,
    /// Below `segments`.
    pub(crate) file: String,
    /// Length of the file.
    pub(crate) bytes: u64,
    /// XXH3-64 of the file.
    pub(crate) check: u64,
    /// The last 64 bytes of a sealed segment, as hexadecimal digits: they have a checksum of all that is in it.
    pub(crate) footer: Option<String>,
}

impl Manifest {
    pub(crate) fn store_id(&self) -> Option<u128> {
        self.superblocks.first().map(|superblock| superblock.store_id)
    }

    /// The superblock of a tier.
    pub(crate) fn superblock(&self, fast: bool) -> Option<&Superblock> {
        self.superblocks.iter().find(|superblock| superblock.fast == fast)
    }

    /// Bytes of all segments.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }
}

/// The name of a segment's file: of a sealed one the same in every backup.
pub(crate) fn file_name(tier: Tier, number: u64, open_in: Option<u64>) -> String {
    match open_in {
        None => format!("{}-{number}.seg", tier.name()),
        Some(id) => format!("{id}-{}-{number}.seg", tier.name()),
    }
}
