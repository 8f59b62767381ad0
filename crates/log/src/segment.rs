//! A segment being filled: records are appended to its open frame, frames are closed and written, and finally the
//! segment is sealed with its summary.
//!
//! Invariants:
//! * A record touches no more pages than necessary, if avoiding that costs little (`page`).
//! * Frames begin at multiples of the tier's write unit, and the distance between frames is a whole number of units.
//! * There is always room left for the summary of everything appended so far.
//! * Entries are in the order of their offsets.

use esker_device::Appender;
use esker_index::KeyHash;
use std::ops::Range;

use esker_seeded_bugs::{Bug, planted};

use crate::checksum::Secret;
use crate::entries::EntryList;
use crate::frame::{self, FrameHeader, Stream};
use crate::identity::{self, IDENTITY_BYTES, TierIdentity};
use crate::location::Tier;
use crate::page::{gap_before, gaps_max};
use crate::record::Record;
use crate::summary::{self, Entry, SummaryHead};

/// Padding between records.
static ZEROS: [u8; 4096] = [0; 4096];

/// Parameters common to all segments of a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentShape {
    /// The tier.
    pub tier: Tier,
    /// Length of a segment in bytes.
    pub segment_bytes: u32,
    /// Write unit in bytes, a power of two: writes begin at multiples of it and consist of whole units.
    pub unit_bytes: u32,
    /// Alignment of records in bytes, a power of two and at least [`MIN_GRANULE_BYTES`](crate::MIN_GRANULE_BYTES).
    pub granule_bytes: u32,
    /// Identity of the tier, repeated in each segment.
    pub identity: TierIdentity,
}

impl SegmentShape {
    /// Returns the distance from the start of a frame to its first record. The first frame of a segment also has the
    /// identity block.
    #[inline]
    pub fn first_record(&self, frame_offset: u32) -> u32 {
        let identity = if frame_offset == 0 { IDENTITY_BYTES } else { 0 };
        up_to((frame::HEADER_BYTES + identity) as u64, self.granule_bytes) as u32
    }

    /// Returns the space of a record in a frame, with padding.
    #[inline]
    pub fn padded(&self, record_bytes: usize) -> u64 {
        up_to(record_bytes as u64, self.granule_bytes)
    }

    /// Rounds `bytes` up to whole write units.
    #[inline]
    fn whole_units(&self, bytes: u64) -> u64 {
        up_to(bytes, self.unit_bytes)
    }

    /// Returns the maximum space that a batch of `records` records of `padded_bytes` bytes in total takes of the room
    /// for the longest record: its records, the gaps between them, and their summary entries.
    pub fn batch_bytes_max(&self, records: usize, padded_bytes: u64) -> u64 {
        let entries = records.saturating_sub(1) * summary::MAX_ENTRY_BYTES;
        padded_bytes + gaps_max(self.first_record(0).into(), records, padded_bytes) + entries as u64
    }

    /// Returns the length of the longest record that fits in a segment of its own.
    pub fn max_record_bytes(&self) -> u64 {
        let summary = summary::space_bytes(1, self.unit_bytes as usize) as u64;
        let frame = u64::from(self.segment_bytes).saturating_sub(summary) / u64::from(self.unit_bytes);
        let room = (frame * u64::from(self.unit_bytes)).saturating_sub(u64::from(self.first_record(0)));
        room - room % u64::from(self.granule_bytes)
    }
}

/// Rounds up to a multiple of a power of two. Avoids a division, because every put calls it several times.
#[inline]
fn up_to(bytes: u64, multiple: u32) -> u64 {
    debug_assert!(multiple.is_power_of_two());
    let below = u64::from(multiple) - 1;
    (bytes + below) & !below
}

/// Identity of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentName {
    /// Segment number, never reused.
    pub segment: u64,
    /// Slot of the tier that it occupies.
    pub slot: u32,
    /// This opening of the store.
    pub epoch: u64,
    /// Write stream.
    pub stream: Stream,
    /// Sequence number up to which all changes were published when the segment was opened, or lower.
    pub opened_at: u64,
}

/// A closed frame to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedFrame {
    /// Byte offset in the segment.
    pub offset: u32,
    /// Byte range in the segment's memory.
    pub memory: Range<usize>,
    /// Number of records.
    pub records: u32,
    /// Bytes of header, records and granule padding; the rest is padding to the write unit.
    pub payload_bytes: u32,
}

