//! A segment's summary: what lies in it, so that opening the store and relocating need not read the records.
//!
//! ```text
//! … last frame | gap | digests: 14 bytes a record | numbers: LEB128, one byte of most records | zeros | footer (64)
//! ```
//!
//! It ends exactly at the segment's end, where the footer is found. Its own checksum makes rot in a record show as
//! *this key is damaged*, never as an older value.
use esker_index::KeyHash;

use crate::checksum::Secret;
use crate::entries::{self, DIGEST_BYTES, EntryList, MAX_NUMBERS_BYTES};
use crate::frame::Stream;
use crate::header::Kind;
use crate::layout::{Field, is_dense};
use crate::location::class_with;
use crate::record::Record;

/// Length of the footer.
pub const FOOTER_BYTES: usize = 64;
const MAGIC_VALUE: u64 = u32::from_le_bytes(*b"ESUM") as u64;
/// Longest entry: a digest, and at most 5 + 1 + 10 + 5 + 10 bytes of numbers.
pub const MAX_ENTRY_BYTES: usize = DIGEST_BYTES + MAX_NUMBERS_BYTES;
/// What an entry is counted as where it is not known: 15 bytes if the record follows the one before in place and in number, about
/// 20 if it was moved, and 6 more if it expires.
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
/// The footer's layout.
pub(crate) const FIELDS: &[Field] =
    &[MAGIC, CRC, SEGMENT, EPOCH, START, ENTRY_BYTES, ENTRIES, STREAM, CHECK, MAX_SEQUENCE, TAIL, EXPIRES_S];
const _: () = assert!(is_dense(FIELDS, FOOTER_BYTES));

/// What a summary says of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key's digest.
    pub key_hash: KeyHash,
    /// Sequence number.
    pub sequence: u64,
    /// Byte offset in the segment.
    pub offset: u32,
    /// Length on the medium, with the padding to the granule.
    pub bytes: u32,
    /// What the record says.
    pub kind: Kind,
    /// By how many length classes it would be longer if its value were not compressed.
    pub expansion: u8,
    /// When it expires.
    pub expires_at_ms: Option<u64>,
}

impl Entry {
    /// Of a record that lies at an offset and takes so many bytes there.
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

    /// The class of its location.
    #[inline]
    pub fn class(&self) -> u8 {
        class_with(self.offset, u64::from(self.bytes), self.expansion)
    }
}

/// A summary's footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    /// Number of the segment.
    pub segment: u64,
    /// Opening of the store in which it was sealed.
    pub epoch: u64,
    /// Where in the segment the summary begins.
    pub start: u32,
    /// Length of the entries.
    pub entry_bytes: u32,
    /// Number of entries.
    pub entries: u32,
    /// Which flow of records.
    pub stream: Stream,
    /// Checksum of the entries.
    pub check: u64,
    /// Highest sequence number in it.
    pub max_sequence: u64,
    /// Where the last frame ends.
    pub tail: u32,
    /// When a noticeable part of it will have expired, in seconds since the Unix epoch; 0: never.
    pub expires_s: u32,
}

/// A part of a segment that is worth looking for when it has expired: one in so many bytes.
const NOTICEABLE: u64 = 20;

/// When a noticeable part of the records will have expired that expire after `after_ms`, or all of these records.
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

/// Upper bound of the space that a summary of so many entries takes, with its footer, in whole write units.
pub fn space_bytes(entries: usize, unit_bytes: usize) -> usize {
    (entries * MAX_ENTRY_BYTES + FOOTER_BYTES).next_multiple_of(unit_bytes)
}

/// The summary of a segment of `segment_bytes`: the bytes to write so that they end at the segment's end, a whole
/// number of `unit_bytes`.
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
    body.resize(total, 0);
    let footer = Footer {
        segment: head.segment,
        epoch: head.epoch,
        start: segment_bytes - total as u32,
        entry_bytes,
        entries: entries.len() as u32,
        stream: head.stream,
        check,
        max_sequence: entries.iter().map(|e| e.sequence).max().unwrap_or(0),
        tail: head.tail,
        expires_s: next_expiry_ms(entries, 0)
            .map_or(0, |ms| u32::try_from(ms.div_ceil(1000)).unwrap_or(u32::MAX)),
    };
    body[total - FOOTER_BYTES..].copy_from_slice(&footer.encode(secret, segment_bytes));
    body
}

/// What the one who seals a segment knows of it.
#[derive(Clone, Copy, Debug)]
pub struct SummaryHead {
    /// Number of the segment.
    pub segment: u64,
    /// This opening of the store.
    pub epoch: u64,
    /// Which flow of records.
    pub stream: Stream,
    /// Where the last frame ends.
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

    /// The bytes of a footer that stands for one that is lost: of a summary that does not verify. Whoever finds it scans the segment,
    /// and knows that all frames up to `tail` were there. It is of no opening, so that it says nothing of other segments.
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

    /// Reads the footer from a segment's last [`FOOTER_BYTES`]. `None`: there is no valid one.
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
            && u64::from(footer.entries) * DIGEST_BYTES as u64 <= u64::from(footer.entry_bytes);
        let identity = secret.identity(footer.segment, offset);
        (sane && u64::from(identity.crc(&[&from[SEGMENT.offset..]])) == CRC.get(from)).then_some(footer)
    }

    /// Length of the summary with footer and padding.
    pub fn summary_bytes(&self, segment_bytes: u32) -> u32 {
        segment_bytes - self.start
    }

    /// The entries, from the summary's bytes. `None`: they are damaged.
    pub fn entries(&self, summary: &[u8], secret: &Secret) -> Option<EntryList> {
        EntryList::decode(self.verified(summary, secret)?, self.entries as usize)
    }

    /// The bytes of the entries, if their checksum agrees.
    fn verified<'a>(&self, summary: &'a [u8], secret: &Secret) -> Option<&'a [u8]> {
        let body = summary.get(..self.entry_bytes as usize)?;
        (secret.summary_check(self.segment, body) == self.check).then_some(body)
    }

    /// Calls `f` with every entry, in the order of their offsets. `None`: the summary is damaged. Then `f` was not called,
    /// unless by whoever wrote the summary the checksum was made over nonsense.
    pub fn for_each_entry(&self, summary: &[u8], secret: &Secret, f: impl FnMut(Entry)) -> Option<()> {
        let body = self.verified(summary, secret)?;
        let (digests, numbers) = body.split_at_checked(self.entries as usize * DIGEST_BYTES)?;
        entries::for_each_entry(digests, numbers, f)
    }
}
