//! A segment's summary: a list of its records, so that opening and relocation need not read the records themselves.
//!
//! ```text
//! … last frame | gap | digests: 14 bytes a record | numbers: LEB128, one byte of most records | zeros | footer (64)
//! ```
//!
//! It ends exactly at the segment's end, where the footer is found. It has its own checksum, so rot in a record shows
//! as *this key is damaged*, never as an older value.
use esker_index::KeyHash;

use crate::checksum::Secret;
use crate::entries::{self, DIGEST_BYTES, EntryList, MAX_NUMBERS_BYTES};
use crate::frame::Stream;
use crate::header::Kind;
use crate::layout::{Field, is_dense};
use crate::location::class_with;
use crate::record::Record;

/// Length in bytes of the footer.
pub const FOOTER_BYTES: usize = 64;
const MAGIC_VALUE: u64 = u32::from_le_bytes(*b"ESUM") as u64;
/// Maximum length in bytes of an entry: a digest, and at most 5 + 1 + 10 + 5 + 10 bytes of numbers.
pub const MAX_ENTRY_BYTES: usize = DIGEST_BYTES + MAX_NUMBERS_BYTES;
/// Estimated length in bytes of an entry: 15 if the record follows the previous one in position and number, about 20 if
/// it was relocated, and 6 more if it expires.
pub const TYPICAL_ENTRY_BYTES: u64 = 24;

const MAGIC: Field = Field::new("magic", 0, 4, "`ESUM`");
const CRC: Field = Field::new("crc", 4, 4, "CRC32C of identity and bytes 8..64");
const SEGMENT: Field = Field::new("segment", 8, 8, "number of the segment");
const EPOCH: Field = Field::new("epoch", 16, 8, "opening of the store in which it was sealed");
const START: Field = Field::new("start", 24, 4, "where in the segment the summary begins");
const ENTRY_BYTES: Field = Field::new("entry_bytes", 28, 4, "length of the entries");
const ENTRIES: Field = Field::new("entries", 32, 4, "number of entries");
const STREAM: Field = Field::new("stream", 36, 4, "which flow of records");
const CHECK: Field = Field::new("check", 40, 8, "XXH3-64 of the entries, bound to the segment");
const MAX_SEQUENCE: Field = Field::new("max_sequence", 48, 8, "highest sequence number in it");
const TAIL: Field = Field::new("tail", 56, 4, "where the last frame ends");
const EXPIRES_S: Field = Field::new(
    "expires_s",
    60,
    4,
    "when much of it will have expired, seconds since the Unix epoch; 0 never",
);
/// Layout of the footer.
pub(crate) const FIELDS: &[Field] =
    &[MAGIC, CRC, SEGMENT, EPOCH, START, ENTRY_BYTES, ENTRIES, STREAM, CHECK, MAX_SEQUENCE, TAIL, EXPIRES_S];
const _: () = assert!(is_dense(FIELDS, FOOTER_BYTES));

/// Summary entry of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key's digest.
    pub key_hash: KeyHash,
    /// Sequence number.
    pub sequence: u64,
    /// Byte offset in the segment.
    pub offset: u32,
    /// Length in bytes on the medium, with padding to the granule.
    pub bytes: u32,
    /// Put or tombstone.
    pub kind: Kind,
    /// Number of length classes by which the record would be longer uncompressed.
    pub expansion: u8,
    /// Expiry in milliseconds since the Unix epoch.
    pub expires_at_ms: Option<u64>,
}

impl Entry {
    /// Returns the entry of a record at `offset` that takes `padded_bytes` bytes there.
    #[inline]
    pub fn of_record(record: &Record<'_>, key_hash: KeyHash, offset: u32, padded_bytes: u32) -> Entry {
        Entry {
            key_hash,
            sequence: record.sequence,
            offset,
            bytes: padded_bytes,
            kind: record.kind,
            expansion: record.expansion(),
            expires_at_ms: record.expires_at_ms,
        }
    }

    /// Returns the size class of its location.
    #[inline]
    pub fn class(&self) -> u8 {
        class_with(self.offset, u64::from(self.bytes), self.expansion)
    }
}

