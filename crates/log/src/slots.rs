//! Content of a tier's slots, determined from the first and the last bytes of each.
//!
//! A slot is free if its start says so, or if it was being freed. Damage and misdirected writes leave slots whose start
//! and end contradict each other, or other slots: those may hold a segment, so recovery must examine them.

use std::collections::BTreeSet;

use crate::checksum::Secret;
use crate::frame::{FrameHeader, SlotStart, slot_start};
use crate::summary::Footer;

/// Content of the start and the end of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotEnds {
    /// Content of the start.
    pub start: SlotStart,
    /// Footer of a summary at its end.
    pub footer: Option<Footer>,
    /// Content at the position of a freed slot's second marker.
    pub marker: SlotStart,
}

/// A slot that holds a segment, or may hold one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundSlot {
    /// The slot.
    pub slot: u32,
    /// The first frame of the segment, if it is readable.
    pub first: Option<FrameHeader>,
    /// The footer of its summary, if it has one.
    pub footer: Option<Footer>,
    /// Segment number up to which frames in the slot are leftovers of freed segments.
    pub after: u64,
    /// True if start and end belong to different segments: one of them was misdirected.
    pub contradicted: bool,
    /// True if the first frame may be lost: its write went to another slot, or another slot's write came here.
    pub beheaded: bool,
    /// True if the start is empty or unreadable and no summary was written after it: the first frame may have been
    /// lost or torn by a power failure instead of damaged.
    pub may_be_torn: bool,
}

/// Maximum number of open and spare segments at a time. Segments of a memtable do not count, because they have nothing
/// on the device.
const OPEN_AT_MOST: usize = 12;

/// Returns the slots of a tier that hold a segment or may hold one; all others are free. `is_closed`: the store was
/// closed cleanly, so a slot without any trace of a segment holds none.
pub fn find_in_slots(slots: &[SlotEnds], is_closed: bool) -> Vec<FoundSlot> {
    let mut beheaded = beheaded(slots);
    let blank = if is_closed { 0..0 } else { may_have_begun(slots) };
    let known: BTreeSet<u64> = slots.iter().filter_map(SlotEnds::segment_at_start).collect();
    let mut found = Vec::new();
    for (slot, ends) in (0..).zip(slots) {
        let beheaded = beheaded.remove(&slot);
        let look = beheaded || ends.has_lost_start() || blank.contains(&slot) && ends.is_blank();
        let Some((first, footer)) = ends.holds(&known, look) else { continue };
        found.push(FoundSlot {
            slot,
            first,
            footer,
            after: ends.freed_at_end().or(ends.freed_at_start()).unwrap_or(0),
            contradicted: first.is_some() && ends.is_end_of_another(),
            beheaded,
            may_be_torn: ends.is_blank() || !is_closed && ends.is_unsealed_and_unknown(),
        });
    }
    found
}

impl SlotEnds {
    /// Parses the first and the last [`FOOTER_BYTES`](crate::FOOTER_BYTES) of a slot.
    pub fn parse(start: &[u8], end: &[u8], secret: &Secret, slot: u32, segment_bytes: u32) -> SlotEnds {
        SlotEnds {
            start: slot_start(start, secret, slot),
            footer: Footer::parse(end, secret, segment_bytes),
            marker: slot_start(end, secret, slot),
        }
    }

    /// Returns the segment that the start names, even as freed.
    fn segment_at_start(&self) -> Option<u64> {
        match self.start {
            SlotStart::Frame(first) => Some(first.segment),
            SlotStart::Free(freed) => freed,
            SlotStart::Stray { .. } | SlotStart::Unknown => None,
        }
    }

    fn freed_at_start(&self) -> Option<u64> {
        if let SlotStart::Free(freed) = self.start { freed } else { None }
    }

    fn freed_at_end(&self) -> Option<u64> {
        if let SlotStart::Free(freed) = self.marker { freed } else { None }
    }

    /// Returns the highest segment number known to have occupied this slot.
    fn here(&self) -> u64 {
        let at_end = self.freed_at_end().max(self.footer.map(|f| f.segment));
        self.segment_at_start().max(at_end).unwrap_or(0)
    }

