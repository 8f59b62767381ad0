//! One slot of a tier: 40 bytes, of which readers need only the segment number. Values that few slots have are in
//! side arrays of the chunk (`table`).
//!
//! States go `Free → Open → Sealed → Victim → Free`. Only the task that advances a slot's state may write to the device there:
//! the writer of an open segment, or the task that frees it.
//!
//! Every value that orders or filters slots (state, stream, `opened_at`, `sealed_at`) changes only through
//! [`Slots`](crate::segments::slots::Slots), which keeps the sets of slots up to date.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

use esker_log::{SEGMENT_STEP, SegmentClass, Stream};

use crate::base::word::Word;

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

/// One slot of a tier.
#[derive(Default)]
pub(crate) struct Slot {
    segment: SegmentNumber,
    opened_at: AtomicU64,
    /// Bytes of current records and of tombstones still needed. Overwriting a record of unknown length subtracts an estimate,
    /// so the value may be inexact, even negative, until the unverified overwrite is verified.
    live_bytes: AtomicI64,
    /// See [`Label`].
    label: AtomicU32,
    /// Bytes of records in the segment, including padding.
    used_bytes: AtomicU32,
    /// Assumed length in bytes of a displaced record that is not in memory; 0 while unknown. Must not change once it is used,
    /// because otherwise the estimate subtracted for an unverified overwrite could not be corrected.
    record_bytes: AtomicU32,
    /// Highest sequence number when its first record was appended, in units of 16; 0 for a segment of an earlier opening.
    /// Wraps around after 2^36 records.
    began_at: AtomicU32,
}

const _: () = assert!(size_of::<Slot>() == 40, "every slot of a drive costs this");

/// log2 of the unit of [`Slot::began_at`].
const BEGAN_SHIFT: u32 = 4;

impl Slot {
    pub(crate) fn segment(&self) -> u64 {
        self.segment.get()
    }

    pub(super) fn label(&self) -> Label {
        Label(self.label.load(Ordering::Acquire))
    }

    /// Changes state, stream, age or bucket in the label, and keeps the flags, which others change concurrently. Called
    /// with the sets of the tier locked.
    pub(super) fn relabel(&self, change: impl Fn(Label) -> Label) {
        let update = |label| Some(change(Label(label)).0);
        let _ = self.label.fetch_update(Ordering::AcqRel, Ordering::Acquire, update);
    }

    pub(crate) fn state(&self) -> SlotState {
        self.label().state()
    }

    /// Returns the state, and the index of its class in the counts, as one snapshot; a free slot has no class.
    pub(crate) fn state_and_class(&self) -> (SlotState, Option<usize>) {
        let label = self.label();
        (label.state(), label.class())
    }

    /// Assigns the slot to a segment, or frees it if `segment` is 0; the state is set separately.
    pub(super) fn occupy(&self, segment: u64, opened_at: u64) {
        self.began_at.store(0, Ordering::Relaxed);
        self.record_bytes.store(0, Ordering::Relaxed);
        self.used_bytes.store(0, Ordering::Relaxed);
        self.label.fetch_and(!Label::FLAGS_OF_CONTENT, Ordering::Release);
        self.relabel(|label| label.with_stream(Stream::LANE).with_age(0));
        self.opened_at.store(opened_at, Ordering::Relaxed);
        self.segment.set(segment);
    }

