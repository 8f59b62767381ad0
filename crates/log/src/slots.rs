//! Content of a tier's slots, determined from the first and the last bytes of each.
//!
//! A slot is free if its start says so, or if it was being freed. Damage and misdirected writes leave slots whose start
//! and end contradict each other, or other slots: those may hold a segment, so recovery must examine them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use esker_device::{SlotPlace, StripeMap};
use esker_seeded_bugs::{Bug, planted};

use crate::checksum::Secret;
use crate::frame::{FrameHeader, SlotStart, slot_start};
use crate::summary::Footer;
use crate::superblock::Superblock;

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

/// Maximum number of slots between the last known segment and one that may be torn: of open and spare segments, and one that is
/// out of use. Segments of a memtable do not count, because they have nothing on the device.
const TORN_WITHIN: u32 = 14 + 1;

/// Returns the slots of a tier that hold a segment or may hold one; all others are free.
pub fn find_in_slots(slots: &[SlotEnds], superblock: &Superblock) -> Vec<FoundSlot> {
    let mut finder = SlotFinder::new(superblock);
    (0..).zip(slots).for_each(|(slot, ends)| finder.see(slot, ends));
    if finder.needs_second_look() {
        (0..).zip(slots).for_each(|(slot, ends)| finder.see_again(slot, ends));
    }
    finder.finish()
}

/// Finds the segments among the slots of a tier, seen one after the other in ascending order. Remembers only slots that hold a
/// segment or contradict other slots.
///
/// 1. [`see`](Self::see) every slot.
/// 2. If [`needs_second_look`](Self::needs_second_look), which is so only after damage, [`see_again`](Self::see_again) every slot.
/// 3. [`finish`](Self::finish).
#[derive(Debug)]
pub struct SlotFinder {
    /// True if the store was closed cleanly, so that a slot without any trace of a segment holds none.
    is_closed: bool,
    /// The devices, if there are several.
    devices: Option<Devices>,
    found: BTreeMap<u32, FoundSlot>,
    /// Slots whose content depends on other slots.
    doubtful: BTreeMap<u32, SlotEnds>,
    /// Slots that are blank.
    blank: Vec<Range<u32>>,
    /// For each device the number of the first slot after the last one that is not blank.
    known_ends: BTreeMap<usize, u32>,
    /// Slots that begin with data meant for another slot: segment, and that slot.
    strays: BTreeMap<u32, (u64, u32)>,
    /// Segments in doubtful footers, and those of them that the start of a slot names.
    footers: BTreeSet<u64>,
    known: BTreeSet<u64>,
    /// Slots for which the strays were meant.
    meant: BTreeMap<u32, SlotEnds>,
}

/// Several devices that the slots lie on.
#[derive(Debug)]
struct Devices {
    map: StripeMap,
    /// Number of slots of each that may have been written to.
    used: Vec<u32>,
}

impl SlotFinder {
    /// Begins with the slots of a tier.
    pub fn new(superblock: &Superblock) -> SlotFinder {
        let used = superblock.devices.iter().map(|device| device.used_slots);
        SlotFinder {
            is_closed: superblock.census.is_some(),
            devices: superblock.stripe_map().map(|map| Devices { map, used: used.collect() }),
            found: BTreeMap::new(),
            doubtful: BTreeMap::new(),
            blank: Vec::new(),
            known_ends: BTreeMap::new(),
            strays: BTreeMap::new(),
            footers: BTreeSet::new(),
            known: BTreeSet::new(),
            meant: BTreeMap::new(),
        }
    }

    /// Returns the place of a slot; `None` if it was never written to.
    fn place(&self, slot: u32) -> Option<SlotPlace> {
        match self.devices.as_ref().filter(|_| !planted(Bug::DevicesTakenForOne)) {
            None => Some(SlotPlace { member: 0, local: slot }),
            Some(Devices { map, used }) => {
                map.place(slot).filter(|place| used.get(place.member).is_some_and(|used| place.local < *used))
            }
        }
    }