/// Footer of a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    /// Number of the segment.
    pub segment: u64,
    /// Opening of the store in which it was sealed.
    pub epoch: u64,
    /// Byte offset in the segment at which the summary begins.
    pub start: u32,
    /// Length in bytes of the entries.
    pub entry_bytes: u32,
    /// Number of entries.
    pub entries: u32,
    /// Write stream.
    pub stream: Stream,
    /// Checksum of the entries.
    pub check: u64,
    /// Highest sequence number in the segment.
    pub max_sequence: u64,
    /// End of the last frame.
    pub tail: u32,
    /// Time at which a noticeable part of the segment will have expired, in seconds since the Unix epoch; 0: never.
    pub expires_s: u32,
}

/// Reciprocal of the share of a segment's bytes that must expire before the expiry sweep looks at it: 1/20.
const NOTICEABLE: u64 = 20;

/// Returns the time at which a noticeable part of the segment (or else all expiring records) will have expired,
/// counting only records that expire after `after_ms`.
pub fn next_expiry_ms(entries: impl IntoIterator<Item = Entry>, after_ms: u64) -> Option<u64> {
    let mut total = 0;
    let mut expiring: Vec<(u64, u64)> = Vec::new();
    for entry in entries {
        total += u64::from(entry.bytes);
        let later = entry.expires_at_ms.filter(|&at| entry.kind == Kind::Put && at > after_ms);
        expiring.extend(later.map(|at| (at, u64::from(entry.bytes))));
    }
    expiring.sort_unstable();
    let last = expiring.last()?.0;
    let mut expired = 0;
    let enough = |&(_, bytes): &(u64, u64)| {
        expired += bytes;
        expired * NOTICEABLE >= total
    };
    Some(expiring.iter().copied().find(enough).map_or(last, |(at, _)| at))
}

/// Returns an upper bound of the space of a summary with `entries` entries and its footer, in whole write units.
pub fn space_bytes(entries: usize, unit_bytes: usize) -> usize {
    (entries * MAX_ENTRY_BYTES + FOOTER_BYTES).next_multiple_of(unit_bytes)
}

/// Encodes the summary of a segment of `segment_bytes` bytes: the bytes to write at the segment's end, a whole number
/// of `unit_bytes`.
pub(crate) fn encode(
    entries: &EntryList,
    secret: &Secret,
    head: SummaryHead,
    segment_bytes: u32,
    unit_bytes: u32,
) -> Vec<u8> {
    let total = (entries.encoded_bytes() + FOOTER_BYTES).next_multiple_of(unit_bytes as usize);
    let mut body = Vec::with_capacity(total);
    entries.encode_into(&mut body);
    let entry_bytes = body.len() as u32;
    let check = secret.summary_check(head.segment, &body);
    let expires_ms = if entries.has_ends() { next_expiry_ms(entries, 0) } else { None };
    body.resize(total, 0);
    let footer = Footer {
        segment: head.segment,
        epoch: head.epoch,
        start: segment_bytes - total as u32,
        entry_bytes,
        entries: entries.len() as u32,
        stream: head.stream,
        check,
        max_sequence: entries.max_sequence(),
        tail: head.tail,
        expires_s: expires_ms.map_or(0, |ms| u32::try_from(ms.div_ceil(1000)).unwrap_or(u32::MAX)),
    };
    body[total - FOOTER_BYTES..].copy_from_slice(&footer.encode(secret, segment_bytes));
    body
}

/// Properties of a segment that are needed to seal it.
#[derive(Clone, Copy, Debug)]
pub struct SummaryHead {
    /// Number of the segment.
    pub segment: u64,
    /// This opening of the store.
    pub epoch: u64,
    /// Write stream.
    pub stream: Stream,
    /// End of the last frame.
    pub tail: u32,
}

impl Footer {
    fn encode(&self, secret: &Secret, segment_bytes: u32) -> [u8; FOOTER_BYTES] {
        let mut to = [0u8; FOOTER_BYTES];
        MAGIC.put(&mut to, MAGIC_VALUE);
        SEGMENT.put(&mut to, self.segment);
        EPOCH.put(&mut to, self.epoch);
        START.put(&mut to, u64::from(self.start));
        ENTRY_BYTES.put(&mut to, u64::from(self.entry_bytes));
        ENTRIES.put(&mut to, u64::from(self.entries));
        STREAM.put(&mut to, u64::from(self.stream.0));
        CHECK.put(&mut to, self.check);
        MAX_SEQUENCE.put(&mut to, self.max_sequence);
        TAIL.put(&mut to, u64::from(self.tail));
        EXPIRES_S.put(&mut to, u64::from(self.expires_s));
        let identity = secret.identity(self.segment, segment_bytes - FOOTER_BYTES as u32);
        let crc = identity.crc(&[&to[SEGMENT.offset..]]);
        CRC.put(&mut to, u64::from(crc));
        to
    }

