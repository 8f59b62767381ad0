//! All versions of the keys of a range, grouped by key, to find the newest of each.
//!
//! Every summary entry is kept in 40 bytes, distributed over parts by the key's digest. The parts are then
//! sorted one by one. The whole digest is kept, so two keys are never confused.
//!
//! Memory is limited. When a part is full:
//!
//! 1. Versions outside the range are removed.
//! 2. If that is not enough, the part is sorted and folded (`fold`): superseded versions of a key become a
//!    counter.
//! 3. If that is not enough either, the range is halved. A later pass reads the keys that fell out of it.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use esker_log::{Entry, KeyHash, Kind, Location, Tier};

use crate::fold::fold;
use crate::watch::{cores, in_parallel, readers};

/// Maximum number of digest bits that choose the part of a key.
const PART_BITS_MAX: u32 = 8;
/// Number of versions of which a part has memory, unless there is but one part.
const LEAST_IN_PART: usize = 64;
/// Number of groups in a part, chosen by the digest bits after those that choose the part.
const GROUPS: usize = 1 << GROUP_BITS;
const GROUP_BITS: u32 = 12;
/// Maximum number of versions that a thread collects before it appends them to their part.
const BATCH: usize = 64;
/// Number of upper digest bits that choose the unit of a key. A range is a range of units.
const UNIT_BITS: u32 = 16;
/// All keys.
pub(crate) const UNITS: Range<u32> = 0..1 << UNIT_BITS;

/// Bytes per version.
pub(crate) const VERSION_BYTES: u64 = size_of::<Version>() as u64;

/// One version of a key, or a counter of folded versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) hash: KeyHash,
    pub(crate) sequence: u64,
    place: u64,
    /// Length, ordinal and flags; of a counter the number of versions and flags.
    rest: u64,
}

const CAPACITY: u64 = 1 << 63;
const SLOT_SHIFT: u32 = 32;

const TOMBSTONE: u64 = 1 << 0;
const DAMAGED: u64 = 1 << 1;
const EXPIRES: u64 = 1 << 2;
const COUNTER: u64 = 1 << 3;
const FLAG_BITS: u32 = 4;
const ORDINAL_BITS: u32 = 28;
const LENGTH_SHIFT: u32 = 32;

/// Returns a number that identifies a location and sorts in the order of locations.
pub(crate) fn place_of(tier: Tier, slot: u32, offset: u32) -> u64 {
    let tier = if tier == Tier::Capacity { CAPACITY } else { 0 };
    tier | u64::from(slot) << SLOT_SHIFT | u64::from(offset)
}

impl Version {
    /// `ordinal`: the position of the entry among those of its segment, in the order of offsets.
    pub(crate) fn new(tier: Tier, slot: u32, ordinal: u32, entry: &Entry, damaged: bool) -> Version {
        let flag = |set: bool, bit: u64| if set { bit } else { 0 };
        let flags = flag(entry.kind == Kind::Tombstone, TOMBSTONE)
            | flag(damaged, DAMAGED)
            | flag(entry.expires_at_ms.is_some(), EXPIRES);
        let rest = u64::from(entry.bytes) << LENGTH_SHIFT | u64::from(ordinal) << FLAG_BITS | flags;
        let place = place_of(tier, slot, entry.offset);
        Version { hash: entry.key_hash, sequence: entry.sequence, place, rest }
    }

    /// Returns a counter of `count` superseded versions of a key. It sorts behind all its versions.
    pub(crate) fn counter(hash: KeyHash, count: u64) -> Version {
        Version { hash, sequence: 0, place: u64::MAX, rest: count << FLAG_BITS | DAMAGED | COUNTER }
    }

    /// Returns its location: tier, slot, offset.
    pub(crate) fn location(&self) -> Location {
        let tier = if self.place & CAPACITY == 0 { Tier::Fast } else { Tier::Capacity };
        let slot = ((self.place & !CAPACITY) >> SLOT_SHIFT) as u32;
        Location { tier, slot, offset: self.place as u32, class: 0 }
    }

    /// Returns a number that identifies its location and sorts in the order of locations.
    pub(crate) fn place(&self) -> u64 {
        self.place
    }

