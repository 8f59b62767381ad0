//! Finds the slots of a store that hold segments, and the content of those segments.

use esker_log::{
    Census, Entry, FOOTER_BYTES, Follower, Footer, FoundSlot, SegmentScan, SlotEnds, SlotStart, Stream,
    Unsealed, find_in_slots, scan_unsealed,
};

use crate::error::{InspectError, Result};
use crate::store::{StoreView, TierView};
use crate::watch::in_parallel;

/// Number of small reads in flight.
const READERS: usize = 8;

/// The ends of the slots of a tier, and the slots with segments.
pub(crate) struct TierSlots {
    pub(crate) ends: Vec<SlotEnds>,
    pub(crate) found: Vec<FoundSlot>,
}

/// The known content of a segment.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// The segment has a summary.
    Sealed(Footer),
    /// The segment has no summary, or a damaged one: its frames were walked.
    Scanned(SegmentScan),
    /// The segment existed, and none of it is readable.
    Nameless,
}

/// A segment.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// Position of its tier in the store.
    pub(crate) tier: usize,
    pub(crate) slot: u32,
    /// Its number; 0 if unknown.
    pub(crate) number: u64,
    pub(crate) stream: Stream,
    pub(crate) content: Content,
}

impl Segment {
    /// Returns true if it is part of the log of replicated groups, which has no records of keys.
    pub(crate) fn is_log(&self) -> bool {
        self.stream == Stream::GROUP_LOG
    }

    /// Returns the number of records of keys.
    pub(crate) fn records(&self) -> u64 {
        match &self.content {
            _ if self.is_log() => 0,
            Content::Sealed(footer) => footer.entries.into(),
            Content::Scanned(scan) => scan.entries.len() as u64,
            Content::Nameless => 0,
        }
    }

    /// Returns the byte offset of the end of its last frame.
    pub(crate) fn tail(&self) -> u32 {
        match &self.content {
            Content::Sealed(footer) => footer.tail,
            Content::Scanned(scan) => scan.tail,
            Content::Nameless => 0,
        }
    }
}

impl TierView {
    /// Returns the number of slots to examine: those that may be in use, limited by the length of the
    /// device.
    pub(crate) fn slots_there(&self) -> u32 {
        let there =
            self.bytes().saturating_sub(self.superblock.data_offset).div_ceil(self.superblock.segment_bytes);
        u64::from(self.superblock.used_slots).min(there) as u32
    }

    /// Reads the starts and ends of all slots. An unreadable end is treated like a damaged one.
    pub(crate) fn slots(&self) -> TierSlots {
        let borders: Vec<u32> = (0..=self.slots_there()).collect();
        let look = |found: &mut Vec<(u32, Border)>, slot: &u32| found.push((*slot, self.border(*slot)));
        let mut read: Vec<_> = in_parallel(&borders, READERS, Vec::new, look).into_iter().flatten().collect();
        read.sort_by_key(|(slot, _)| *slot);
        let secret = self.superblock.secret();
        let out_of_use: Vec<u32> = self.superblock.slots_out_of_use(self.slots_there()).collect();
        let ends = read.windows(2).map(|borders| {
            let ((slot, front), (_, behind)) = (&borders[0], &borders[1]);
            match out_of_use.contains(slot) {
                true => SlotEnds::OUT_OF_USE,
                false => SlotEnds::parse(&front.start, &behind.end, &secret, *slot, self.shape.segment_bytes),
            }
        });
        let ends: Vec<SlotEnds> = ends.collect();
        let found = find_in_slots(&ends, &self.superblock);
        TierSlots { ends, found }
    }

    /// Returns true if the segment is no longer in the slot: the slot was freed, and perhaps reused.
    pub(crate) fn has_left(&self, slot: u32, segment: u64) -> bool {
        let (front, behind) = (self.border(slot), self.border(slot + 1));
        let secret = self.superblock.secret();
        let ends = SlotEnds::parse(&front.start, &behind.end, &secret, slot, self.shape.segment_bytes);
        match ends.start {
            SlotStart::Frame(first) => first.segment != segment,
            SlotStart::Free(_) => true,
            _ => ends.footer.is_some_and(|footer| footer.segment != segment),
        }
    }

    /// Reads the end of the previous slot and the start of this one.
    fn border(&self, slot: u32) -> Border {
        let at = self.slot_offset(slot);
        let mut border = Border { end: UNREAD, start: UNREAD };
        if let Ok(both) = self.read_bytes(at - FOOTER_BYTES as u64, 2 * FOOTER_BYTES) {
            border.end.copy_from_slice(&both[..FOOTER_BYTES]);
            border.start.copy_from_slice(&both[FOOTER_BYTES..]);
            return border;
        }
        if let Ok(end) = self.read_bytes(at - FOOTER_BYTES as u64, FOOTER_BYTES) {
            border.end.copy_from_slice(&end);
        }
        if let Ok(start) = self.read_bytes(at, FOOTER_BYTES) {
            border.start.copy_from_slice(&start);
        }
        border
    }
}

/// The bytes on both sides of the start of a slot.
struct Border {
    end: [u8; FOOTER_BYTES],
    start: [u8; FOOTER_BYTES],
}

