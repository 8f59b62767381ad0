//! The slots of a tier: what each holds, and (`slots`) how many hold what.
//!
//! States go `Free → Open → Sealed → Victim → Free`. Only whoever moves a slot on may touch the device there: an open
//! segment's writer, or the one who frees it.

mod slots;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

use esker_log::{Entry, Kind, Stream, next_expiry_ms};

pub(crate) use self::slots::Slots;

/// Nothing in a segment expires.
pub(crate) const NEVER_MS: u64 = u64::MAX;

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

    /// It is to be looked at by then, whatever is in it.
    pub(crate) fn again_at(mut self, at_ms: u64) -> Contents {
        let first = &mut self.expires_ms[Expiry::First as usize];
        *first = (*first).min(at_ms);
        self
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

/// Class of segments whose stream nobody knows.
const OTHER_CLASS: u32 = 8;

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