    /// Returns the position of its entry among those of its segment, in the order of offsets.
    pub(crate) fn ordinal(&self) -> u32 {
        (self.rest >> FLAG_BITS) as u32 & ((1 << ORDINAL_BITS) - 1)
    }

    pub(crate) fn is_tombstone(&self) -> bool {
        self.rest & TOMBSTONE != 0
    }

    /// Returns true if the record is damaged. A counter has no record, and counts as damaged.
    pub(crate) fn is_damaged(&self) -> bool {
        self.rest & DAMAGED != 0
    }

    pub(crate) fn expires(&self) -> bool {
        self.rest & EXPIRES != 0
    }

    pub(crate) fn is_counter(&self) -> bool {
        self.rest & COUNTER != 0
    }

    /// Returns the number of versions that it stands for.
    pub(crate) fn count(&self) -> u64 {
        if self.is_counter() { self.rest >> FLAG_BITS } else { 1 }
    }

    /// Returns the length of the record in bytes, with padding to the granule.
    pub(crate) fn padded_bytes(&self) -> u32 {
        (self.rest >> LENGTH_SHIFT) as u32
    }

    /// Sort order: by key, in the order of parts and groups; of one key the newest first; of copies of one
    /// version a tombstone first, because it says that the version was dropped or has expired.
    fn order(&self) -> (u64, u64, Reverse<u64>, bool, u64) {
        let key = spread(&self.hash);
        (key, self.hash.check, Reverse(self.sequence), !self.is_tombstone(), self.place)
    }
}

/// Returns the number of versions that these stand for.
pub(crate) fn count(versions: &[Version]) -> u64 {
    versions.iter().map(Version::count).sum()
}

/// Returns the digest bits that choose part and group, then the bits that choose the unit: every part
/// holds keys of all units, so that a smaller range takes less of each.
fn spread(hash: &KeyHash) -> u64 {
    hash.slot.rotate_left(UNIT_BITS)
}

fn unit_of(hash: &KeyHash) -> u32 {
    (hash.slot >> (u64::BITS - UNIT_BITS)) as u32
}

/// All versions of the keys of a range.
pub(crate) struct Versions {
    parts: Vec<Mutex<Vec<Version>>>,
    /// The first unit of the range.
    first: u32,
    /// The end of the range. It only ever decreases.
    end: AtomicU32,
    /// Maximum number of versions per part, unless one unit alone has more.
    limit: usize,
    /// Number of threads that collect.
    pub(crate) threads: usize,
    batch: usize,
    part_bits: u32,
}

/// The versions that a thread has collected.
pub(crate) struct Collector<'a> {
    versions: &'a Versions,
    batches: Vec<Vec<Version>>,
}

impl Versions {
    /// Collects the versions of the keys of a range of [`UNITS`] in at most about `bytes` bytes, by
    /// `threads` threads, and reserves memory for about `expected` versions.
    pub(crate) fn new(range: Range<u32>, bytes: u64, threads: usize, expected: u64) -> Versions {
        // An eighth is for the versions that threads collect.
        let all = (bytes / VERSION_BYTES / 8 * 7).max(1) as usize;
        let part_bits = (all / LEAST_IN_PART).max(1).ilog2().min(PART_BITS_MAX);
        let parts = 1_usize << part_bits;
        // Beside the parts, every thread that sorts has a buffer of one part.
        let limit = (all / (parts + cores().min(parts))).max(LEAST_IN_PART / 8);
        let batch = (limit / (8 * threads.max(1))).clamp(1, BATCH);
        let each = (expected as usize / parts * 9 / 8).min(limit);
        let parts = (0..parts).map(|_| Mutex::new(Vec::with_capacity(each))).collect();
        Versions {
            parts,
            first: range.start,
            end: AtomicU32::new(range.end),
            limit,
            threads,
            batch,
            part_bits,
        }
    }

    /// Removes all versions, and collects those of another range in the same memory.
    pub(crate) fn begin_again(&mut self, range: Range<u32>) {
        self.parts.iter_mut().for_each(|part| part.get_mut().unwrap_or_else(|p| p.into_inner()).clear());
        (self.first, self.end) = (range.start, AtomicU32::new(range.end));
    }

