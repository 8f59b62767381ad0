//! The slots of a tier: the content of each, and (`slots`) the counts by content.
//!
//! States go `Free → Open → Sealed → Victim → Free`. Only the task that advances a slot's state may write to the device there:
//! the writer of an open segment, or the task that frees it.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use esker_log::{SegmentClass, Stream};

use crate::base::word::Word;
use crate::segments::contents::{Contents, Expiry, NEVER_MS};
use crate::segments::groups::Group;

/// Content of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum SlotState {
    Free = 0,
    Open = 1,
    Sealed = 2,
    /// Being relocated, or about to be freed.
    Victim = 3,
    /// Holds damage that must be kept, so that reading it returns an error.
    Damaged = 4,
}

/// Number of the segment in a slot; 0 if the slot is free.
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
    /// Bytes of current records and of tombstones still needed. Overwriting a record of unknown length subtracts an estimate,
    /// so the value may be inexact, even negative, until the unverified overwrite is verified.
    live_bytes: AtomicI64,
    /// Bytes of records in the segment, including padding.
    pub(super) used_bytes: AtomicU32,
    opened_at: AtomicU64,
    /// Write stream of the segment.
    pub(super) stream: AtomicU8,
    /// Highest sequence number when its first record was appended; 0 for a segment of an earlier opening.
    pub(super) began_at: AtomicU64,
    /// Number of the newest segment when this one was sealed.
    pub(super) sealed_at: AtomicU64,
    /// Segments that the drive erases together with it; see [`Groups`](crate::segments::groups::Groups).
    pub(super) group: AtomicU64,
    /// Assumed length in bytes of a displaced record that is not in memory; 0 while unknown. Must not change once it is used,
    /// because otherwise the estimate subtracted for an unverified overwrite could not be corrected.
    record_bytes: AtomicU32,
    /// Expiry times in milliseconds since the Unix epoch, by [`Expiry`].
    pub(super) expires_ms: [AtomicU64; 2],
    /// Tombstone bytes included in `live_bytes`.
    tombstone_bytes: AtomicI64,
    /// Upper bound of the sequence numbers of its tombstones.
    tombstones_through: AtomicU64,
    /// One plus its live bytes when relocating it was found not to pay; 0 if it never was.
    not_collected_at: AtomicI64,
    /// True if its blocks in the file were never written.
    blank: AtomicBool,
    /// True if all its puts are of keys that did not exist before: dropping them brings back no older version.
    hides_nothing: AtomicBool,
    /// True if it belongs to a memtable: its records coalesce in memory, and none of it is on the device.
    coalescing: AtomicBool,
    /// Number of the newest segment when the CLOCK hand last passed and kept it.
    passed_at: AtomicU64,
    /// Time of that pass, or of taking the slot, in milliseconds by the runtime's clock.
    passed_ms: AtomicU64,
}

impl Slot {
    pub(crate) fn segment(&self) -> u64 {
        self.segment.get()
    }

    pub(crate) fn state(&self) -> SlotState {
        Label(self.label.load(Ordering::Acquire)).state()
    }

    /// Returns the state, and the index of its class in the counts, as one snapshot; a free slot has no class.
    pub(crate) fn state_and_class(&self) -> (SlotState, Option<usize>) {
        let label = Label(self.label.load(Ordering::Acquire));
        (label.state(), label.class())
    }

    /// Excludes the segment from collection until noticeably more of it is dead.
    pub(crate) fn do_not_collect(&self) {
        self.not_collected_at.store(self.live_bytes().max(0) + 1, Ordering::Relaxed);
    }

    /// Returns true if it was excluded from collection, and fewer than `noticeable_bytes` of it have died since.
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

    /// Sets its tombstone bytes to zero. Returns the previous value.
    pub(crate) fn forget_tombstones(&self) -> i64 {
        self.tombstone_bytes.swap(0, Ordering::Relaxed)
    }

    pub(crate) fn tombstones_through(&self) -> u64 {
        self.tombstones_through.load(Ordering::Relaxed)
    }

    pub(crate) fn set_tombstones_through(&self, sequence: u64) {
        self.tombstones_through.store(sequence, Ordering::Relaxed);
    }

    /// Sets its live bytes to zero. Returns the previous value.
    pub(crate) fn forget_live(&self) -> i64 {
        self.live_bytes.swap(0, Ordering::Relaxed)
    }

