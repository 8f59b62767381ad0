//! A segment's summary: what lies in it, so that opening the store and relocating need not read the records.
//!
//! ```text
//! … last frame | gap | hashes: 16 bytes a record | numbers: LEB128, a few bytes a record | zeros | footer (64)
//! ```
//!
//! It ends exactly at the segment's end, where the footer is found. Its own checksum makes rot in a record show as
//! *this key is damaged*, never as an older value.
use esker_index::KeyHash;

use crate::checksum::Secret;
use crate::frame::Stream;
use crate::layout::{Field, is_dense};
use crate::location::class_with;
use crate::record::Kind;

/// Length of the footer.
pub const FOOTER_BYTES: usize = 64;
const MAGIC_VALUE: u64 = u32::from_le_bytes(*b"ESUM") as u64;
const DIGEST_BYTES: usize = 16;
/// Flag beside the kind: an expiry follows.
const EXPIRES: u64 = 1 << 6;
/// Beside the kind, four bits: by how many size classes it would be longer if its value were not compressed.
const EXPANSION_SHIFT: u32 = 2;
const EXPANSION_MASK: u64 = 15;
/// Longest entry: key_hash, and at most 10 + 5 + 5 + 10 + 1 bytes of numbers.
pub const MAX_ENTRY_BYTES: usize = DIGEST_BYTES + 31;

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
    /// Length on the medium without padding.
    pub bytes: u32,
    /// What the record says.
    pub kind: Kind,
    /// By how many size classes it would be longer if its value were not compressed.
    pub expansion: u8,
    /// When it expires.
    pub expires_at_ms: Option<u64>,
}

