//! The slots of a tier: what each holds, and how many hold what.
//!
//! States go `Free → Open → Sealed → Victim → Free`. Only whoever moves a slot on may touch the device there: an open
//! segment's writer, or the one who frees it. How many slots are in each state, and what kinds of records they hold, is
//! counted as they change, so that telling it costs the same however many there are.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

use esker_log::{Entry, Kind, Stream, next_expiry_ms};

use crate::stats::{Classes, States};

/// Nothing in a segment expires.
const NEVER_MS: u64 = u64::MAX;

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum SlotState {
    Free = 0,
    Open = 1,
    Sealed = 2,
    /// Being relocated, or about to be freed.
    Victim = 3,
    /// Holds damage that must stay to be reported.
    Damaged = 4,
}

/// When a segment counts as expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// When noticeably many of its bytes have.
    Noticeable = 0,
    /// When its first record has.
    First = 1,
}

impl Expiry {
    pub(crate) const ALL: [Expiry; 2] = [Expiry::Noticeable, Expiry::First];
}

/// What is kept of a sealed segment's summary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contents {
    /// By [`Expiry`].
    expires_ms: [u64; 2],
    /// No tombstone in it has a higher sequence number.
    tombstones_through: u64,
}

impl Contents {
    pub(crate) fn of(entries: &[Entry]) -> Contents {
        Contents::after(entries, 0)
    }

    /// Of entries of which those that expire by then have been dealt with.
    pub(crate) fn after(entries: &[Entry], now_ms: u64) -> Contents {
        let later = |e: &Entry| e.expires_at_ms.filter(|&at| e.kind == Kind::Put && at > now_ms);
        let noticeable = next_expiry_ms(entries, now_ms).unwrap_or(NEVER_MS);
        let first = entries.iter().filter_map(later).min().unwrap_or(NEVER_MS);
        let tombstones = entries.iter().filter(|e| e.kind == Kind::Tombstone);
        let tombstones_through = tombstones.map(|e| e.sequence).max().unwrap_or(0);
        Contents { expires_ms: [noticeable, first], tombstones_through }
    }

    /// Of a segment of which only the footer was read: when it expires noticeably.
    pub(crate) fn of_footer(expires_ms: Option<u64>) -> Contents {
        let first = if expires_ms.is_some() { 0 } else { NEVER_MS };
        Contents { expires_ms: [expires_ms.unwrap_or(NEVER_MS), first], tombstones_through: u64::MAX }
    }
}

/// One slot of a tier. Readers need only `segment`.
#[derive(Default)]
pub(crate) struct Slot {
    /// Number of the segment in it; 0 when free.
    segment: AtomicU64,
    /// State and class, see [`Label`].
    label: AtomicU32,
    /// Bytes of records that are current, or tombstones still needed. An overwrite of a record whose length is not at
    /// hand subtracts an estimate, so this may be off, below zero too, until the claim is verified.
    live_bytes: AtomicI64,
    /// Bytes of records in it, padding included.
    used_bytes: AtomicU32,
    opened_at: AtomicU64,
    /// Which flow of records it belongs to.
    stream: AtomicU32,
    /// Sequence number that was the highest when its first record came; 0 if it is of an earlier opening.
    began_at: AtomicU64,
    /// Number that the next segment had when it was sealed.
    sealed_at: AtomicU64,
    /// What a record in it is taken to be long that was displaced without being at hand; 0 as long as nothing is known. Must
    /// not change once it is used, or else what a claim subtracted could not be put right.
    record_bytes: AtomicU32,
    /// By [`Expiry`], in milliseconds since the Unix epoch.
    expires_ms: [AtomicU64; 2],
    /// Those of its live bytes that are tombstones.
    tombstone_bytes: AtomicI64,
    /// No tombstone in it has a higher sequence number.
    tombstones_through: AtomicU64,
    /// Live bytes that it had when relocating it was found not to be worth it, and one; 0 if it never was.
    left_alone_at: AtomicI64,
    /// It lies in blocks of a file that were never written.
    blank: AtomicBool,
}

impl Slot {
    pub(crate) fn segment(&self) -> u64 {
        self.segment.load(Ordering::Acquire)
    }

    pub(crate) fn state(&self) -> SlotState {
        Label(self.label.load(Ordering::Acquire)).state()
    }

    /// It is left alone until noticeably more of it is dead.
    pub(crate) fn leave_alone(&self) {
        self.left_alone_at.store(self.live_bytes().max(0) + 1, Ordering::Relaxed);
    }

