//! What the steps of recovery share.

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

/// A record of the staging file that no device has.
#[derive(Clone, Copy)]
pub(crate) struct StagedRecord {
    pub(crate) piece: usize,
    pub(crate) entry: Entry,
    /// It is the newest of its key.
    pub(crate) is_newest: bool,
}

/// A free slot of which not both ends say so, or whose content was given up.
pub(crate) struct Unmarked {
    pub(crate) tier: TierName,
    pub(crate) slot: u32,
    /// The last segment that was there.
    pub(crate) segment: u64,
}

/// What recovery works with.
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
    /// Memory for entries, summaries that are being read, and the index.
    pub(crate) memory_bytes: u64,
}

/// What is known of a segment's records.
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

    /// All that was in it is lost.
    pub(super) fn is_lost(&self) -> bool {
        matches!(&self.content, Content::Scanned(scan, _) if scan.entries.is_empty())
    }
}

/// A slot of a tier that holds a segment, or may hold one.
pub(super) struct Found {
    pub(super) tier: TierName,
    pub(super) in_slot: FoundSlot,
}

impl RecoveryContext<'_> {
    /// There is no segment in a slot that may have held one. One behind the limit is none of the tier's.
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
