//! The slots of a tier: what each holds, and (`slots`) how many hold what.
//!
//! States go `Free → Open → Sealed → Victim → Free`. Only whoever moves a slot on may touch the device there: an open
//! segment's writer, or the one who frees it.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use esker_log::{SegmentClass, Stream};

use crate::base::word::Word;
use crate::segments::contents::{Contents, Expiry, NEVER_MS};
use crate::segments::groups::Group;

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

/// Number of the segment in a slot; 0 when it is free.
#[derive(Default)]
pub(crate) struct SegmentNumber<W = AtomicU64>(W);

impl<W: Word> SegmentNumber<W> {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn set(&self, segment: u64) {
        self.0.store(segment, Ordering::Release);
    }
}

/// One slot of a tier. Readers need only `segment`.
#[derive(Default)]
pub(crate) struct Slot {
    segment: SegmentNumber,
    /// State and class, see [`Label`].
    pub(super) label: AtomicU32,
    /// Bytes of records that are current, or tombstones still needed. An overwrite of a record whose length is not at
    /// hand subtracts an estimate, so this may be off, below zero too, until the unverified overwrite is verified.
    live_bytes: AtomicI64,
    /// Bytes of records in it, padding included.
    pub(super) used_bytes: AtomicU32,
    opened_at: AtomicU64,
    /// Which flow of records it belongs to.
    pub(super) stream: AtomicU8,
    /// Sequence number that was the highest when its first record came; 0 if it is of an earlier opening.
    pub(super) began_at: AtomicU64,
    /// Number that the next segment had when it was sealed.
    pub(super) sealed_at: AtomicU64,
    /// Which segments the drive erases together with it; see [`Groups`](crate::segments::groups::Groups).
    pub(super) group: AtomicU64,
    /// What a record in it is taken to be long that was displaced without being at hand; 0 as long as nothing is known. Must
    /// not change once it is used, or else what an unverified overwrite subtracted could not be put right.
    record_bytes: AtomicU32,
    /// By [`Expiry`], in milliseconds since the Unix epoch.
    pub(super) expires_ms: [AtomicU64; 2],
    /// Those of its live bytes that are tombstones.
    tombstone_bytes: AtomicI64,
    /// No tombstone in it has a higher sequence number.
    tombstones_through: AtomicU64,
    /// Live bytes that it had when relocating it was found not to be worth it, and one; 0 if it never was.
    not_collected_at: AtomicI64,
    /// It lies in blocks of a file that were never written.
    blank: AtomicBool,
    /// All its puts are of keys of which there was none: so nothing comes back if they are dropped.
    hides_nothing: AtomicBool,
    /// Its records wait in memory to be overwritten: nothing of it is on the device.
    coalescing: AtomicBool,
    /// Number that the newest segment had when it was last looked at for what may be dropped, and kept.
    passed_at: AtomicU64,
    /// When that was, or when it was taken, in milliseconds by the runtime's clock.
    passed_ms: AtomicU64,
}

impl Slot {
    pub(crate) fn segment(&self) -> u64 {
        self.segment.get()
    }

    pub(crate) fn state(&self) -> SlotState {
        Label(self.label.load(Ordering::Acquire)).state()
    }

    /// State, and the position of its class in the counts, as they were at one moment; a free slot has no class.
    pub(crate) fn state_and_class(&self) -> (SlotState, Option<usize>) {
        let label = Label(self.label.load(Ordering::Acquire));
        (label.state(), label.class())
    }

    /// It is not collected until noticeably more of it is dead.
    pub(crate) fn do_not_collect(&self) {
        self.not_collected_at.store(self.live_bytes().max(0) + 1, Ordering::Relaxed);
    }

    /// Whether it was not collected and less than so many bytes of it have died since.
    pub(crate) fn is_not_collected(&self, noticeable_bytes: i64) -> bool {
        let at = self.not_collected_at.load(Ordering::Relaxed);
        at > 0 && self.live_bytes().max(0) + noticeable_bytes.max(1) > at - 1
    }