struct OpenFrame {
    offset: u32,
    records: u32,
    /// Sum of the CRCs of its records' heads and keys.
    heads: u32,
}

/// A segment being filled.
pub struct OpenSegment {
    shape: SegmentShape,
    name: SegmentName,
    secret: Secret,
    memory: Appender,
    base: u32,
    frame: Option<OpenFrame>,
    frames: u32,
    /// True if the last frame has records and no later frame states that it was durable.
    unproven: bool,
    /// Previous segment of the same stream, and the end of its last frame.
    follows: Option<(u64, u32)>,
    entries: EntryList,
    /// False if the summary lists no records.
    lists_records: bool,
}

impl OpenSegment {
    /// Returns an empty segment that buffers its bytes in `memory`.
    pub fn new(shape: SegmentShape, name: SegmentName, secret: Secret, memory: Appender) -> OpenSegment {
        assert_eq!(memory.tail(), 0, "segment memory is empty at the start");
        assert!(
            shape.unit_bytes.is_multiple_of(shape.granule_bytes),
            "frames begin at units of {} bytes, so records in granules of {} bytes would not be aligned",
            shape.unit_bytes,
            shape.granule_bytes
        );
        OpenSegment {
            shape,
            name,
            secret,
            memory,
            base: 0,
            frame: None,
            frames: 0,
            unproven: false,
            follows: None,
            entries: EntryList::new(),
            lists_records: true,
        }
    }

    /// Leaves the records out of the summary, which then only proves where the segment ends. Called before the first
    /// record.
    ///
    /// # Panics
    /// If the segment has entries.
    pub fn leave_out_records(&mut self) {
        assert!(self.entries.is_empty(), "a summary lists all records or none");
        self.lists_records = false;
    }

    /// Replaces the entry list, before the first record, by an empty list with allocated capacity.
    ///
    /// # Panics
    /// If this segment or the list has entries.
    pub fn reuse(&mut self, list: EntryList) {
        assert!(self.entries.is_empty() && list.is_empty(), "both are empty");
        self.entries = list;
    }

    /// Sets the write stream, before the first record.
    ///
    /// # Panics
    /// If the segment has entries.
    pub fn set_stream(&mut self, stream: Stream) {
        assert!(self.entries.is_empty(), "its frames name the flow");
        self.name.stream = stream;
    }

    /// Sets the previous segment of the same stream, and the end of its last frame, for the first frame's header. All
    /// of that segment must be durable before that header is written.
    pub fn set_follows(&mut self, segment: u64, tail: u32) {
        self.follows = Some((segment, tail));
    }

    /// Returns the identity of the segment.
    pub fn name(&self) -> SegmentName {
        self.name
    }

    /// Returns the parameters of its tier.
    pub fn shape(&self) -> SegmentShape {
        self.shape
    }

    /// Returns its memory.
    pub fn memory(&self) -> &Appender {
        &self.memory
    }

    /// Returns the offset of the next append.
    pub fn tail(&self) -> u32 {
        self.base + self.memory.tail() as u32
    }

    /// Returns the entries of the records appended so far.
    pub fn entries(&self) -> &EntryList {
        &self.entries
    }

    /// Returns the number of records in the open frame.
    pub fn open_records(&self) -> u32 {
        self.frame.as_ref().map_or(0, |f| f.records)
    }

    /// Returns the bytes of the open frame so far, including its header; without an open frame, the bytes of its future
    /// header.
    pub fn open_frame_bytes(&self) -> u64 {
        match &self.frame {
            Some(frame) => u64::from(self.tail() - frame.offset),
            None => u64::from(self.shape.first_record(self.tail())),
        }
    }

    /// Returns the offset at which the open frame begins, or would begin.
    pub fn frame_offset(&self) -> u32 {
        self.frame.as_ref().map_or(self.tail(), |f| f.offset)
    }

    /// Returns the maximum bytes of the open frame with `records` more records of `padded_bytes` in total.
    pub fn open_frame_bytes_with(&self, records: usize, padded_bytes: u64) -> u64 {
        let bytes = self.open_frame_bytes();
        let gaps = gaps_max(u64::from(self.frame_offset()) + bytes, records, padded_bytes);
        bytes + gaps + padded_bytes
    }