    /// Returns the highest segment number found in this slot, misdirected writes included.
    pub fn highest_segment(&self) -> u64 {
        let stray = |start| if let SlotStart::Stray { segment, .. } = start { segment } else { 0 };
        self.here().max(stray(self.start)).max(stray(self.marker))
    }

    /// Returns the segment that was being freed here: the end has its marker, and the start is still its own.
    pub fn half_freed(&self) -> Option<u64> {
        let SlotStart::Frame(first) = self.start else { return None };
        self.freed_at_end().filter(|freed| *freed == first.segment)
    }

    /// True if both start and end are empty.
    pub fn is_blank(&self) -> bool {
        let nothing = SlotStart::Free(None);
        (self.start, self.marker, self.footer.is_some()) == (nothing, nothing, false)
    }

    /// True if the start is unreadable and the end is as it was before the segment (zeros or a free marker): no summary
    /// was begun, which would prove all frames durable. The header may then be torn, because sectors need not be written
    /// atomically.
    fn is_unsealed_and_unknown(&self) -> bool {
        let is_as_before = matches!(self.marker, SlotStart::Free(_)) && self.footer.is_none();
        self.start == SlotStart::Unknown && is_as_before
    }

    /// True if the start is zeros because it was lost: the end has a free marker, or bytes that are neither a marker nor
    /// a footer. A freed slot has markers at both ends, which stay until something else is written there; a slot that was
    /// never used has neither. So foreign bytes at the end were brought there by damage, such as swapped pages.
    fn has_lost_start(&self) -> bool {
        let end_is_foreign = self.marker == SlotStart::Unknown && self.footer.is_none();
        self.start == SlotStart::Free(None) && (self.freed_at_end().is_some() || end_is_foreign)
    }

    /// True if the end belongs to another segment than the start. No slot is reused before the end of its previous
    /// segment is gone.
    fn is_end_of_another(&self) -> bool {
        let other = self.footer.is_some_and(|f| Some(f.segment) != self.segment_at_start());
        other || matches!(self.marker, SlotStart::Stray { .. })
    }

    /// Returns the first frame and the footer of the segment in this slot, if any. `known`: segments that the starts of
    /// slots name. `look`: a segment is possible although start and end show none.
    fn holds(&self, known: &BTreeSet<u64>, look: bool) -> Option<(Option<FrameHeader>, Option<Footer>)> {
        match self.start {
            // Freeing began only after every record that counts was durable elsewhere.
            SlotStart::Frame(_) if self.half_freed().is_some() => None,
            SlotStart::Frame(first) => {
                Some((Some(first), self.footer.filter(|f| f.segment == first.segment)))
            }
            // The footer of a segment that is, or was, elsewhere was misdirected.
            SlotStart::Free(_) | SlotStart::Stray { .. } | SlotStart::Unknown => {
                let footer = self.footer.filter(|f| !known.contains(&f.segment));
                let SlotStart::Free(freed) = self.start else { return Some((None, footer)) };
                // The start was lost if the end names a segment that came after the freed one.
                let footer = footer.filter(|f| freed.is_none_or(|freed| f.segment > freed));
                (footer.is_some() || look).then_some((None, footer))
            }
        }
    }
}

/// Returns the slots that may hold a segment whose first frame is missing and that begins with zeros. Never-used slots
/// are taken in order, so no such slot lies far beyond the last slot with known content.
fn may_have_begun(slots: &[SlotEnds]) -> std::ops::Range<u32> {
    let known = slots.iter().rposition(|ends| !ends.is_blank()).map_or(0, |last| last + 1);
    0..(known + OPEN_AT_MOST).min(slots.len()) as u32
}

/// Returns the slots whose start may be lost because a write to the start of one slot went to another: the slot in
/// which such a write was found, and its intended slot, unless that one holds something newer.
fn beheaded(slots: &[SlotEnds]) -> BTreeSet<u32> {
    let mut beheaded = BTreeSet::new();
    for (at, ends) in (0..).zip(slots) {
        let SlotStart::Stray { segment, slot } = ends.start else { continue };
        beheaded.insert(at);
        if slots.get(slot as usize).is_some_and(|meant| meant.here() < segment) {
            beheaded.insert(slot);
        }
    }
    beheaded
}