impl Entry {
    /// The class of its location.
    #[inline]
    pub fn class(&self) -> u8 {
        class_with(u64::from(self.bytes), self.expansion)
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
pub fn next_expiry_ms<'a>(entries: impl IntoIterator<Item = &'a Entry>, after_ms: u64) -> Option<u64> {
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

/// Space that an entry takes after another (or none), without the footer.
pub(crate) fn entry_bytes(entry: &Entry, before: Option<&Entry>) -> usize {
    let (sequence, end) = before.map_or((0, 0), |b| (b.sequence, b.offset + b.bytes));
    let numbers = [
        zigzag(entry.sequence.wrapping_sub(sequence) as i64),
        u64::from(entry.offset - end),
        u64::from(entry.bytes),
        EXPIRES,
    ];
    let varint = |value: u64| (64 - (value | 1).leading_zeros() as usize).div_ceil(7);
    DIGEST_BYTES + numbers.into_iter().chain(entry.expires_at_ms).map(varint).sum::<usize>()
}

fn put_varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

#[inline]
fn get_varint(from: &mut &[u8]) -> Option<u64> {
    let Some(head) = from.first_chunk::<8>() else { return get_long_varint(from) };
    let word = u64::from_le_bytes(*head);
    // The highest bit of a byte says whether another follows.
    let ends = !word & 0x8080_8080_8080_8080;
    if ends == 0 {
        return get_long_varint(from);
    }
    let bits = ends.trailing_zeros() + 1;
    *from = &from[bits as usize / 8..];
    // Seven bits of each byte, put together in pairs.
    let word = word & (u64::MAX >> (u64::BITS - bits)) & 0x7f7f_7f7f_7f7f_7f7f;
    let word = word & 0x007f_007f_007f_007f | (word & 0x7f00_7f00_7f00_7f00) >> 1;
    let word = word & 0x0000_3fff_0000_3fff | (word & 0x3fff_0000_3fff_0000) >> 2;
    Some(word & 0x0fff_ffff | (word & 0x0fff_ffff_0000_0000) >> 4)
}

/// The numbers of an entry: difference of sequence numbers, gap, length, kind.
#[inline]
fn get_numbers(from: &mut &[u8]) -> Option<[u64; 4]> {
    if let Some(head) = from.first_chunk::<8>() {
        let word = u64::from_le_bytes(*head);
        // Most have two bytes of length, and one of everything else.
        if word & 0x80_80_80_80_80 == 0x00_00_80_00_00 {
            *from = &from[5..];
            let byte = |at: u32| word >> (8 * at) & 0x7f;
            return Some([byte(0), byte(1), byte(2) | byte(3) << 7, byte(4)]);
        }
    }
    Some([get_varint(from)?, get_varint(from)?, get_varint(from)?, get_varint(from)?])
}

/// One of more than eight bytes, or near the end.
#[cold]
fn get_long_varint(from: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = from.split_first()?;
        *from = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// The summary of a segment of `segment_bytes`: the bytes to write so that they end at the segment's end, a whole
/// number of `unit_bytes`. The entries are in the order of their offsets.
pub(crate) fn encode(
    entries: &[Entry],
    secret: &Secret,
    head: SummaryHead,
    segment_bytes: u32,
    unit_bytes: u32,
) -> Vec<u8> {
    let mut body = Vec::with_capacity(entries.len() * (DIGEST_BYTES + 8) + FOOTER_BYTES);
    for entry in entries {
        body.extend_from_slice(&entry.key_hash.slot.to_le_bytes());
        body.extend_from_slice(&entry.key_hash.check.to_le_bytes());
    }
    let (mut sequence, mut end) = (0u64, 0u32);
    for entry in entries {
        put_varint(&mut body, zigzag(entry.sequence.wrapping_sub(sequence) as i64));
        let gap = entry.offset.checked_sub(end).expect("entries are in the order of their offsets");
        put_varint(&mut body, u64::from(gap));
        put_varint(&mut body, u64::from(entry.bytes));
        let expires = entry.expires_at_ms.is_some();
        let expansion = u64::from(entry.expansion) << EXPANSION_SHIFT;
        put_varint(&mut body, entry.kind as u64 | expansion | if expires { EXPIRES } else { 0 });
        if let Some(expiry) = entry.expires_at_ms {
            put_varint(&mut body, expiry);
        }
        (sequence, end) = (entry.sequence, entry.offset + entry.bytes);
    }
    let entry_bytes = body.len() as u32;
    let check = secret.summary_check(head.segment, &body);
    let total = (body.len() + FOOTER_BYTES).next_multiple_of(unit_bytes as usize);
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
            stream: Stream(STREAM.get(from) as u32),
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
    pub fn entries(&self, summary: &[u8], secret: &Secret) -> Option<Vec<Entry>> {
        let mut entries = Vec::new();
        self.for_each_entry(summary, secret, |entry| entries.push(entry))?;
        Some(entries)
    }

    /// Calls `f` with every entry, in the order of their offsets. `None`: the summary is damaged. Then `f` was not called,
    /// unless by whoever wrote the summary the checksum was made over nonsense.
    pub fn for_each_entry(&self, summary: &[u8], secret: &Secret, mut f: impl FnMut(Entry)) -> Option<()> {
        let body = summary.get(..self.entry_bytes as usize)?;
        if secret.summary_check(self.segment, body) != self.check {
            return None;
        }
        let (digests, mut numbers) = body.split_at_checked(self.entries as usize * DIGEST_BYTES)?;
        let (mut sequence, mut end) = (0u64, 0u32);
        for digest in digests.chunks_exact(DIGEST_BYTES) {
            let [step, gap, bytes, kind] = get_numbers(&mut numbers)?;
            sequence = sequence.wrapping_add(unzigzag(step) as u64);
            let offset = end.checked_add(u32::try_from(gap).ok()?)?;
            let bytes = u32::try_from(bytes).ok()?;
            let expires_at_ms = if kind & EXPIRES != 0 { Some(get_varint(&mut numbers)?) } else { None };
            let expansion = (kind >> EXPANSION_SHIFT & EXPANSION_MASK) as u8;
            let half = |at: usize| u64::from_le_bytes(digest[at..at + 8].try_into().expect("eight bytes"));
            f(Entry {
                key_hash: KeyHash { slot: half(0), check: half(8) },
                sequence,
                offset,
                bytes,
                kind: Kind::from_byte(kind & !(EXPIRES | EXPANSION_MASK << EXPANSION_SHIFT))?,
                expansion,
                expires_at_ms,
            });
            end = offset.checked_add(bytes)?;
        }
        numbers.is_empty().then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_all_lengths_survive() {
        let edges = (0..64).flat_map(|shift| [(1u64 << shift) - 1, 1 << shift, u64::MAX - (1 << shift)]);
        let numbers: Vec<u64> = edges.chain([u64::MAX]).collect();
        // Whatever lies in front and behind: lengths differ, and the last ones are near the end.
        let mut bytes = Vec::new();
        numbers.iter().for_each(|number| put_varint(&mut bytes, *number));
        let mut rest = &bytes[..];
        let found: Vec<u64> = numbers.iter().map_while(|_| get_varint(&mut rest)).collect();
        assert_eq!(found, numbers);
        assert!(rest.is_empty() && get_varint(&mut rest).is_none());
        for four in numbers.windows(4).chain([&[2, 9, 150, 1][..], &[2, 9, 16_383, 1], &[2, 9, 127, 1]]) {
            for behind in [0, 8] {
                let mut bytes = Vec::new();
                four.iter().for_each(|number| put_varint(&mut bytes, *number));
                bytes.extend_from_slice(&vec![0xff; behind]);
                let mut rest = &bytes[..];
                assert_eq!(get_numbers(&mut rest).as_ref().map(|found| &found[..]), Some(four));
                assert_eq!(rest.len(), behind);
            }
        }
    }

    #[test]
    fn a_number_that_does_not_end_is_none() {
        for len in 0..16 {
            assert_eq!(get_varint(&mut &vec![0xff; len][..]), None);
        }
    }
}