    /// Returns a footer that replaces the lost one of a summary that does not verify. A reader that finds it scans the
    /// segment, and knows that all frames up to `tail` existed. It belongs to no opening, so that it proves nothing
    /// about other segments.
    pub fn in_place_of_lost(
        secret: &Secret,
        segment_bytes: u32,
        segment: u64,
        stream: Stream,
        tail: u32,
    ) -> [u8; FOOTER_BYTES] {
        let start = segment_bytes - FOOTER_BYTES as u32;
        let footer = Footer {
            segment,
            epoch: 0,
            start,
            entry_bytes: 0,
            entries: 0,
            stream,
            check: !secret.summary_check(segment, &[]),
            max_sequence: 0,
            tail: tail.min(start),
            expires_s: 0,
        };
        footer.encode(secret, segment_bytes)
    }

    /// Parses the footer from a segment's last [`FOOTER_BYTES`]. `None` if there is no valid one.
    pub fn parse(bytes: &[u8], secret: &Secret, segment_bytes: u32) -> Option<Footer> {
        let from = bytes.get(..FOOTER_BYTES)?;
        let offset = segment_bytes.checked_sub(FOOTER_BYTES as u32)?;
        if MAGIC.get(from) != MAGIC_VALUE {
            return None;
        }
        let footer = Footer {
            segment: SEGMENT.get(from),
            epoch: EPOCH.get(from),
            start: START.get(from) as u32,
            entry_bytes: ENTRY_BYTES.get(from) as u32,
            entries: ENTRIES.get(from) as u32,
            stream: Stream(STREAM.get(from) as u8),
            check: CHECK.get(from),
            max_sequence: MAX_SEQUENCE.get(from),
            tail: TAIL.get(from) as u32,
            expires_s: EXPIRES_S.get(from) as u32,
        };
        let end = u64::from(footer.start) + u64::from(footer.entry_bytes) + FOOTER_BYTES as u64;
        let sane = end <= u64::from(segment_bytes)
            && footer.tail <= footer.start
            && STREAM.get(from) <= u64::from(u8::MAX)
            && footer.stream.is_known()
            && u64::from(footer.entries) * DIGEST_BYTES as u64 <= u64::from(footer.entry_bytes);
        let identity = secret.identity(footer.segment, offset);
        (sane && u64::from(identity.crc(&[&from[SEGMENT.offset..]])) == CRC.get(from)).then_some(footer)
    }

    /// Returns the length of the summary with footer and padding.
    pub fn summary_bytes(&self, segment_bytes: u32) -> u32 {
        segment_bytes - self.start
    }

    /// Decodes the entries from the summary's bytes. `None` if they are damaged.
    pub fn entries(&self, summary: &[u8], secret: &Secret) -> Option<EntryList> {
        EntryList::decode(self.verified(summary, secret)?, self.entries as usize)
    }

    /// Returns the bytes of the entries, if their checksum matches.
    fn verified<'a>(&self, summary: &'a [u8], secret: &Secret) -> Option<&'a [u8]> {
        let body = summary.get(..self.entry_bytes as usize)?;
        (secret.summary_check(self.segment, body) == self.check).then_some(body)
    }

    /// Calls `f` with every entry, in the order of their offsets. Returns `None` if the summary is damaged; `f` was
    /// then not called, unless the checksum had been computed over invalid entries.
    pub fn for_each_entry(&self, summary: &[u8], secret: &Secret, f: impl FnMut(Entry)) -> Option<()> {
        let body = self.verified(summary, secret)?;
        let (digests, numbers) = body.split_at_checked(self.entries as usize * DIGEST_BYTES)?;
        entries::for_each_entry(digests, numbers, f)
    }
}
