//! Types shared by the steps of recovery.

use std::sync::Arc;

use esker_device::Runtime;
use esker_index::Indexes;
use esker_log::{
    Cleared, Entry, Footer, FoundSlot, Packing, Secret, SegmentScan, Stream, Superblock, Tier as TierName,
};

use crate::base::error::Error;
use crate::catalog::expansions::Expansions;
use crate::open::progress::Progress;
use crate::segments::tier::Tier;

/// A segment without a summary, to be sealed.
pub(crate) struct Unsealed {
    pub(crate) tier: TierName,
    pub(crate) slot: u32,
    pub(crate) segment: u64,
    pub(crate) stream: Stream,
    pub(crate) entries: Vec<Entry>,
    pub(crate) tail: u32,
}

/// A staged record that no device has.
#[derive(Clone, Copy)]
pub(crate) struct StagedRecord {
    pub(crate) piece: usize,
    pub(crate) entry: Entry,
    /// True if it is the newest version of its key.
    pub(crate) is_newest: bool,
}

/// A free slot that lacks one of its two markers, or whose content was given up.
pub(crate) struct Unmarked {
    pub(crate) tier: TierName,
    pub(crate) slot: u32,
    /// Number of the last segment in the slot.
    pub(crate) segment: u64,
}

/// Inputs of recovery.
pub(crate) struct RecoveryContext<'a> {
    pub(crate) runtime: &'a Arc<dyn Runtime>,
    pub(crate) tiers: Vec<(&'a Arc<Tier>, &'a Superblock)>,
    pub(crate) secret: Secret,
    pub(crate) packing: Packing,
    pub(crate) index: &'a Arc<Indexes>,
    pub(crate) expansions: &'a Arc<Expansions>,
    pub(crate) cleared: Cleared,
    /// See [`Clock::known_ms`](crate::catalog::clock::Clock::known_ms).
    pub(crate) known_ms: u64,
    pub(crate) accept_loss: bool,
    pub(crate) progress: Progress,
    /// Memory for entries, summaries in flight and the index, in bytes.
    pub(crate) memory_bytes: u64,
}

/// Source of a segment's entries: the summary, or a scan.
pub(super) enum Content {
    Sealed(Footer),
    Scanned(SegmentScan, Stream),
}

/// A segment that was found.
pub(super) struct Segment {
    pub(super) tier: TierName,
    pub(super) slot: u32,
    pub(super) segment: u64,
    pub(super) opened_at: u64,
    pub(super) content: Content,
}

impl Segment {
    pub(super) fn entries(&self) -> u64 {
        match &self.content {
            Content::Sealed(footer) => u64::from(footer.entries),
            Content::Scanned(scan, _) => scan.entries.len() as u64,
        }
    }

    /// Returns true if all records of the segment are lost.
    pub(super) fn is_lost(&self) -> bool {
        matches!(&self.content, Content::Scanned(scan, _) if scan.entries.is_empty())
    }
}

/// A slot that holds a segment, or may hold one.
pub(super) struct Found {
    pub(super) tier: TierName,
    pub(super) in_slot: FoundSlot,
}

impl RecoveryContext<'_> {
    /// Frees a slot that turned out to hold no segment. A slot beyond the limit does not belong to the tier.
    pub(super) fn give_back(&self, tier: TierName, slot: u32) {
        let tier = self.tier(tier);
        if slot < tier.slots_total() {
            tier.give_back_slot(slot);
        }
    }

    pub(super) fn tier(&self, name: TierName) -> &Arc<Tier> {
        let found = self.tiers.iter().find(|(tier, _)| tier.name() == name);
        found.expect("segments lie on tiers of the store").0
    }
}

pub(super) fn no_longer_verifies(segment: &Segment) -> Error {
    Error::Corrupt {
        key: None,
        segment: segment.segment,
        offset: 0,
        what: "a summary that verified a moment ago no longer does".into(),
    }
}