    /// Returns true if the slot was taken in blocks of a file that were never written.
    pub(crate) fn is_blank(&self) -> bool {
        self.blank.load(Ordering::Relaxed)
    }

    pub(crate) fn set_blank(&self, blank: bool) {
        self.blank.store(blank, Ordering::Relaxed);
    }

    /// Marks the slot as part of a memtable until it is sealed or freed.
    pub(crate) fn set_coalescing(&self, coalesces: bool) {
        self.coalescing.store(coalesces, Ordering::Release);
    }

    pub(crate) fn is_coalescing(&self) -> bool {
        self.coalescing.load(Ordering::Acquire)
    }

    /// Declares that from now on it receives only ordinary puts: each is published after the puts it replaces.
    pub(crate) fn begin_puts(&self) {
        self.hides_nothing.store(true, Ordering::Release);
    }

    /// Notes that a put in it replaced a record that remains in the log.
    #[inline]
    pub(crate) fn note_hides(&self) {
        if self.hides_nothing.load(Ordering::Relaxed) {
            self.hides_nothing.store(false, Ordering::Release);
        }
    }

    /// Returns true if no published put in it hides an older version of its key. False for copies and for segments of an
    /// earlier opening, for which this is unknown.
    pub(crate) fn hides_nothing(&self) -> bool {
        self.hides_nothing.load(Ordering::Acquire)
    }

    /// Notes that the CLOCK hand passed and kept the segment; `newest` is the number of the newest segment.
    pub(crate) fn pass(&self, newest: u64, now: Duration) {
        self.passed_at.store(newest, Ordering::Relaxed);
        self.passed_ms.store(now.as_millis() as u64, Ordering::Relaxed);
    }

    /// Returns the time of that pass, or of taking the slot, by the runtime's clock.
    pub(crate) fn passed_time(&self) -> Duration {
        Duration::from_millis(self.passed_ms.load(Ordering::Relaxed))
    }

    /// Returns the number of the newest segment when this one was sealed or last kept.
    pub(crate) fn kept_at(&self) -> u64 {
        self.passed_at.load(Ordering::Relaxed).max(self.sealed_at())
    }

    /// Sets the approximate length of its records, if not set before.
    pub(crate) fn expect_records_of(&self, bytes: u32) {
        let _ = self.record_bytes.compare_exchange(0, bytes, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns the approximate length of its records in bytes; 0 if unknown.
    pub(crate) fn record_bytes(&self) -> u32 {
        self.record_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn stream(&self) -> Stream {
        Stream(self.stream.load(Ordering::Relaxed))
    }

    /// Returns the number of records written since its first one, up to `sequence`; `None` if unknown.
    pub(crate) fn lived(&self, sequence: u64) -> Option<u64> {
        let began = self.began_at.load(Ordering::Relaxed);
        (began > 0).then(|| sequence.saturating_sub(began))
    }

    /// Returns its reclaim group.
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

    /// Returns the sequence number at which the segment was opened: it holds no version that a tombstone with a lower number
    /// would need to hide. 0 if unknown, because [it holds copies](Self::hold_copies).
    ///
    /// Acquires, as [`open_at`](Self::open_at) releases: a task that sees a damaged segment exempted from this rule also sees the
    /// list of its keys, which replaces the rule.
    pub(crate) fn opened_at(&self) -> u64 {
        self.opened_at.load(Ordering::Acquire)
    }

    /// Declares that its versions also exist in another segment, which counts: a relocation was interrupted, or gave up, before
    /// the victim was freed. When the other segment is evicted, a tombstone of the same number must hide the versions here,
    /// regardless of when this segment was opened. It therefore counts as opened before all tombstones until it is freed.
    pub(crate) fn hold_copies(&self) {
        self.open_at(0);
    }

    /// Sets the sequence number at which it counts as opened.
    pub(crate) fn open_at(&self, sequence: u64) {
        self.opened_at.store(sequence, Ordering::Release);
    }
}

/// State of a slot and class of its records in one word, so that each change moves it from exactly one count to another.
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

    /// Returns the index of its class in the counts; `None` for a free slot, which has none.
    pub(super) fn class(self) -> Option<usize> {
        (self.state() != SlotState::Free).then_some((self.0 >> 8) as usize)
    }
}