    /// Collects the versions of all keys, and keeps them all.
    pub(crate) fn unlimited() -> Versions {
        Versions { limit: usize::MAX, ..Versions::new(UNITS, u64::MAX, readers(), 0) }
    }

    /// Returns the range of the collected keys.
    pub(crate) fn range(&self) -> Range<u32> {
        self.first..self.end.load(Ordering::Acquire)
    }

    /// Returns the number of versions that are kept.
    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).len()).sum()
    }

    /// Returns the number of versions for which there is memory.
    pub(crate) fn capacity(&self) -> usize {
        self.limit.saturating_mul(self.parts.len())
    }

    /// Returns the bytes that it takes.
    pub(crate) fn bytes(&self) -> u64 {
        let of = |part: &Mutex<Vec<Version>>| {
            part.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).capacity() as u64
        };
        self.parts.iter().map(of).sum::<u64>() * VERSION_BYTES
    }

    pub(crate) fn collector(&self) -> Collector<'_> {
        Collector { versions: self, batches: vec![Vec::new(); self.parts.len()] }
    }

    /// Sorts every part, and passes the versions of each key of the range, the newest first, to `see`.
    /// Every thread has its own state, which `begin` makes. Returns the states.
    pub(crate) fn for_each_key<S: Send>(
        &self,
        begin: impl Fn() -> S + Sync,
        see: impl Fn(&mut S, &[Version]) + Sync,
    ) -> Vec<S> {
        let begin = || (begin(), Vec::new());
        let range = self.range();
        let states = in_parallel(&self.parts, cores(), begin, |(state, spare), part| {
            let mut part = part.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            part.retain(|version| range.contains(&unit_of(&version.hash)));
            sort(&mut part, spare, u64::BITS - self.part_bits - GROUP_BITS);
            part.chunk_by(|a, b| a.hash == b.hash).for_each(|versions| see(state, versions));
        });
        states.into_iter().map(|(state, _)| state).collect()
    }

    fn part_of(&self, hash: &KeyHash) -> usize {
        // Without parts to choose from, the shift would be all bits.
        spread(hash).checked_shr(u64::BITS - self.part_bits).unwrap_or(0) as usize
    }

    /// Makes a part shorter: steps 1 to 3.
    #[cold]
    fn make_room(&self, part: &mut Vec<Version>) {
        let enough = self.limit / 4 * 3;
        let mut is_folded = false;
        loop {
            let range = self.range();
            part.retain(|version| range.contains(&unit_of(&version.hash)));
            if part.len() <= enough {
                return;
            }
            if !is_folded {
                part.sort_unstable_by_key(Version::order);
                fold(part);
                is_folded = true;
            } else if range.len() < 2 {
                // One unit cannot be divided.
                return;
            } else {
                let end = range.start + range.len() as u32 / 2;
                self.end.fetch_min(end, Ordering::AcqRel);
            }
        }
    }
}

/// Sorts a part: distributes it by the next digest bits into small groups, and sorts those one by one.
/// Digest bits are evenly spread, so this is faster than a comparison sort of the whole part. `shift` is
/// the position of those bits, and `spare` a buffer that is reused.
fn sort(part: &mut [Version], spare: &mut Vec<Version>, shift: u32) {
    if part.is_sorted_by_key(Version::order) {
        return;
    }
    let group = |version: &Version| (spread(&version.hash) >> shift) as usize % GROUPS;
    let mut ends = [0_u32; GROUPS];
    part.iter().for_each(|version| ends[group(version)] += 1);
    let mut places = [0_u32; GROUPS];
    let mut end = 0;
    for (place, count) in places.iter_mut().zip(&mut ends) {
        *place = end;
        end += *count;
        *count = end;
    }
    spare.clear();
    spare.extend_from_slice(part);
    for version in part.iter() {
        let place = &mut places[group(version)];
        spare[*place as usize] = *version;
        *place += 1;
    }
    let mut begin = 0;
    for end in ends {
        spare[begin..end as usize].sort_unstable_by_key(Version::order);
        begin = end as usize;
    }
    // Not swapped: each part keeps its memory.
    part.copy_from_slice(spare);
}