    pub(super) fn set_used_bytes(&self, bytes: u32) {
        self.used_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Sets the highest sequence number before its first record.
    pub(super) fn begin_at(&self, sequence: u64) {
        self.began_at.store(((sequence >> BEGAN_SHIFT) as u32).max(1), Ordering::Relaxed);
    }

    pub(crate) fn live_bytes(&self) -> i64 {
        self.live_bytes.load(Ordering::Relaxed)
    }

    /// Adds bytes of records that became current. Returns the live bytes before that.
    pub(super) fn add_live(&self, bytes: i64) -> i64 {
        self.live_bytes.fetch_add(bytes, Ordering::Relaxed)
    }

    /// Sets its live bytes to zero. Returns the previous value.
    pub(super) fn forget_live(&self) -> i64 {
        self.live_bytes.swap(0, Ordering::Relaxed)
    }

    /// Returns true if the slot was taken in blocks of a file that were never written.
    pub(crate) fn is_blank(&self) -> bool {
        self.label().0 & Label::BLANK != 0
    }

    pub(crate) fn set_blank(&self, blank: bool) {
        self.set_flag(Label::BLANK, blank);
    }

    /// Marks the slot as part of a memtable until it is sealed or freed: its records coalesce in memory, and none of it is
    /// on the device.
    pub(crate) fn set_coalescing(&self, coalesces: bool) {
        self.set_flag(Label::COALESCING, coalesces);
    }

    pub(crate) fn is_coalescing(&self) -> bool {
        self.label().0 & Label::COALESCING != 0
    }

    /// Declares that from now on it receives only ordinary puts: each is published after the puts it replaces.
    pub(crate) fn begin_puts(&self) {
        self.set_flag(Label::HIDES_NOTHING, true);
    }

    /// Notes that a put in it replaced a record that remains in the log.
    #[inline]
    pub(crate) fn note_hides(&self) {
        if self.label.load(Ordering::Relaxed) & Label::HIDES_NOTHING != 0 {
            self.set_flag(Label::HIDES_NOTHING, false);
        }
    }

    /// Returns true if no published put in it hides an older version of its key: dropping them brings back no older version.
    /// False for copies and for segments of an earlier opening, for which this is unknown.
    pub(crate) fn hides_nothing(&self) -> bool {
        self.label().0 & Label::HIDES_NOTHING != 0
    }

    fn set_flag(&self, flag: u32, set: bool) {
        match set {
            true => self.label.fetch_or(flag, Ordering::AcqRel),
            false => self.label.fetch_and(!flag, Ordering::AcqRel),
        };
    }

    /// Sets the approximate length of its records, if not set before.
    pub(crate) fn expect_records_of(&self, bytes: u32) {
        let _ = self.record_bytes.compare_exchange(0, bytes, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns the approximate length of its records in bytes; 0 if unknown.
    pub(crate) fn record_bytes(&self) -> u32 {
        self.record_bytes.load(Ordering::Relaxed)
    }

    /// Returns the write stream of the segment.
    pub(crate) fn stream(&self) -> Stream {
        self.label().stream()
    }

    /// Returns the approximate number of records written since its first one, up to `sequence`; `None` if unknown.
    pub(crate) fn lived(&self, sequence: u64) -> Option<u64> {
        let began = self.began_at.load(Ordering::Relaxed);
        let since = ((sequence >> BEGAN_SHIFT) as u32).wrapping_sub(began);
        (began > 0).then(|| u64::from(since) << BEGAN_SHIFT)
    }

    /// Returns the number of the newest segment when this one was sealed, to within a sixty-fourth of the segments opened
    /// meanwhile.
    pub(crate) fn sealed_at(&self) -> u64 {
        self.segment() + self.label().age() * SEGMENT_STEP
    }

    pub(crate) fn used_bytes(&self) -> u32 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Returns the sequence number at which the segment was opened: it holds no version that a tombstone with a lower number
    /// would need to hide. 0 if unknown, because [it holds copies](crate::segments::slots::Slots::hold_copies).
    ///
    /// Acquires, as [`open_at`](Self::open_at) releases: a task that sees a damaged segment exempted from this rule also sees the
    /// list of its keys, which replaces the rule.
    pub(crate) fn opened_at(&self) -> u64 {
        self.opened_at.load(Ordering::Acquire)
    }

    pub(super) fn open_at(&self, sequence: u64) {
        self.opened_at.store(sequence, Ordering::Release);
    }
}

/// State, flags and small numbers of a slot in one word: 3 bits of state, 3 flags, 7 bits of the bucket of live bytes, 8 bits
/// of the write stream, 11 bits of the age at which the segment was sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Label(u32);

impl Label {
    const STATE: u32 = 0b111;
    /// Its blocks in the file were never written.
    const BLANK: u32 = 1 << 3;
    /// See [`Slot::hides_nothing`].
    const HIDES_NOTHING: u32 = 1 << 4;
    /// See [`Slot::set_coalescing`].
    const COALESCING: u32 = 1 << 5;
    /// Flags that end with the segment in the slot.
    const FLAGS_OF_CONTENT: u32 = Label::HIDES_NOTHING | Label::COALESCING;
    const BUCKET_SHIFT: u32 = 6;
    const BUCKET: u32 = 0x7f << Label::BUCKET_SHIFT;
    const STREAM_SHIFT: u32 = 13;
    const STREAM: u32 = 0xff << Label::STREAM_SHIFT;
    const AGE_SHIFT: u32 = 21;
    /// Bits of the age that hold its leading digits; the others hold the number of digits dropped.
    const AGE_DIGITS: u32 = 7;
    const AGE_DROPPED_MAX: u32 = 15;

    pub(super) fn state(self) -> SlotState {
        match self.0 & Label::STATE {
            0 => SlotState::Free,
            1 => SlotState::Open,
            2 => SlotState::Sealed,
            3 => SlotState::Victim,
            _ => SlotState::Damaged,
        }
    }

    pub(super) fn with_state(self, state: SlotState) -> Label {
        Label(self.0 & !Label::STATE | state as u32)
    }

    fn stream(self) -> Stream {
        Stream(((self.0 & Label::STREAM) >> Label::STREAM_SHIFT) as u8)
    }

    pub(super) fn with_stream(self, stream: Stream) -> Label {
        Label(self.0 & !Label::STREAM | u32::from(stream.0) << Label::STREAM_SHIFT)
    }

    /// Returns the index of its class in the counts; `None` for a free slot, which has none.
    pub(super) fn class(self) -> Option<usize> {
        (self.state() != SlotState::Free).then_some(SegmentClass::of(self.stream()) as usize)
    }

    /// Returns the bucket of live bytes that the slot is filed in, if any.
    pub(super) fn bucket(self) -> Option<usize> {
        (((self.0 & Label::BUCKET) >> Label::BUCKET_SHIFT) as usize).checked_sub(1)
    }

    pub(super) fn with_bucket(self, bucket: Option<usize>) -> Label {
        let number = bucket.map_or(0, |bucket| bucket as u32 + 1);
        Label(self.0 & !Label::BUCKET | number << Label::BUCKET_SHIFT)
    }

    /// Returns the number of segments that were opened between this one and its summary.
    fn age(self) -> u64 {
        let number = self.0 >> Label::AGE_SHIFT;
        u64::from(number & ((1 << Label::AGE_DIGITS) - 1)) << (number >> Label::AGE_DIGITS)
    }

    /// Sets that number, rounded down to its first 7 binary digits; at most about 4 million.
    pub(super) fn with_age(self, segments: u64) -> Label {
        let dropped = (u64::BITS - segments.leading_zeros()).saturating_sub(Label::AGE_DIGITS);
        let number = match dropped <= Label::AGE_DROPPED_MAX {
            true => dropped << Label::AGE_DIGITS | (segments >> dropped) as u32,
            false => (1 << (u32::BITS - Label::AGE_SHIFT)) - 1,
        };
        Label(self.0 & ((1 << Label::AGE_SHIFT) - 1) | number << Label::AGE_SHIFT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_fields_do_not_disturb_each_other() {
        let flags = Label::BLANK | Label::COALESCING;
        for (state, stream, bucket, age) in [
            (SlotState::Sealed, 255, Some(64), 127),
            (SlotState::Damaged, 0, None, 0),
            (SlotState::Open, 7, Some(0), 1),
        ] {
            let label = Label(flags | Label::HIDES_NOTHING).with_age(age).with_bucket(bucket);
            let label = label.with_stream(Stream(stream)).with_state(state);
            let found = (label.state(), label.stream().0, label.bucket(), label.age());
            assert_eq!(found, (state, stream, bucket, age));
            assert_eq!(label.0 & 0b111_000, flags | Label::HIDES_NOTHING);
        }
    }

    #[test]
    fn age_is_kept_to_within_a_sixty_fourth() {
        for age in
            (0..22).flat_map(|shift| [(1_u64 << shift) - 1, 1 << shift, (1 << shift) + (1 << shift) / 3])
        {
            let kept = Label(0).with_age(age).age();
            assert!(kept <= age && age - kept <= age / 64, "{age} is kept as {kept}");
        }
        assert!(Label(0).with_age(u64::MAX).age() >= 4 << 19);
    }
}
