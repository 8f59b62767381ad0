//! A frame: the unit of atomicity. It is recovered whole or not at all.
//!
//! ```text
//! header (64, at a multiple of the tier's write unit) | records, each at a granule | zeros up to the write unit
//! ```
//!
//! A frame is whole if its header and every record in it verify; a second checksum over the same bytes would only cost
//! time. `heads` shows whether only values in it are damaged: then all keys are known. `durable_through` distinguishes
//! a torn tail from rot: all bytes below it were durable when this frame was written.

use esker_seeded_bugs::{Bug, planted};

use crate::checksum::Secret;
use crate::layout::{Field, is_dense};

/// Length in bytes of a frame header.
pub const HEADER_BYTES: usize = 64;
const MAGIC_VALUE: u64 = u32::from_le_bytes(*b"EFRM") as u64;
const FREE_MAGIC_VALUE: u64 = u32::from_le_bytes(*b"EFRE") as u64;

const MAGIC: Field = Field::new("magic", 0, 4, "`EFRM`, or `EFRE` at the start of a free slot");
const CRC: Field = Field::new("crc", 4, 4, "CRC32C of identity and bytes 8..64");
const SEGMENT: Field = Field::new("segment", 8, 8, "number of the segment, never reused");
const EPOCH: Field = Field::new("epoch", 16, 4, "opening of the store in which it was written");
const HEADS: Field =
    Field::new("heads", 20, 4, "sum, modulo 2^32, of the CRC32C of each record's identity, head and key");
const INDEX: Field = Field::new("index", 24, 4, "0, 1, 2 … within the segment");
const OFFSET: Field = Field::new("offset", 28, 4, "where in the segment it begins");
const BYTES: Field = Field::new("bytes", 32, 4, "length with header, without padding");
const PADDED_BYTES: Field =
    Field::new("padded_bytes", 36, 4, "length with padding: the next frame begins there");
const RECORDS: Field = Field::new("records", 40, 4, "number of records");
const STREAM: Field = Field::new(
    "stream",
    44,
    1,
    "which flow of records: 0 and 2 puts, 1 large values, 3 destaged records, 4 to 7 relocated ones, 8 the log of replicated groups; others are refused",
);
const FOLLOWS: Field = Field::new(
    "follows",
    45,
    3,
    "in the first frame, how many times 65536 less the number of the segment before it of its stream is; 0 if that is not told",
);
const DURABLE_THROUGH: Field = Field::new(
    "durable_through",
    48,
    4,
    "bytes of this segment below this offset were durable; in the first frame, where the segment before it of its stream ended",
);
const SLOT: Field = Field::new("slot", 52, 4, "slot of the tier for which it was written");
const OPENED_AT: Field = Field::new(
    "opened_at",
    56,
    8,
    "sequence number up to which all changes were published when the segment was opened, or lower",
);
/// Layout of the frame header.
pub(crate) const FIELDS: &[Field] = &[
    MAGIC,
    CRC,
    SEGMENT,
    EPOCH,
    HEADS,
    INDEX,
    OFFSET,
    BYTES,
    PADDED_BYTES,
    RECORDS,
    STREAM,
    FOLLOWS,
    DURABLE_THROUGH,
    SLOT,
    OPENED_AT,
];
const _: () = assert!(is_dense(FIELDS, HEADER_BYTES));

/// Distance between the segment numbers of one opening. The lower digits identify the opening that assigned the number:
/// an opening that crashed may have left parts of segments whose numbers are no longer known, and they must not be
/// mistaken for parts of a later segment.
pub const SEGMENT_STEP: u64 = 1 << 16;
/// Maximum value of `follows`.
const FOLLOWS_MAX: u64 = (1 << 24) - 1;

/// Write stream of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stream(pub u8);

