//! Which slots of a store hold segments, and what is in those.

use esker_log::{
    Entry, FOOTER_BYTES, Follower, Footer, FoundSlot, SegmentScan, SlotEnds, SlotStart, Stream, Unsealed,
    find_in_slots, scan_unsealed,
};
use serde::Serialize;

use crate::error::{InspectError, Result};
use crate::store::{Part, StoreView, TierView};
use crate::watch::in_parallel;

/// Small reads at a time.
const READERS: usize = 8;

/// What the slots of a tier say.
pub(crate) struct TierSlots {
    pub(crate) ends: Vec<SlotEnds>,
    pub(crate) found: Vec<FoundSlot>,
}

/// What is known of the records of a segment.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// It has a summary.
    Sealed(Footer),
    /// It has none, or one that is damaged: its frames were walked.
    Scanned(SegmentScan),
    /// It was there, and nothing of it can be read.
    Nameless,
}

/// A segment.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// Position of its tier in the store.
    pub(crate) tier: usize,
    pub(crate) slot: u32,
    /// Its number; 0 if it is not known.
    pub(crate) number: u64,
    pub(crate) stream: Stream,
    pub(crate) content: Content,
}

impl Segment {
    /// How many records it has.
    pub(crate) fn records(&self) -> u64 {
        match &self.content {
            Content::Sealed(footer) => footer.entries.into(),
            Content::Scanned(scan) => scan.entries.len() as u64,
            Content::Nameless => 0,
        }
    }

    /// Where its last frame ends.
    pub(crate) fn tail(&self) -> u32 {
        match &self.content {
            Content::Sealed(footer) => footer.tail,
            Content::Scanned(scan) => scan.tail,
            Content::Nameless => 0,
        }
    }
}

/// A flow of records, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Puts as they come; where they are told apart, the short-lived ones.
    Lane,
    /// Large values that went straight to the capacity tier.
    Large,
    /// Puts that are expected to last.
    LongLived,
    /// Destaged records that are expected to live briefly.
    Destaged,
    /// Collected out of segments of short-lived records.
    CollectedShortLived,
    /// Collected records, the youngest.
    CollectedYoung,
    /// Collected records of middle age.
    CollectedMiddle,
    /// Collected records, the oldest.
    CollectedOld,
    /// Of a flow that this version does not know.
    Other,
}

impl Class {
    /// Every class, in the order of streams.
    pub const ALL: [Class; 9] = [
        Class::Lane,
        Class::Large,
        Class::LongLived,
        Class::Destaged,
        Class::CollectedShortLived,
        Class::CollectedYoung,
        Class::CollectedMiddle,
        Class::CollectedOld,
        Class::Other,
    ];

    /// Of a stream.
    pub fn of(stream: Stream) -> Class {
        Class::ALL[(stream.0 as usize).min(8)]
    }

    /// As the statistics call it.
    pub fn name(self) -> &'static str {
        match self {
            Class::Lane => "lane",
            Class::Large => "large",
            Class::LongLived => "long_lived",
            Class::Destaged => "destaged",
            Class::CollectedShortLived => "collected_short_lived",
            Class::CollectedYoung => "collected_young",
            Class::CollectedMiddle => "collected_middle",
            Class::CollectedOld => "collected_old",
            Class::Other => "other",
        }
    }
}

impl TierView {
    /// How many slots there are to look at: those that may be in use, as far as the device reaches.
    pub(crate) fn slots_there(&self) -> u32 {
        let there =
            self.bytes().saturating_sub(self.superblock.data_offset).div_ceil(self.superblock.segment_bytes);
        u64::from(self.superblock.used_slots).min(there) as u32
    }

    /// The starts and ends of all slots.
    pub(crate) fn slots(&self) -> Result<TierSlots> {
        let count = self.slots_there();
        let borders: Vec<u32> = (0..=count).collect();
        let look =
            |found: &mut Vec<(u32, Result<Part>)>, border: &u32| found.push((*border, self.border(*border)));
        let mut read: Vec<_> = in_parallel(&borders, READERS, Vec::new, look).into_iter().flatten().collect();
        read.sort_by_key(|(border, _)| *border);
        let mut parts = Vec::new();
        for (_, part) in read {
            parts.push(part?);
        }
        let secret = self.superblock.secret();
        let ends = (0..).zip(parts.windows(2)).map(|(slot, borders)| {
            let (start, end) = (&borders[0][FOOTER_BYTES..], &borders[1][..FOOTER_BYTES]);
            SlotEnds::parse(start, end, &secret, slot, self.shape.segment_bytes)
        });
        let ends: Vec<SlotEnds> = ends.collect();
        let found = find_in_slots(&ends, self.superblock.census.is_some());
        Ok(TierSlots { ends, found })
    }