impl Collector<'_> {
    /// Adds a version if its key is in the range.
    pub(crate) fn add(&mut self, version: Version) {
        if !self.versions.range().contains(&unit_of(&version.hash)) {
            return;
        }
        let part = self.versions.part_of(&version.hash);
        self.batches[part].push(version);
        if self.batches[part].len() >= self.versions.batch {
            self.give(part);
        }
    }

    fn give(&mut self, part: usize) {
        let mut versions = self.versions.parts[part].lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if versions.len() + self.batches[part].len() > self.versions.limit {
            self.versions.make_room(&mut versions);
        }
        // Doubling a part may take more than its share.
        if versions.len() + self.batches[part].len() > versions.capacity() {
            let longest = self.versions.limit.max(versions.len() + self.batches[part].len());
            let wanted = (2 * versions.capacity()).max(versions.len() + self.batches[part].len());
            let more = wanted.min(longest) - versions.len();
            versions.reserve_exact(more);
        }
        versions.extend_from_slice(&self.batches[part]);
        self.batches[part].clear();
    }
}

impl Drop for Collector<'_> {
    fn drop(&mut self) {
        (0..self.batches.len()).for_each(|part| self.give(part));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const KEYS: u64 = 3_000;

    fn mix(number: u64) -> u64 {
        let mixed = (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed ^ mixed >> 31
    }

    /// Versions of `KEYS` keys; one key has more than fit any memory of the tests.
    fn every_version() -> Vec<Version> {
        let version = |key: u64, sequence: u64| {
            let entry = Entry {
                key_hash: KeyHash { slot: mix(key), check: key },
                sequence,
                offset: 64 * sequence as u32,
                bytes: 64,
                kind: Kind::Put,
                expansion: 0,
                expires_at_ms: None,
            };
            Version::new(Tier::Fast, key as u32, sequence as u32, &entry, false)
        };
        let of_key = |key: u64| {
            let versions = if key == 7 { 20_000 } else { 1 + key % 4 };
            (1..=versions).map(move |sequence| version(key, sequence))
        };
        (0..KEYS).flat_map(of_key).collect()
    }

    /// Returns the newest sequence number and the number of versions of every key, and the passes.
    fn passes(bytes: u64, threads: usize) -> (BTreeMap<u64, (u64, u64)>, u64) {
        let all = every_version();
        let (mut found, mut next, mut passes) = (BTreeMap::new(), 0, 0);
        while next < UNITS.end {
            let versions = Versions::new(next..UNITS.end, bytes, threads, all.len() as u64);
            std::thread::scope(|scope| {
                for part in all.chunks(all.len().div_ceil(threads)) {
                    let versions = &versions;
                    scope.spawn(move || {
                        let mut collector = versions.collector();
                        part.iter().for_each(|version| collector.add(*version));
                    });
                }
            });
            let seen = versions.for_each_key(Vec::new, |seen: &mut Vec<_>, versions| {
                seen.push((versions[0].hash.check, (versions[0].sequence, count(versions))));
            });
            for (key, of_key) in seen.into_iter().flatten() {
                assert!(found.insert(key, of_key).is_none(), "key {key} is in one range");
            }
            next = versions.range().end;
            passes += 1;
        }
        (found, passes)
    }

    #[test]
    fn ranges_that_fit_the_memory_hold_every_version() {
        let (expected, one) = passes(u64::from(u32::MAX), 1);
        assert_eq!((one, expected.len() as u64), (1, KEYS));
        assert!(
            expected.iter().all(|(key, (newest, all))| newest == all && (*key == 7 || *all == 1 + key % 4))
        );
        for (bytes, threads) in [(400_000, 1), (100_000, 3), (20_000, 2), (4_000, 1)] {
            let (found, passes) = passes(bytes, threads);
            assert!(found == expected, "{bytes} bytes, {threads} threads");
            assert!(passes > 1 || bytes == 400_000, "{passes} passes in {bytes} bytes");
        }
    }
}