    pub(super) fn occupy(&self, segment: u64, opened_at: u64, now: Duration) {
        self.stream.store(Stream::LANE.0, Ordering::Relaxed);
        self.began_at.store(0, Ordering::Relaxed);
        self.sealed_at.store(segment, Ordering::Relaxed);
        self.expires_ms.iter().for_each(|at| at.store(NEVER_MS, Ordering::Relaxed));
        self.tombstones_through.store(u64::MAX, Ordering::Relaxed);
        self.record_bytes.store(0, Ordering::Relaxed);
        self.not_collected_at.store(0, Ordering::Relaxed);
        self.used_bytes.store(0, Ordering::Relaxed);
        self.hides_nothing.store(false, Ordering::Relaxed);
        self.coalescing.store(false, Ordering::Relaxed);
        self.pass(0, now);
        self.opened_at.store(opened_at, Ordering::Relaxed);
        self.segment.set(segment);
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

    /// What it gets waits in memory to be overwritten, until it is sealed or freed.
    pub(crate) fn set_coalescing(&self, coalesces: bool) {
        self.coalescing.store(coalesces, Ordering::Release);
    }

    pub(crate) fn is_coalescing(&self) -> bool {
        self.coalescing.load(Ordering::Acquire)
    }

    /// It gets nothing but puts as they come, from now on: each is published after those that it replaces.
    pub(crate) fn begin_puts(&self) {
        self.hides_nothing.store(true, Ordering::Release);
    }

    /// A put in it took the place of a record that goes on to lie somewhere.
    #[inline]
    pub(crate) fn note_hides(&self) {
        if self.hides_nothing.load(Ordering::Relaxed) {
            self.hides_nothing.store(false, Ordering::Release);
        }
    }

    /// Whether no put in it, of those that are published, hides an older version of its key. Of copies, and of what an earlier
    /// opening wrote, nobody knows.
    pub(crate) fn hides_nothing(&self) -> bool {
        self.hides_nothing.load(Ordering::Acquire)
    }

    /// It was looked at for what may be dropped, and kept; the newest segment has this number.
    pub(crate) fn pass(&self, newest: u64, now: Duration) {
        self.passed_at.store(newest, Ordering::Relaxed);
        self.passed_ms.store(now.as_millis() as u64, Ordering::Relaxed);
    }

    /// When that was, or when the slot was taken, by the runtime's clock.
    pub(crate) fn passed_time(&self) -> Duration {
        Duration::from_millis(self.passed_ms.load(Ordering::Relaxed))
    }

    /// When it was sealed or last kept, by the number that the newest segment had.
    pub(crate) fn kept_at(&self) -> u64 {
        self.passed_at.load(Ordering::Relaxed).max(self.sealed_at())
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

    /// Its group.
    pub(crate) fn group(&self) -> Group {
        Group(self.group.load(Ordering::Relaxed))
    }

    pub(crate) fn sealed_at(&self) -> u64 {
        self.sealed_at.load(Ordering::Relaxed)
    }

    pub(crate) fn expires_ms(&self, expiry: Expiry) -> Option<u64> {
        Some(self.expires_ms[expiry as usize].load(Ordering::Acquire)).filter(|&at| at != NEVER_MS)
    }

    pub(super) fn set_expires(&self, contents: &Contents) {
        for expiry in Expiry::ALL {
            self.expires_ms[expiry as usize].store(contents.expires_ms[expiry as usize], Ordering::Release);
        }
    }

    pub(crate) fn used_bytes(&self) -> u32 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// When it was opened: a tombstone with a number below that has nothing to hide in it. 0 if that says nothing, as
    /// [it holds copies](Self::hold_copies).
    pub(crate) fn opened_at(&self) -> u64 {
        self.opened_at.load(Ordering::Relaxed)
    }

    /// Versions that lie in it lie in another segment as well, which counts: a relocation was cut off, or gave up, before the
    /// victim was freed. When the other one is evicted, a tombstone of the same number has to hide this one, however late this
    /// segment was opened. So it counts as opened before everything, until it is freed.
    pub(crate) fn hold_copies(&self) {
        self.open_at(0);
    }

    /// It counts as opened then.
    pub(crate) fn open_at(&self, sequence: u64) {
        self.opened_at.store(sequence, Ordering::Relaxed);
    }
}

/// A slot's state and the class of its records, in one word: so each change takes it from exactly one count to another.
#[derive(Clone, Copy)]
pub(super) struct Label(pub(super) u32);

impl Label {
    pub(super) fn new(state: SlotState, stream: Stream) -> Label {
        Label(state as u32 | ((SegmentClass::of(stream) as u32) << 8))
    }

    pub(super) fn state(self) -> SlotState {
        match self.0 & 0xff {
            0 => SlotState::Free,
            1 => SlotState::Open,
            2 => SlotState::Sealed,
            3 => SlotState::Victim,
            _ => SlotState::Damaged,
        }
    }

    /// Position of its class in the counts; `None` for a free slot, which has none.
    pub(super) fn class(self) -> Option<usize> {
        (self.state() != SlotState::Free).then_some((self.0 >> 8) as usize)
    }
}