    fn end_of_frame_with(&self, records: usize, padded_bytes: u64) -> u64 {
        let end = u64::from(self.frame_offset()) + self.open_frame_bytes_with(records, padded_bytes);
        self.shape.whole_units(end)
    }

    /// True if `records` more records of `padded_bytes` in total fit in the segment, including its summary.
    pub fn has_room(&self, records: usize, padded_bytes: u64) -> bool {
        self.fits_in_segment(self.end_of_frame_with(records, padded_bytes), records)
    }

    fn fits_in_segment(&self, end: u64, records: usize) -> bool {
        end + self.summary_space_with(records) <= u64::from(self.shape.segment_bytes)
    }

    fn fits_in_memory(&self, end: u64) -> bool {
        end - u64::from(self.base) <= self.memory.capacity() as u64
    }

    /// Returns the maximum space of the summary with `records` more records.
    fn summary_space_with(&self, records: usize) -> u64 {
        if planted(Bug::NoRoomForSummary) {
            return 0;
        }
        let records = if self.lists_records { records } else { 0 };
        let bytes = self.entries.encoded_bytes() + records * summary::MAX_ENTRY_BYTES + summary::FOOTER_BYTES;
        self.shape.whole_units(bytes as u64)
    }

    /// Returns the approximate space left for records.
    pub fn room_bytes(&self) -> u64 {
        let taken = self.end_of_frame_with(0, 0) + self.summary_space_with(self.entries.len());
        u64::from(self.shape.segment_bytes).saturating_sub(taken)
    }

    /// True if `records` more records of `padded_bytes` in total fit in the remaining memory.
    pub fn memory_has_room(&self, records: usize, padded_bytes: u64) -> bool {
        self.fits_in_memory(self.end_of_frame_with(records, padded_bytes))
    }

    /// Appends a record to the open frame. Returns its offset in the segment.
    ///
    /// # Panics
    /// If there is no room; check [`has_room`](Self::has_room) first.
    pub fn append(&mut self, record: &Record<'_>, key_hash: KeyHash) -> u32 {
        let bytes = record.bytes();
        let padded = self.shape.padded(bytes);
        debug_assert_eq!(key_hash.keyspace(), record.keyspace, "the digest is that of the record");
        let end = self.end_of_frame_with(1, padded);
        assert!(
            self.fits_in_segment(end, 1) && self.fits_in_memory(end),
            "record of {bytes} bytes has no room"
        );
        self.open_frame();
        let gap = gap_before(self.tail().into(), padded) as usize;
        let offset = self.tail() + gap as u32;
        let header = record.encode_header(&self.secret.identity(self.name.segment, offset));
        let frame = self.open_frame();
        frame.records += 1;
        frame.heads = frame.heads.wrapping_add(header.crc);
        if gap > 0 {
            // Published before the record. If the process dies in between, a gap of zeros without a record behind it is
            // left, which readers take for the end of the records, as they do unwritten memory.
            self.memory.append(&[&ZEROS[..gap]]);
        }
        let mut padding = padded as usize - bytes;
        if padding <= ZEROS.len() {
            let padding = &ZEROS[..padding];
            self.memory.append(&[&header, record.key, record.value, padding]);
        } else {
            self.memory.append(&[&header, record.key, record.value]);
            while padding > 0 {
                let piece = padding.min(ZEROS.len());
                self.memory.append(&[&ZEROS[..piece]]);
                padding -= piece;
            }
        }
        if self.lists_records {
            self.entries.push(Entry::of_record(record, key_hash, offset, padded as u32));
        }
        offset
    }

    fn open_frame(&mut self) -> &mut OpenFrame {
        let first_record = self.shape.first_record(self.tail());
        self.frame.get_or_insert_with(|| OpenFrame {
            offset: self.base + self.memory.reserve_header(first_record as usize) as u32,
            records: 0,
            heads: 0,
        })
    }