    /// Adds the ends of the next slot.
    pub fn see(&mut self, slot: u32, ends: &SlotEnds) {
        let Some(SlotPlace { member, local }) = self.place(slot) else { return };
        // It was never taken, so slots below it may never have been taken either.
        if *ends == SlotEnds::OUT_OF_USE {
            return;
        }
        if ends.is_blank() {
            match self.blank.last_mut().filter(|last| last.end == slot) {
                Some(last) => last.end = slot + 1,
                None => self.blank.push(slot..slot + 1),
            }
            return;
        }
        self.known_ends.insert(member, local + 1);
        if let SlotStart::Stray { segment, slot: meant } = ends.start {
            self.strays.insert(slot, (segment, meant));
        }
        match ends.start {
            SlotStart::Frame(_) => self.judge(slot, ends, false),
            SlotStart::Free(_) if ends.footer.is_none() && !ends.has_lost_start() => {}
            SlotStart::Free(_) | SlotStart::Stray { .. } | SlotStart::Unknown => {
                self.footers.extend(ends.footer.map(|footer| footer.segment));
                self.doubtful.insert(slot, *ends);
            }
        }
    }

    /// Returns true if slots contradict each other, so that all of them have to be seen again.
    pub fn needs_second_look(&self) -> bool {
        !self.strays.is_empty() || !self.footers.is_empty()
    }

    /// Adds the ends of a slot for the second time, in any order.
    pub fn see_again(&mut self, slot: u32, ends: &SlotEnds) {
        self.known.extend(ends.segment_at_start().filter(|segment| self.footers.contains(segment)));
        if self.strays.values().any(|(_, meant)| *meant == slot) {
            self.meant.insert(slot, *ends);
        }
    }

    /// Returns the slots that hold a segment or may hold one, in ascending order; all others are free.
    pub fn finish(mut self) -> Vec<FoundSlot> {
        // Slots whose start may be lost because a write to the start of one slot went to another: the slot in which such a
        // write was found, and its intended slot, unless that one holds something newer.
        let mut beheaded: BTreeSet<u32> = self.strays.keys().copied().collect();
        for (segment, slot) in self.strays.values() {
            beheaded.extend(self.meant.get(slot).filter(|ends| ends.here() < *segment).map(|_| *slot));
        }
        let mut doubtful = std::mem::take(&mut self.doubtful);
        self.meant.retain(|slot, _| beheaded.contains(slot));
        doubtful.append(&mut self.meant);
        for (slot, ends) in doubtful {
            self.judge(slot, &ends, beheaded.contains(&slot));
        }
        // Never-used slots of a device are taken in order, so no segment whose first frame is missing and that begins with zeros
        // lies far beyond the last slot of its device with known content.
        let is_near = |slot: &u32| {
            let known_end = |member| self.known_ends.get(&member).copied().unwrap_or(0);
            self.place(*slot)
                .is_some_and(|SlotPlace { member, local }| local < known_end(member) + TORN_WITHIN)
        };
        let blank = self.blank.iter().filter(|_| !self.is_closed).cloned().flatten();
        for slot in blank.filter(is_near).collect::<Vec<u32>>() {
            self.found.entry(slot).or_insert(FoundSlot { may_be_torn: true, ..FoundSlot::nothing(slot) });
        }
        self.found.into_values().collect()
    }

    /// Adds a slot to the result if it holds a segment or may hold one.
    fn judge(&mut self, slot: u32, ends: &SlotEnds, beheaded: bool) {
        let look = beheaded || ends.has_lost_start();
        let Some((first, footer)) = ends.holds(&self.known, look) else { return };
        let found = FoundSlot {
            slot,
            first,
            footer,
            after: ends.freed_at_end().or(ends.freed_at_start()).unwrap_or(0),
            contradicted: first.is_some() && ends.is_end_of_another(),
            beheaded,
            may_be_torn: ends.is_blank() || !self.is_closed && ends.is_unsealed_and_unknown(),
        };
        self.found.insert(slot, found);
    }
}

impl FoundSlot {
    fn nothing(slot: u32) -> FoundSlot {
        FoundSlot {
            slot,
            first: None,
            footer: None,
            after: 0,
            contradicted: false,
            beheaded: false,
            may_be_torn: false,
        }
    }
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