/// Filler for unreadable bytes: neither zeros nor anything that is ever written.
const UNREAD: [u8; FOOTER_BYTES] = [0xee; FOOTER_BYTES];

impl StoreView {
    /// Reads the ends of the slots of all tiers.
    pub(crate) fn slots(&self) -> Vec<TierSlots> {
        self.tiers.iter().map(TierView::slots).collect()
    }

    /// Returns every segment, ordered by tier and slot. Segments without a summary are read whole.
    pub(crate) fn segments(&self, slots: &[TierSlots]) -> Vec<Segment> {
        let followers: Vec<Follower> = slots.iter().flat_map(|s| &s.found).filter_map(Follower::of).collect();
        let mut segments = Vec::new();
        for (tier, of_tier) in slots.iter().enumerate() {
            for found in &of_tier.found {
                segments.extend(self.segment(tier, found, &followers));
            }
        }
        segments
    }

    fn segment(&self, tier: usize, found: &FoundSlot, followers: &[Follower]) -> Option<Segment> {
        let segment =
            |number, stream, content| Some(Segment { tier, slot: found.slot, number, stream, content });
        if let Some(footer) = found.footer {
            return segment(footer.segment, footer.stream, Content::Sealed(footer));
        }
        let view = &self.tiers[tier];
        let bytes = view.read_whole(found.slot);
        match scan_unsealed(found, followers, &bytes, &self.secret, view.shape) {
            Unsealed::Segment(_, _, scan) if scan.entries.is_empty() && scan.lost.is_empty() => None,
            Unsealed::Segment(number, stream, scan) => segment(number, stream, Content::Scanned(scan)),
            Unsealed::Nameless => segment(0, Stream::LANE, Content::Nameless),
            Unsealed::Foreign => None,
        }
    }

    /// Returns true if keys that cannot be named are lost, so that no version is certain to be the newest
    /// of its key.
    pub(crate) fn is_in_doubt(&self, segments: &[Segment]) -> bool {
        let lost = |segment: &Segment| match &segment.content {
            _ if segment.is_log() => false,
            Content::Sealed(_) => false,
            Content::Scanned(scan) => !scan.lost.is_empty(),
            Content::Nameless => true,
        };
        segments.iter().any(lost)
            || (0..self.tiers.len()).any(|tier| self.census_differs(tier, segments).is_some())
    }

    /// Returns the number of segments that a tier had when it was closed and the number found now, if the
    /// census does not match.
    pub(crate) fn census_differs(&self, tier: usize, segments: &[Segment]) -> Option<(u32, u32)> {
        let expected = self.tiers[tier].superblock.census?;
        let mut found = Census::default();
        for segment in segments.iter().filter(|segment| segment.tier == tier && !segment.is_log()) {
            found.count(&self.secret, segment.number, segment.slot, segment.tail());
        }
        (found != expected).then_some((expected.segments, found.segments))
    }

    /// Passes every entry of a segment of keys to `see`, in the order of offsets. Returns false, and passes
    /// nothing, if the summary cannot be read or is damaged.
    pub(crate) fn entries(&self, segment: &Segment, mut see: impl FnMut(Entry)) -> bool {
        match &segment.content {
            _ if segment.is_log() => true,
            Content::Sealed(footer) => {
                let tier = &self.tiers[segment.tier];
                let summary = tier.read(segment.slot, footer.start, footer.entry_bytes);
                summary.is_ok_and(|summary| footer.for_each_entry(&summary, &self.secret, see).is_some())
            }
            Content::Scanned(scan) => {
                scan.entries.iter().for_each(|entry| see(*entry));
                true
            }
            Content::Nameless => true,
        }
    }

    /// Finds a segment by its number.
    pub(crate) fn find_segment(&self, number: u64) -> Result<Segment> {
        let slots = self.slots();
        let followers: Vec<Follower> = slots.iter().flat_map(|s| &s.found).filter_map(Follower::of).collect();
        let mut there = Vec::new();
        for (tier, of_tier) in slots.iter().enumerate() {
            for found in &of_tier.found {
                let named = found.first.map(|f| f.segment).or(found.footer.map(|f| f.segment));
                there.extend(named);
                if named == Some(number)
                    && let Some(segment) = self.segment(tier, found, &followers)
                {
                    return Ok(segment);
                }
            }
        }
        let (lowest, highest) = (there.iter().min(), there.iter().max());
        Err(InspectError::call(match (lowest, highest) {
            (Some(lowest), Some(highest)) => format!(
                "there is no segment {number}; the store has {} segments, numbered from {lowest} to {highest} (see esker segments)",
                there.len()
            ),
            _ => format!("there is no segment {number}: the store holds none"),
        }))
    }
}

/// Returns true if the ends of a slot say without contradiction that it is free.
pub(crate) fn is_plainly_free(ends: &SlotEnds) -> bool {
    match (ends.start, ends.marker) {
        (SlotStart::Free(freed), SlotStart::Free(at_end)) => freed == at_end && ends.footer.is_none(),
        // Interrupted while it was freed.
        (SlotStart::Frame(first), SlotStart::Free(Some(freed))) => first.segment == freed,
        _ => false,
    }
}
