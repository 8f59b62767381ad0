//! The entries of a segment in memory, encoded as in its summary: 15 bytes for most records, where an [`Entry`] takes
//! 56.
//!
//! A small record is shorter than an [`Entry`]. Lists of entries exist for each segment that is being filled, is part
//! of a memtable, or is being relocated; as [`Entry`]s they would take more memory than the segments.
//!
//! Invariant: the entries are in the order of their offsets, and their bytes were written by [`push`](EntryList::push)
//! or have been decoded successfully once.

use std::fmt;

use esker_index::KeyHash;

use crate::checksum::kept;
use crate::header::Kind;
use crate::location::MIN_GRANULE_BYTES;
use crate::summary::Entry;
use crate::varint::{get_varint, put_varint};

pub(crate) const DIGEST_BYTES: usize = 14;
/// Maximum bytes of an entry's numbers.
pub(crate) const MAX_NUMBERS_BYTES: usize = 31;
/// Flags of an unusual entry; they determine the numbers that follow.
const TOMBSTONE: u8 = 1;
const EXPIRES: u8 = 1 << 1;
const GAP: u8 = 1 << 2;
const STEP: u8 = 1 << 3;
/// Four bits: number of length classes by which the record would be longer uncompressed.
const EXPANSION_SHIFT: u32 = 4;
const EXPANSION_MASK: u8 = 15;
/// A full list grows by its length divided by this. After doubling, half of the list could stay empty.
const GROWTH_DIVISOR: usize = 4;
/// Initial capacity in entries.
const LEAST_ENTRIES: usize = 64;

/// Entries in the order of their offsets.
#[derive(Clone, Default)]
pub struct EntryList {
    /// [`DIGEST_BYTES`] bytes per entry.
    digests: Vec<u8>,
    /// Numbers of each entry, encoded as in a summary.
    numbers: Vec<u8>,
    last: Option<Entry>,
    max_sequence: u64,
    has_ends: bool,
}

impl EntryList {
    /// Returns an empty list.
    pub fn new() -> EntryList {
        EntryList::default()
    }

    /// Decodes the bytes of a summary's entries, which begin with `count` digests. `None` if they are invalid.
    pub(crate) fn decode(body: &[u8], count: usize) -> Option<EntryList> {
        let (digests, numbers) = body.split_at_checked(count.checked_mul(DIGEST_BYTES)?)?;
        let mut list =
            EntryList { digests: digests.to_vec(), numbers: numbers.to_vec(), ..EntryList::default() };
        for_each_entry(digests, numbers, |entry| list.note(entry))?;
        Some(list)
    }