impl Stream {
    /// Puts in order of arrival; with hot/cold separation, only those expected to be short-lived.
    pub const LANE: Stream = Stream(0);
    /// Large values written directly to the capacity tier.
    pub const LARGE: Stream = Stream(1);
    /// Puts expected to be long-lived, from a lane or by destaging.
    pub const LONG_LIVED: Stream = Stream(2);
    /// Destaged records expected to be short-lived.
    pub const DESTAGED: Stream = Stream(3);
    /// Collected records: those of short-lived segments, then three ages.
    pub const RELOCATED: [Stream; 4] = [Stream(4), Stream(5), Stream(6), Stream(7)];
    /// The log of replicated groups.
    pub const GROUP_LOG: Stream = Stream(8);

    /// True if this version has the stream.
    pub(crate) fn is_known(self) -> bool {
        self <= Stream::GROUP_LOG
    }

    /// True if its records come from users, directly or by destaging, and were never collected.
    pub fn is_fresh(self) -> bool {
        self < Stream::RELOCATED[0]
    }

    /// True if its records are fresh, and expected to be short-lived or of unknown lifetime.
    pub fn is_short_lived(self) -> bool {
        self == Stream::LANE || self == Stream::DESTAGED
    }
}

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Number of the segment.
    pub segment: u64,
    /// Opening of the store in which it was written.
    pub epoch: u64,
    /// Sum of the CRCs of its records' heads and keys.
    pub heads: u32,
    /// Index among the segment's frames.
    pub index: u32,
    /// Byte offset in the segment.
    pub offset: u32,
    /// Length in bytes with header, without padding.
    pub bytes: u32,
    /// Length in bytes with padding.
    pub padded_bytes: u32,
    /// Number of records.
    pub records: u32,
    /// Write stream of the segment.
    pub stream: Stream,
    /// In the first frame: the previous segment of the same stream and opening, if known.
    pub follows: Option<u64>,
    /// Bytes of this segment below this offset were durable when this frame was written. In the first frame, which has
    /// nothing before it: the end of the last frame of the segment that it follows, all of which was durable; 0 if it
    /// follows none.
    pub durable_through: u32,
    /// Slot of the tier for which the frame was written. A frame found in another slot was misdirected.
    pub slot: u32,
    /// Sequence number up to which all changes were published when the segment was opened, or lower: no version in the
    /// segment was superseded by a change numbered up to this one.
    pub opened_at: u64,
}

impl FrameHeader {
    /// Encodes the header.
    pub fn encode(&self, secret: &Secret) -> [u8; HEADER_BYTES] {
        let mut to = [0u8; HEADER_BYTES];
        MAGIC.put(&mut to, MAGIC_VALUE);
        SEGMENT.put(&mut to, self.segment);
        EPOCH.put(&mut to, self.epoch);
        HEADS.put(&mut to, u64::from(self.heads));
        INDEX.put(&mut to, u64::from(self.index));
        OFFSET.put(&mut to, u64::from(self.offset));
        BYTES.put(&mut to, u64::from(self.bytes));
        PADDED_BYTES.put(&mut to, u64::from(self.padded_bytes));
        RECORDS.put(&mut to, u64::from(self.records));
        STREAM.put(&mut to, u64::from(self.stream.0));
        FOLLOWS.put(&mut to, self.follows.map_or(0, |before| steps_between(before, self.segment)));
        DURABLE_THROUGH.put(&mut to, u64::from(self.durable_through));
        SLOT.put(&mut to, u64::from(self.slot));
        OPENED_AT.put(&mut to, self.opened_at);
        let crc = secret.identity(self.segment, self.offset).crc(&[&to[SEGMENT.offset..]]);
        CRC.put(&mut to, u64::from(crc));
        to
    }

    /// Parses a header found in the wrong place, for the offset that it states.
    pub fn parse_displaced(bytes: &[u8], secret: &Secret) -> Option<FrameHeader> {
        let offset = OFFSET.get(bytes.get(..HEADER_BYTES)?) as u32;
        FrameHeader::parse(bytes, secret, offset)
    }