    /// Closes the open frame, if any. `durable_through`: offset below which the segment is durable.
    pub fn close_frame(&mut self, durable_through: u32) -> Option<ClosedFrame> {
        let frame = self.frame.take()?;
        // Otherwise a later scan would mistake this frame, if torn, for rot.
        assert!(durable_through <= frame.offset, "a frame is not durable before it is written");
        let payload_bytes = self.tail() - frame.offset;
        let follows = self.follows.filter(|_| frame.offset == 0);
        let header = FrameHeader {
            segment: self.name.segment,
            epoch: self.name.epoch,
            heads: frame.heads,
            index: self.frames,
            offset: frame.offset,
            bytes: payload_bytes,
            padded_bytes: payload_bytes.next_multiple_of(self.shape.unit_bytes),
            records: frame.records,
            stream: self.name.stream,
            follows: follows.map(|(segment, _)| segment),
            durable_through: follows.map_or(durable_through, |(_, tail)| tail),
            slot: self.name.slot,
            opened_at: self.name.opened_at,
        };
        let mut head = vec![0u8; self.shape.first_record(frame.offset) as usize];
        let (of_frame, rest) = head.split_at_mut(frame::HEADER_BYTES);
        of_frame.copy_from_slice(&header.encode(&self.secret));
        if frame.offset == 0 {
            rest[..IDENTITY_BYTES].copy_from_slice(&identity::encode(self.shape, self.name, &self.secret));
        }
        let memory = self.memory.close(&head, self.shape.unit_bytes as usize);
        assert_eq!(memory.len(), header.padded_bytes as usize, "a frame is a whole number of write units");
        self.frames += 1;
        self.unproven = frame.records > 0;
        Some(ClosedFrame { offset: frame.offset, memory, records: frame.records, payload_bytes })
    }

    /// True if records were closed in a frame with no frame after it: if they are damaged, that frame looks like one
    /// that was never completely written.
    pub fn is_unproven(&self) -> bool {
        self.unproven
    }

    /// Closes a frame without records, which states that everything before it is durable.
    ///
    /// # Panics
    /// If a frame is open, or there is no room; check [`has_room`](Self::has_room) and
    /// [`memory_has_room`](Self::memory_has_room) with zero records first.
    pub fn close_empty_frame(&mut self) -> ClosedFrame {
        assert!(self.frame.is_none(), "a frame that has records is closed first");
        assert!(self.has_room(0, 0) && self.memory_has_room(0, 0), "an empty frame has no room");
        let durable_through = self.tail();
        self.open_frame();
        self.close_frame(durable_through).expect("it was opened")
    }

    /// Continues in other memory, for segments whose bytes need not stay in memory. Returns the memory used so far.
    ///
    /// # Panics
    /// If a frame is open.
    pub fn replace_memory(&mut self, memory: Appender) -> Appender {
        assert!(self.frame.is_none(), "a frame lies in one piece of memory");
        self.base = self.tail();
        std::mem::replace(&mut self.memory, memory)
    }

    /// Continues at the start of the same memory. Returns false if another reference to it exists.
    ///
    /// # Panics
    /// If a frame is open.
    pub fn reuse_memory(&mut self) -> bool {
        assert!(self.frame.is_none(), "a frame lies in one piece of memory");
        let tail = self.tail();
        let reused = self.memory.restart();
        if reused {
            self.base = tail;
        }
        reused
    }

    /// Returns the summary to write and its offset in the segment: it ends at the segment's end.
    pub fn summary(&self) -> (u32, Vec<u8>) {
        assert!(self.frame.is_none(), "the last frame is closed before the segment is sealed");
        let name = self.name;
        let head =
            SummaryHead { segment: name.segment, epoch: name.epoch, stream: name.stream, tail: self.tail() };
        seal(&self.entries, &self.secret, head, self.shape)
    }

    /// Splits the segment into its memory and its entries.
    pub fn into_parts(self) -> (Appender, EntryList) {
        (self.memory, self.entries)
    }
}

/// Returns the summary that seals a segment, and its offset in the segment.
pub fn seal(entries: &EntryList, secret: &Secret, head: SummaryHead, shape: SegmentShape) -> (u32, Vec<u8>) {
    let bytes = summary::encode(entries, secret, head, shape.segment_bytes, shape.unit_bytes);
    let start = shape.segment_bytes - bytes.len() as u32;
    assert!(start >= head.tail, "room for the summary was kept while appending");
    (start, bytes)
}