    /// Returns the number of entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.digests.len() / DIGEST_BYTES
    }

    /// True if there is no entry.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.digests.is_empty()
    }

    /// Returns the last entry.
    #[inline]
    pub fn last(&self) -> Option<&Entry> {
        self.last.as_ref()
    }

    /// Returns the highest sequence number; 0 without entries.
    pub fn max_sequence(&self) -> u64 {
        self.max_sequence
    }

    /// True if an entry is a tombstone or expires. Most lists have none, and need not be decoded to look for them.
    pub fn has_ends(&self) -> bool {
        self.has_ends
    }

    /// Notes the facts of another entry.
    #[inline]
    fn note(&mut self, entry: Entry) {
        self.max_sequence = self.max_sequence.max(entry.sequence);
        self.has_ends |= entry.kind == Kind::Tombstone || entry.expires_at_ms.is_some();
        self.last = Some(entry);
    }

    /// Returns the bytes of the entries in a summary, without its footer.
    #[inline]
    pub fn encoded_bytes(&self) -> usize {
        self.digests.len() + self.numbers.len()
    }

    /// Returns the bytes of memory that the list has allocated.
    pub fn memory_bytes(&self) -> usize {
        self.digests.capacity() + self.numbers.capacity()
    }

    /// Appends an entry.
    ///
    /// # Panics
    /// If it begins before the last one ends.
    #[inline]
    pub fn push(&mut self, entry: Entry) {
        if self.digests.capacity() - self.digests.len() < DIGEST_BYTES
            || self.numbers.capacity() - self.numbers.len() < MAX_NUMBERS_BYTES
        {
            self.grow();
        }
        let (sequence, end) =
            self.last.as_ref().map_or((0, 0), |last| (last.sequence, last.offset + last.bytes));
        let step = entry.sequence.wrapping_sub(sequence);
        let gap = entry.offset.checked_sub(end).expect("entries are in the order of their offsets");
        let KeyHash { slot, check } = entry.key_hash;
        let mut digest = [0; DIGEST_BYTES];
        digest[..8].copy_from_slice(&check.to_le_bytes());
        digest[8..].copy_from_slice(&slot.to_le_bytes()[2..]);
        self.digests.extend_from_slice(&digest);
        let flags = unusual(&entry, step, gap);
        put_varint(&mut self.numbers, units(entry.bytes) << 1 | u64::from(flags != 0));
        if flags != 0 {
            self.numbers.push(flags);
            if flags & STEP != 0 {
                put_varint(&mut self.numbers, zigzag(step as i64));
            }
            if flags & GAP != 0 {
                put_varint(&mut self.numbers, units(gap));
            }
            if let Some(expiry) = entry.expires_at_ms {
                put_varint(&mut self.numbers, expiry);
            }
        }
        self.note(entry);
    }

    /// Reserves memory for a few more entries.
    #[cold]
    fn grow(&mut self) {
        let more = |bytes: usize, least: usize| (bytes / GROWTH_DIVISOR).max(LEAST_ENTRIES * least);
        if self.digests.capacity() - self.digests.len() < DIGEST_BYTES {
            self.digests.reserve_exact(more(self.digests.len(), DIGEST_BYTES));
        }
        if self.numbers.capacity() - self.numbers.len() < MAX_NUMBERS_BYTES {
            self.numbers.reserve_exact(more(self.numbers.len(), MAX_NUMBERS_BYTES));
        }
    }

    /// Removes all entries, and keeps the memory.
    pub fn clear(&mut self) {
        self.digests.clear();
        self.numbers.clear();
        (self.last, self.max_sequence, self.has_ends) = (None, 0, false);
    }

    /// Keeps only the entries for which `keeps` returns true.
    pub fn retain(&mut self, mut keeps: impl FnMut(&Entry) -> bool) {
        *self = self.iter().filter(|entry| keeps(entry)).collect();
    }

    /// Iterates over the entries.
    pub fn iter(&self) -> Entries<'_> {
        self.iter_from(Position::default())
    }

    /// Iterates over the entries from a position that an iteration over the same list [returned](Entries::position).
    /// Entries may have been appended since.
    pub fn iter_from(&self, position: Position) -> Entries<'_> {
        Entries { list: self, position }
    }

    /// Appends the digests of all entries and then their numbers to `body`: the start of a summary.
    pub(crate) fn encode_into(&self, body: &mut Vec<u8>) {
        body.extend_from_slice(&self.digests);
        body.extend_from_slice(&self.numbers);
    }

    fn next(&self, position: &mut Position) -> Option<Entry> {
        let (digest, _) = self.digests.get(position.digest..)?.split_first_chunk::<DIGEST_BYTES>()?;
        let mut numbers = &self.numbers[position.numbers..];
        let before = numbers.len();
        let entry = decode_one(digest, &mut numbers, position.sequence, position.end)
            .expect("the list was encoded here, or decoded before");
        position.digest += DIGEST_BYTES;
        position.numbers += before - numbers.len();
        (position.sequence, position.end) = (entry.sequence, entry.offset + entry.bytes);
        Some(entry)
    }
}

impl fmt::Debug for EntryList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

impl PartialEq for EntryList {
    fn eq(&self, other: &EntryList) -> bool {
        self.digests == other.digests && self.numbers == other.numbers
    }
}

impl Eq for EntryList {}

impl FromIterator<Entry> for EntryList {
    fn from_iter<I: IntoIterator<Item = Entry>>(entries: I) -> EntryList {
        let mut list = EntryList::new();
        entries.into_iter().for_each(|entry| list.push(entry));
        list
    }
}

impl<'a> IntoIterator for &'a EntryList {
    type Item = Entry;
    type IntoIter = Entries<'a>;

    fn into_iter(self) -> Entries<'a> {
        self.iter()
    }
}

impl IntoIterator for EntryList {
    type Item = Entry;
    type IntoIter = OwnedEntries;

    fn into_iter(self) -> OwnedEntries {
        OwnedEntries { list: self, position: Position::default() }
    }
}

/// Position of an iteration in a list.
#[derive(Clone, Copy, Debug, Default)]
pub struct Position {
    digest: usize,
    numbers: usize,
    /// Sequence number of the previous entry; `end` is the end of its record.
    sequence: u64,
    end: u32,
}

/// An iterator over the entries of a list.
#[derive(Clone)]
pub struct Entries<'a> {
    list: &'a EntryList,
    position: Position,
}

impl Entries<'_> {
    /// Returns the position of the next entry.
    pub fn position(&self) -> Position {
        self.position
    }
}