    /// Whether it was left alone and less than so many bytes of it have died since.
    pub(crate) fn is_left_alone(&self, noticeable_bytes: i64) -> bool {
        let at = self.left_alone_at.load(Ordering::Relaxed);
        at > 0 && self.live_bytes().max(0) + noticeable_bytes.max(1) > at - 1
    }

    fn occupy(&self, segment: u64, opened_at: u64) {
        self.stream.store(Stream::LANE.0, Ordering::Relaxed);
        self.began_at.store(0, Ordering::Relaxed);
        self.sealed_at.store(segment, Ordering::Relaxed);
        self.expires_ms.iter().for_each(|at| at.store(NEVER_MS, Ordering::Relaxed));
        self.tombstones_through.store(u64::MAX, Ordering::Relaxed);
        self.record_bytes.store(0, Ordering::Relaxed);
        self.left_alone_at.store(0, Ordering::Relaxed);
        self.used_bytes.store(0, Ordering::Relaxed);
        self.opened_at.store(opened_at, Ordering::Relaxed);
        self.segment.store(segment, Ordering::Release);
    }

    pub(crate) fn live_bytes(&self) -> i64 {
        self.live_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn add_live(&self, bytes: i64) {
        self.live_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn add_tombstones(&self, bytes: i64) {
        self.tombstone_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn tombstone_bytes(&self) -> i64 {
        self.tombstone_bytes.load(Ordering::Relaxed)
    }

    /// Its tombstones do not count any more; returns what they were.
    pub(crate) fn forget_tombstones(&self) -> i64 {
        self.tombstone_bytes.swap(0, Ordering::Relaxed)
    }

    pub(crate) fn tombstones_through(&self) -> u64 {
        self.tombstones_through.load(Ordering::Relaxed)
    }

    pub(crate) fn set_tombstones_through(&self, sequence: u64) {
        self.tombstones_through.store(sequence, Ordering::Relaxed);
    }

    /// Nothing in it is current any more; returns what was.
    pub(crate) fn forget_live(&self) -> i64 {
        self.live_bytes.swap(0, Ordering::Relaxed)
    }

    /// Whether it was taken in blocks of a file that were never written.
    pub(crate) fn is_blank(&self) -> bool {
        self.blank.load(Ordering::Relaxed)
    }

    pub(crate) fn set_blank(&self, blank: bool) {
        self.blank.store(blank, Ordering::Relaxed);
    }

    /// Says how long its records are, about, if nobody has.
    pub(crate) fn expect_records_of(&self, bytes: u32) {
        let _ = self.record_bytes.compare_exchange(0, bytes, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// How long its records are, about; 0 if nobody knows.
    pub(crate) fn record_bytes(&self) -> u32 {
        self.record_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn stream(&self) -> Stream {
        Stream(self.stream.load(Ordering::Relaxed))
    }

    /// How many records were written since its first one, up to number `sequence`; `None` if nobody knows.
    pub(crate) fn lived(&self, sequence: u64) -> Option<u64> {
        let began = self.began_at.load(Ordering::Relaxed);
        (began > 0).then(|| sequence.saturating_sub(began))
    }

    pub(crate) fn sealed_at(&self) -> u64 {
        self.sealed_at.load(Ordering::Relaxed)
    }

    pub(crate) fn expires_ms(&self, expiry: Expiry) -> Option<u64> {
        Some(self.expires_ms[expiry as usize].load(Ordering::Acquire)).filter(|&at| at != NEVER_MS)
    }

    fn set_expires(&self, contents: &Contents) {
        for expiry in Expiry::ALL {
            self.expires_ms[expiry as usize].store(contents.expires_ms[expiry as usize], Ordering::Release);
        }
    }

    pub(crate) fn used_bytes(&self) -> u32 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn opened_at(&self) -> u64 {
        self.opened_at.load(Ordering::Relaxed)
    }
}

/// A slot's state and the class of its records, in one word: so each change takes it from exactly one count to another.
#[derive(Clone, Copy)]
struct Label(u32);

impl Label {
    fn new(state: SlotState, stream: Stream) -> Label {
        Label(state as u32 | (stream.0.min(OTHER_CLASS) << 8))
    }

    fn state(self) -> SlotState {
        match self.0 & 0xff {
            0 => SlotState::Free,
            1 => SlotState::Open,
            2 => SlotState::Sealed,
            3 => SlotState::Victim,
            _ => SlotState::Damaged,
        }
    }

    /// Position of its class in the counts; `None` for a free slot, which has none.
    fn class(self) -> Option<usize> {
        (self.state() != SlotState::Free).then_some((self.0 >> 8) as usize)
    }
}

/// Class of segments whose stream nobody knows.
const OTHER_CLASS: u32 = 8;

/// The slots of a tier.
pub(crate) struct Slots {
    all: Vec<Slot>,
    states: [AtomicU32; 5],
    classes: [AtomicU32; OTHER_CLASS as usize + 1],
    /// No sealed segment expires before, by [`Expiry`].
    expires_from: [AtomicU64; 2],
}

impl Slots {
    pub(crate) fn new(count: u32) -> Slots {
        let slots = Slots {
            all: (0..count).map(|_| Slot::default()).collect(),
            states: Default::default(),
            classes: Default::default(),
            expires_from: [const { AtomicU64::new(NEVER_MS) }; 2],
        };
        slots.states[SlotState::Free as usize].store(count, Ordering::Relaxed);
        slots
    }

    pub(crate) fn all(&self) -> &[Slot] {
        &self.all
    }

    /// A segment takes a slot, or (number 0) leaves it.
    pub(crate) fn occupy(&self, slot: u32, segment: u64, state: SlotState, opened_at: u64) {
        self.all[slot as usize].occupy(segment, opened_at);
        self.relabel(slot, |_| Some(Label::new(state, Stream::LANE)));
    }

    /// The first record of a slot's segment is coming; `sequence` is the highest number given out before.
    pub(crate) fn begin(&self, slot: u32, stream: Stream, sequence: u64) {
        let at = &self.all[slot as usize];
        at.stream.store(stream.0, Ordering::Relaxed);
        at.began_at.store(sequence, Ordering::Relaxed);
        self.relabel(slot, |label| Some(Label::new(label.state(), stream)));
    }

    /// A segment was sealed when `sealed_at` was the highest segment number, with so many bytes of frames. It may be
    /// relocated from now on.
    pub(crate) fn seal(
        &self,
        slot: u32,
        stream: Stream,
        used_bytes: u32,
        sealed_at: u64,
        contents: &Contents,
    ) {
        let at = &self.all[slot as usize];
        at.stream.store(stream.0, Ordering::Relaxed);
        at.used_bytes.store(used_bytes, Ordering::Relaxed);
        at.sealed_at.store(sealed_at, Ordering::Relaxed);
        at.set_expires(contents);
        at.set_tombstones_through(contents.tombstones_through);
        self.relabel(slot, |_| Some(Label::new(SlotState::Sealed, stream)));
    }

    pub(crate) fn set_state(&self, slot: u32, state: SlotState) {
        let label = Label::new(state, self.all[slot as usize].stream());
        self.relabel(slot, |_| Some(label));
    }

    /// Moves a slot from one state to another; false if it was not in the first.
    pub(crate) fn advance(&self, slot: u32, from: SlotState, to: SlotState) -> bool {
        let stream = self.all[slot as usize].stream();
        self.relabel(slot, |label| (label.state() == from).then(|| Label::new(to, stream)))
    }

    /// Says when the records of a segment expire that have not.
    pub(crate) fn set_expires(&self, slot: u32, contents: &Contents) {
        let at = &self.all[slot as usize];
        at.set_expires(contents);
        self.note_expires(at);
    }

    fn note_expires(&self, slot: &Slot) {
        for (from, at_ms) in self.expires_from.iter().zip(&slot.expires_ms) {
            from.fetch_min(at_ms.load(Ordering::Acquire), Ordering::AcqRel);
        }
    }

    /// Changes a slot's label, and the counts with it; false if `change` would not have it.
    fn relabel(&self, slot: u32, change: impl Fn(Label) -> Option<Label>) -> bool {
        let at = &self.all[slot as usize];
        let changed = at.label.fetch_update(Ordering::AcqRel, Ordering::Acquire, |label| {
            change(Label(label)).map(|label| label.0)
        });
        let Ok(old) = changed.map(Label) else { return false };
        let Some(new) = change(old) else { return false };
        self.states[new.state() as usize].fetch_add(1, Ordering::Relaxed);
        self.states[old.state() as usize].fetch_sub(1, Ordering::Relaxed);
        if let Some(class) = new.class() {
            self.classes[class].fetch_add(1, Ordering::Relaxed);
        }
        if let Some(class) = old.class() {
            self.classes[class].fetch_sub(1, Ordering::Relaxed);
        }
        if new.state() == SlotState::Sealed {
            self.note_expires(at);
        }
        true
    }

    /// How many slots are in a state.
    pub(crate) fn count(&self, state: SlotState) -> u32 {
        self.states[state as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn states(&self) -> States {
        let count = |state| u64::from(self.count(state));
        States {
            free: count(SlotState::Free),
            open: count(SlotState::Open),
            sealed: count(SlotState::Sealed),
            relocating: count(SlotState::Victim),
            damaged: count(SlotState::Damaged),
        }
    }

    pub(crate) fn classes(&self) -> Classes {
        Classes::of(std::array::from_fn(|class| self.classes[class].load(Ordering::Relaxed).into()))
    }

    /// The sealed segments and their slots.
    pub(crate) fn sealed(&self) -> impl Iterator<Item = (u32, &Slot)> {
        let all = self.all.iter().enumerate();
        all.filter(|(_, slot)| slot.state() == SlotState::Sealed).map(|(at, slot)| (at as u32, slot))
    }

    /// When a sealed segment expires next, or before.
    pub(crate) fn expires_from(&self, expiry: Expiry) -> Option<u64> {
        Some(self.expires_from[expiry as usize].load(Ordering::Acquire)).filter(|&at| at != NEVER_MS)
    }

    /// The sealed segment that expired first, and when, if one has by `now_ms`.
    pub(crate) fn expired(&self, expiry: Expiry, now_ms: u64) -> Option<(u64, u32)> {
        if self.expires_from(expiry)? > now_ms {
            return None;
        }
        // Forgotten before the walk, so that what is sealed meanwhile is remembered.
        let from = &self.expires_from[expiry as usize];
        from.swap(NEVER_MS, Ordering::AcqRel);
        let next = self.sealed().filter_map(|(at, slot)| Some((slot.expires_ms(expiry)?, at))).min()?;
        from.fetch_min(next.0, Ordering::AcqRel);
        Some(next).filter(|&(at_ms, _)| at_ms <= now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the counts have to be, by a walk.
    fn walk(slots: &Slots) -> (States, [u64; OTHER_CLASS as usize + 1]) {
        let mut classes = [0; OTHER_CLASS as usize + 1];
        let in_state = |state| slots.all().iter().filter(|slot| slot.state() == state).count() as u64;
        for slot in slots.all().iter().filter(|slot| slot.state() != SlotState::Free) {
            classes[slot.stream().0.min(OTHER_CLASS) as usize] += 1;
        }
        let states = States {
            free: in_state(SlotState::Free),
            open: in_state(SlotState::Open),
            sealed: in_state(SlotState::Sealed),
            relocating: in_state(SlotState::Victim),
            damaged: in_state(SlotState::Damaged),
        };
        (states, classes)
    }

    #[test]
    fn the_counts_are_those_of_a_walk() {
        let slots = Slots::new(16);
        let mut word = 1u64;
        for step in 1..5000u64 {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (slot, what, stream) =
                ((word >> 60) as u32, (word >> 40) % 8, Stream((word >> 20) as u32 % 12));
            match what {
                0 => slots.occupy(slot, step, SlotState::Open, 0),
                1 => slots.occupy(slot, 0, SlotState::Free, 0),
                2 => slots.begin(slot, stream, step),
                3 => {
                    slots.seal(slot, stream, 100, step, &Contents::of_footer((word & 1 == 1).then_some(step)))
                }
                4 => drop(slots.advance(slot, SlotState::Sealed, SlotState::Victim)),
                5 => drop(slots.advance(slot, SlotState::Victim, SlotState::Sealed)),
                6 => slots.set_expires(slot, &Contents::of_footer((word & 1 == 1).then_some(step))),
                _ => slots.set_state(slot, SlotState::Damaged),
            }
            let (states, classes) = walk(&slots);
            assert_eq!(slots.states(), states, "after step {step}: {what}");
            assert_eq!(slots.classes(), Classes::of(classes), "after step {step}: {what}");
            for expiry in Expiry::ALL {
                let next = slots.sealed().filter_map(|(at, s)| Some((s.expires_ms(expiry)?, at))).min();
                let from = slots.expires_from(expiry);
                assert!(
                    next.is_none_or(|(at_ms, _)| from.is_some_and(|from| from <= at_ms)),
                    "after step {step}"
                );
                if step % 7 == 0 {
                    let due = next.filter(|&(at_ms, _)| at_ms <= step);
                    assert_eq!(slots.expired(expiry, step), due, "after step {step}: {what}");
                }
            }
        }
    }
}