    /// Parses the header at `offset` of a segment, for any segment and slot. `None` if there is no valid one.
    pub fn parse(bytes: &[u8], secret: &Secret, offset: u32) -> Option<FrameHeader> {
        let from = bytes.get(..HEADER_BYTES)?;
        if MAGIC.get(from) != MAGIC_VALUE {
            return None;
        }
        let segment = SEGMENT.get(from);
        let crc = secret.identity(segment, offset).crc(&[&from[SEGMENT.offset..]]);
        let header = FrameHeader {
            segment,
            epoch: EPOCH.get(from),
            heads: HEADS.get(from) as u32,
            index: INDEX.get(from) as u32,
            offset: OFFSET.get(from) as u32,
            bytes: BYTES.get(from) as u32,
            padded_bytes: PADDED_BYTES.get(from) as u32,
            records: RECORDS.get(from) as u32,
            stream: Stream(STREAM.get(from) as u8),
            follows: Some(FOLLOWS.get(from))
                .filter(|&steps| steps > 0)
                .and_then(|steps| segment.checked_sub(steps * SEGMENT_STEP)),
            durable_through: DURABLE_THROUGH.get(from) as u32,
            slot: SLOT.get(from) as u32,
            opened_at: OPENED_AT.get(from),
        };
        let sane = header.offset == offset
            && header.bytes as usize >= HEADER_BYTES
            && header.padded_bytes >= header.bytes
            && offset.checked_add(header.padded_bytes).is_some()
            && (header.durable_through <= offset || header.index == 0)
            && header.stream.is_known();
        (u64::from(crc) == CRC.get(from) && sane).then_some(header)
    }
}

/// Returns the distance from one segment number to another in steps; 0 if it cannot be expressed.
fn steps_between(before: u64, segment: u64) -> u64 {
    let apart = segment.saturating_sub(before);
    if apart.is_multiple_of(SEGMENT_STEP) && apart / SEGMENT_STEP <= FOLLOWS_MAX {
        apart / SEGMENT_STEP
    } else {
        0
    }
}

/// Returns the marker that is written over the start of a slot to free it: the segment in the slot is gone for good.
pub fn free_marker(secret: &Secret, segment: u64, slot: u32) -> [u8; HEADER_BYTES] {
    let mut to = [0u8; HEADER_BYTES];
    MAGIC.put(&mut to, FREE_MAGIC_VALUE);
    SEGMENT.put(&mut to, segment);
    SLOT.put(&mut to, u64::from(slot));
    let crc = secret.identity(segment, 0).crc(&[&to[SEGMENT.offset..]]);
    CRC.put(&mut to, u64::from(crc));
    to
}

/// Content of the start of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotStart {
    /// The slot is free: marked so, or never written. With the number of its last segment, if known.
    Free(Option<u64>),
    /// A segment begins here.
    Frame(FrameHeader),
    /// Data that was written for another slot: the write was misdirected, and the previous content of this slot is
    /// lost.
    Stray {
        /// Number of the segment.
        segment: u64,
        /// The slot for which it was written.
        slot: u32,
    },
    /// Anything else: foreign bytes, or rot.
    Unknown,
}

/// Parses the start of a slot, or the marker at its end.
pub fn slot_start(bytes: &[u8], secret: &Secret, slot: u32) -> SlotStart {
    if let Some(header) = FrameHeader::parse(bytes, secret, 0) {
        let (segment, of) = (header.segment, header.slot);
        return if of == slot || planted(Bug::StrayTaken) {
            SlotStart::Frame(header)
        } else {
            SlotStart::Stray { segment, slot: of }
        };
    }
    let Some(from) = bytes.get(..HEADER_BYTES) else { return SlotStart::Unknown };
    if from.iter().all(|&b| b == 0) {
        return SlotStart::Free(None);
    }
    let (segment, of) = (SEGMENT.get(from), SLOT.get(from) as u32);
    match from == free_marker(secret, segment, of) {
        true if of == slot => SlotStart::Free(Some(segment)),
        true => SlotStart::Stray { segment, slot: of },
        false => SlotStart::Unknown,
    }
}