impl Iterator for Entries<'_> {
    type Item = Entry;

    #[inline]
    fn next(&mut self) -> Option<Entry> {
        self.list.next(&mut self.position)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.list.digests.len() - self.position.digest) / DIGEST_BYTES;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Entries<'_> {}

/// An iterator that owns its list.
pub struct OwnedEntries {
    list: EntryList,
    position: Position,
}

impl Iterator for OwnedEntries {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        self.list.next(&mut self.position)
    }
}

/// Calls `f` with every entry of these digests and numbers. Returns `None` if they are invalid; `f` may have been
/// called.
pub(crate) fn for_each_entry(digests: &[u8], mut numbers: &[u8], mut f: impl FnMut(Entry)) -> Option<()> {
    let (mut sequence, mut end) = (0u64, 0u32);
    let (digests, rest) = digests.as_chunks::<DIGEST_BYTES>();
    debug_assert!(rest.is_empty());
    for digest in digests {
        let entry = decode_one(digest, &mut numbers, sequence, end)?;
        (sequence, end) = (entry.sequence, entry.offset.checked_add(entry.bytes)?);
        f(entry);
    }
    numbers.is_empty().then_some(())
}

/// Decodes the entry of a digest, and consumes its numbers at the front. `sequence` and `end` are those of the previous
/// entry.
#[inline]
fn decode_one(digest: &[u8; DIGEST_BYTES], numbers: &mut &[u8], sequence: u64, end: u32) -> Option<Entry> {
    let bytes_of = |units: u64| u32::try_from(units.checked_mul(MIN_GRANULE_BYTES)?).ok();
    let (length, is_unusual) = get_length(numbers)?;
    let (mut kind, mut expires_at_ms, mut offset, mut step) = (Kind::Put, None, end, 1);
    let mut expansion = 0;
    if is_unusual {
        let (&flags, rest) = numbers.split_first()?;
        *numbers = rest;
        if flags == 0 {
            return None;
        }
        expansion = flags >> EXPANSION_SHIFT;
        if flags & STEP != 0 {
            step = unzigzag(get_varint(numbers)?) as u64;
        }
        if flags & GAP != 0 {
            offset = end.checked_add(bytes_of(get_varint(numbers)?)?)?;
        }
        if flags & EXPIRES != 0 {
            expires_at_ms = Some(get_varint(numbers)?);
        }
        if flags & TOMBSTONE != 0 {
            kind = Kind::Tombstone;
        }
    }
    let bytes = bytes_of(length)?;
    let word = |at: usize| u64::from_le_bytes(digest[at..at + 8].try_into().expect("eight bytes"));
    // The last two bytes of the check are in the place of the discarded half.
    let key_hash = kept(word(DIGEST_BYTES - 8), word(0));
    if !key_hash.has_keyspace() {
        return None;
    }
    Some(Entry {
        key_hash,
        sequence: sequence.wrapping_add(step),
        offset,
        bytes,
        kind,
        expansion,
        expires_at_ms,
    })
}

/// Returns the flags by which an entry differs from a put without expiry that follows the previous record in position
/// and number and is not compressed to a smaller length class.
#[inline]
fn unusual(entry: &Entry, step: u64, gap: u32) -> u8 {
    let flag = |set: bool, bit: u8| if set { bit } else { 0 };
    flag(entry.kind == Kind::Tombstone, TOMBSTONE)
        | flag(entry.expires_at_ms.is_some(), EXPIRES)
        | flag(gap != 0, GAP)
        | flag(step != 1, STEP)
        | (entry.expansion & EXPANSION_MASK) << EXPANSION_SHIFT
}

/// Decodes the length of an entry in granules of minimum size. The second value is true if the entry has flags.
#[inline]
fn get_length(from: &mut &[u8]) -> Option<(u64, bool)> {
    // Fast paths: most records are shorter than 256 bytes, or than 32 KiB.
    if let Some(&[low, high]) = from.first_chunk::<2>() {
        let number = if low < 0x80 {
            *from = &from[1..];
            low.into()
        } else if high < 0x80 {
            *from = &from[2..];
            u64::from(low & 0x7f) | u64::from(high) << 7
        } else {
            get_varint(from)?
        };
        return Some((number >> 1, number & 1 != 0));
    }
    get_varint(from).map(|number| (number >> 1, number & 1 != 0))
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Converts a length or an offset to granules of minimum size.
fn units(bytes: u32) -> u64 {
    let bytes = u64::from(bytes);
    assert!(
        bytes.is_multiple_of(MIN_GRANULE_BYTES),
        "{bytes} bytes are not a multiple of the smallest granule"
    );
    bytes / MIN_GRANULE_BYTES
}

#[cfg(test)]
#[path = "entries_tests.rs"]
mod tests;
