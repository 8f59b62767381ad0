//! What the slots of a tier hold, told by the first and the last bytes of each.
//!
//! A slot is free if its start says so, or if it was being freed. Damage, and writes that went astray, leave slots whose
//! start and end contradict each other, or other slots: those may hold a segment, and whoever reads the store has to look.

use std::collections::BTreeSet;

use crate::checksum::Secret;
use crate::frame::{FrameHeader, SlotStart, slot_start};
use crate::summary::Footer;

/// What the start and the end of a slot say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotEnds {
    /// The start.
    pub start: SlotStart,
    /// The footer of a summary at its end.
    pub footer: Option<Footer>,
    /// What lies where a freed slot has its second marker.
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
    /// Frames up to this segment number are leftovers of what was freed.
    pub after: u64,
    /// Its start and its end are of different segments: one of them was written to the wrong place.
    pub contradicted: bool,
    /// What it began with may be lost: the write went to another slot, or another slot's went here.
    pub beheaded: bool,
    /// Its start tells of nothing, or of nothing that can be read, and no summary was written behind it: its first frame may
    /// be one that a power cut took or tore, and not damaged.
    pub may_be_torn: bool,
}

/// Segments that are open at a time, and spare, at most. Those that records wait in to be overwritten do not count, which have
/// nothing on the device.
const OPEN_AT_MOST: usize = 12;

/// The slots of a tier that hold segments or may hold one; all others are free. `is_closed`: the store was, so that nothing
/// is missing of which nothing is left.
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
    /// From the first and the last [`FOOTER_BYTES`](crate::FOOTER_BYTES) of a slot.
    pub fn parse(start: &[u8], end: &[u8], secret: &Secret, slot: u32, segment_bytes: u32) -> SlotEnds {
        SlotEnds {
            start: slot_start(start, secret, slot),
            footer: Footer::parse(end, secret, segment_bytes),
            marker: slot_start(end, secret, slot),
        }
    }

    /// The segment that the start tells of, be it that it was freed.
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

    /// The highest number of a segment that was here.
    fn here(&self) -> u64 {
        let at_end = self.freed_at_end().max(self.footer.map(|f| f.segment));
        self.segment_at_start().max(at_end).unwrap_or(0)
    }

    /// The highest number that anything here tells of.
    pub fn highest_segment(&self) -> u64 {
        let stray = |start| if let SlotStart::Stray { segment, .. } = start { segment } else { 0 };
        self.here().max(stray(self.start)).max(stray(self.marker))
    }

    /// The segment that was being freed here: the end says so, and the start still is its own.
    pub fn half_freed(&self) -> Option<u64> {
        let SlotStart::Frame(first) = self.start else { return None };
        self.freed_at_end().filter(|freed| *freed == first.segment)
    }

    /// There is nothing at its start and its end.
    pub fn is_blank(&self) -> bool {
        let nothing = SlotStart::Free(None);
        (self.start, self.marker, self.footer.is_some()) == (nothing, nothing, false)
    }

    /// Its start is no header that can be read, and no summary was begun, before which all frames are durable. No sector has to be
    /// written as a whole.
    fn is_unsealed_and_unknown(&self) -> bool {
        let is_as_before = matches!(self.marker, SlotStart::Free(_)) && self.footer.is_none();
        self.start == SlotStart::Unknown && is_as_before
    }

    /// A slot that was freed has markers at both ends, and they stay until something else is written there. One that was never
    /// used has nothing at either: what is no marker and no summary was brought to the end by damage, as a swap of pages does.
    fn has_lost_start(&self) -> bool {
        let end_is_foreign = self.marker == SlotStart::Unknown && self.footer.is_none();
        self.start == SlotStart::Free(None) && (self.freed_at_end().is_some() || end_is_foreign)
    }

    /// No slot is used again before the end of the segment that was there is gone.
    fn is_end_of_another(&self) -> bool {
        let other = self.footer.is_some_and(|f| Some(f.segment) != self.segment_at_start());
        other || matches!(self.marker, SlotStart::Stray { .. })
    }

    /// The first frame and the footer of the segment that is here, if one is; `known` are those that the starts of slots
    /// tell of. `look`: there may be one, though start and end tell of none.
    fn holds(&self, known: &BTreeSet<u64>, look: bool) -> Option<(Option<FrameHeader>, Option<Footer>)> {
        match self.start {
            // Everything in it that counts was durable elsewhere.
            SlotStart::Frame(_) if self.half_freed().is_some() => None,
            SlotStart::Frame(first) => {
                Some((Some(first), self.footer.filter(|f| f.segment == first.segment)))
            }
            // The footer of a segment that is, or was, elsewhere went astray.
            SlotStart::Free(_) | SlotStart::Stray { .. } | SlotStart::Unknown => {
                let footer = self.footer.filter(|f| !known.contains(&f.segment));
                let SlotStart::Free(freed) = self.start else { return Some((None, footer)) };
                // A start that was lost: the end tells of a segment that came after the one that was freed.
                let footer = footer.filter(|f| freed.is_none_or(|freed| f.segment > freed));
                (footer.is_some() || look).then_some((None, footer))
            }
        }
    }
}

/// The slots that may hold a segment that begins with zeros: one whose first frame is not there. Slots that were never used
/// are taken in their order, so there can be none far behind the last one of which anything is known.
fn may_have_begun(slots: &[SlotEnds]) -> std::ops::Range<u32> {
    let known = slots.iter().rposition(|ends| !ends.is_blank()).map_or(0, |last| last + 1);
    0..(known + OPEN_AT_MOST).min(slots.len()) as u32
}

/// The slots of which the start may be lost, because of writes for the starts of slots that went to others': where such a
/// write lies, and where it should, unless something newer is known of that slot.
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