    /// The end of a slot and the start of the next.
    fn border(&self, slot: u32) -> Result<Part> {
        self.read_bytes(self.slot_offset(slot) - FOOTER_BYTES as u64, 2 * FOOTER_BYTES)
    }
}

impl StoreView {
    /// What the slots of all tiers say.
    pub(crate) fn slots(&self) -> Result<Vec<TierSlots>> {
        self.tiers.iter().map(TierView::slots).collect()
    }

    /// Every segment, in the order of their places. Those without a summary are read whole.
    pub(crate) fn segments(&self, slots: &[TierSlots]) -> Result<Vec<Segment>> {
        let followers: Vec<Follower> = slots.iter().flat_map(|s| &s.found).filter_map(Follower::of).collect();
        let mut segments = Vec::new();
        for (tier, of_tier) in slots.iter().enumerate() {
            for found in &of_tier.found {
                segments.extend(self.segment(tier, found, &followers)?);
            }
        }
        Ok(segments)
    }

    fn segment(&self, tier: usize, found: &FoundSlot, followers: &[Follower]) -> Result<Option<Segment>> {
        let segment =
            |number, stream, content| Some(Segment { tier, slot: found.slot, number, stream, content });
        if let Some(footer) = found.footer {
            return Ok(segment(footer.segment, footer.stream, Content::Sealed(footer)));
        }
        let view = &self.tiers[tier];
        let bytes = view.read(found.slot, 0, view.shape.segment_bytes)?;
        Ok(match scan_unsealed(found, followers, &bytes, &self.secret, view.shape) {
            Unsealed::Segment(_, _, scan) if scan.entries.is_empty() && scan.lost.is_empty() => None,
            Unsealed::Segment(number, stream, scan) => segment(number, stream, Content::Scanned(scan)),
            Unsealed::Nameless => segment(0, Stream::LANE, Content::Nameless),
            Unsealed::Foreign => None,
        })
    }

    /// Shows every entry of a segment, in the order of their offsets. False: its summary is damaged, and nothing was shown.
    pub(crate) fn entries(&self, segment: &Segment, mut see: impl FnMut(Entry)) -> Result<bool> {
        match &segment.content {
            Content::Sealed(footer) => {
                let tier = &self.tiers[segment.tier];
                let summary = tier.read(segment.slot, footer.start, footer.entry_bytes)?;
                Ok(footer.for_each_entry(&summary, &self.secret, see).is_some())
            }
            Content::Scanned(scan) => {
                scan.entries.iter().for_each(|entry| see(*entry));
                Ok(true)
            }
            Content::Nameless => Ok(true),
        }
    }

    /// The segment of a number.
    pub(crate) fn find_segment(&self, number: u64) -> Result<Segment> {
        let slots = self.slots()?;
        let followers: Vec<Follower> = slots.iter().flat_map(|s| &s.found).filter_map(Follower::of).collect();
        let mut there = Vec::new();
        for (tier, of_tier) in slots.iter().enumerate() {
            for found in &of_tier.found {
                let named = found.first.map(|f| f.segment).or(found.footer.map(|f| f.segment));
                there.extend(named);
                if named == Some(number)
                    && let Some(segment) = self.segment(tier, found, &followers)?
                {
                    return Ok(segment);
                }
            }
        }
        let (lowest, highest) = (there.iter().min(), there.iter().max());
        Err(InspectError::call(match (lowest, highest) {
            (Some(lowest), Some(highest)) => format!(
                "there is no segment {number}; the {} that are there are numbered from {lowest} to {highest} (see esker segments)",
                there.len()
            ),
            _ => format!("there is no segment {number}: the store holds none"),
        }))
    }
}

/// What the start of a free slot says.
pub(crate) fn is_plainly_free(ends: &SlotEnds) -> bool {
    match (ends.start, ends.marker) {
        (SlotStart::Free(freed), SlotStart::Free(at_end)) => freed == at_end && ends.footer.is_none(),
        // Cut off while it was freed.
        (SlotStart::Frame(first), SlotStart::Free(Some(freed))) => first.segment == freed,
        _ => false,
    }
}
