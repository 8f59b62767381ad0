//! All versions of all keys, grouped by key, to find the newest of each.
//!
//! Every summary entry is kept in 32 bytes, distributed over parts by the key's digest. The parts are
//! then sorted one by one, so memory and time are known in advance: 32 bytes per version, and no look-up.
//! The whole digest is kept, so two keys are never confused.

use std::cmp::Reverse;

use esker_log::{Entry, KeyHash, Kind, Location, Packing, Tier};
use std::sync::Mutex;

use crate::watch::{cores, in_parallel};

const PARTS: usize = 1 << PART_BITS;
const PART_BITS: u32 = 8;
const PART_SHIFT: u32 = u64::BITS - PART_BITS;
/// Number of groups in a part, chosen by the digest bits after those that choose the part.
const GROUPS: usize = 1 << GROUP_BITS;
const GROUP_BITS: u32 = 12;
const GROUP_SHIFT: u32 = PART_SHIFT - GROUP_BITS;
/// Number of versions that a thread collects before it appends them to their part.
const BATCH: usize = 64;

/// One version of a key, in 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) hash: KeyHash,
    pub(crate) sequence: u64,
    place: u64,
}

const GRANULE_BITS: u32 = 36;
const TOMBSTONE: u64 = 1 << 36;
const DAMAGED: u64 = 1 << 37;
const EXPIRES: u64 = 1 << 38;
const LENGTH_SHIFT: u32 = 40;

impl Version {
    pub(crate) fn new(packing: &Packing, tier: Tier, slot: u32, entry: &Entry, damaged: bool) -> Version {
        let packed = packing.pack(Location { tier, slot, offset: entry.offset, class: 0 }) >> 4;
        let flag = |set: bool, bit: u64| if set { bit } else { 0 };
        let flags = flag(entry.kind == Kind::Tombstone, TOMBSTONE)
            | flag(damaged, DAMAGED)
            | flag(entry.expires_at_ms.is_some(), EXPIRES);
        let place = packed | flags | packing.granules(entry.bytes) << LENGTH_SHIFT;
        Version { hash: entry.key_hash, sequence: entry.sequence, place }
    }

    /// Returns its location: tier, slot, offset.
    pub(crate) fn location(&self, packing: &Packing) -> Location {
        packing.unpack((self.place & ((1 << GRANULE_BITS) - 1)) << 4)
    }

    /// Returns a number that identifies its location and sorts in the order of locations.
    pub(crate) fn place(&self) -> u64 {
        self.place & ((1 << GRANULE_BITS) - 1)
    }

    pub(crate) fn is_tombstone(&self) -> bool {
        self.place & TOMBSTONE != 0
    }

    pub(crate) fn is_damaged(&self) -> bool {
        self.place & DAMAGED != 0
    }

    pub(crate) fn expires(&self) -> bool {
        self.place & EXPIRES != 0
    }

    /// Returns the length of the record in bytes, with padding to the granule.
    pub(crate) fn padded_bytes(&self, packing: &Packing) -> u64 {
        (self.place >> LENGTH_SHIFT) * packing.granule_bytes
    }

    /// Sort order: by key; of one key the newest first; of copies of one version a tombstone first,
    /// because it says that the version was dropped or has expired.
    fn order(&self) -> (u64, u64, Reverse<u64>, bool, u64) {
        (self.hash.slot, self.hash.check, Reverse(self.sequence), !self.is_tombstone(), self.place)
    }
}

/// All versions of all keys, or of some.
pub(crate) struct Versions {
    parts: Vec<Mutex<Vec<Version>>>,
}

/// The versions that a thread has collected.
pub(crate) struct Collector<'a> {
    versions: &'a Versions,
    batches: Vec<Vec<Version>>,
}

impl Versions {
    /// Reserves memory for about `expected` versions.
    pub(crate) fn new(expected: u64) -> Versions {
        let each = expected as usize / PARTS * 9 / 8;
        Versions { parts: (0..PARTS).map(|_| Mutex::new(Vec::with_capacity(each))).collect() }
    }

    pub(crate) fn collector(&self) -> Collector<'_> {
        Collector { versions: self, batches: vec![Vec::new(); PARTS] }
    }

    /// Sorts every part, and passes the versions of each key, the newest first, to `see`. Every thread
    /// has its own state, which `begin` makes. Returns the states.
    pub(crate) fn for_each_key<S: Send>(
        &self,
        begin: impl Fn() -> S + Sync,
        see: impl Fn(&mut S, &[Version]) + Sync,
    ) -> Vec<S> {
        let begin = || (begin(), Vec::new());
        let states = in_parallel(&self.parts, cores(), begin, |(state, spare), part| {
            let mut part = part.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            sort(&mut part, spare);
            part.chunk_by(|a, b| a.hash == b.hash).for_each(|versions| see(state, versions));
        });
        states.into_iter().map(|(state, _)| state).collect()
    }
}

/// Sorts a part: distributes it by the next digest bits into small groups, and sorts those one by one.
/// Digest bits are evenly spread, so this is faster than a comparison sort of the whole part. `spare` is
/// a buffer that is reused.
fn sort(part: &mut Vec<Version>, spare: &mut Vec<Version>) {
    if part.is_sorted_by_key(Version::order) {
        return;
    }
    let group = |version: &Version| (version.hash.slot >> GROUP_SHIFT) as usize % GROUPS;
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
    std::mem::swap(part, spare);
}

fn part_of(hash: &KeyHash) -> usize {
    (hash.slot >> PART_SHIFT) as usize
}

impl Collector<'_> {
    pub(crate) fn add(&mut self, version: Version) {
        let part = part_of(&version.hash);
        self.batches[part].push(version);
        if self.batches[part].len() == BATCH {
            self.give(part);
        }
    }

    fn give(&mut self, part: usize) {
        let mut versions = self.versions.parts[part].lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        versions.extend_from_slice(&self.batches[part]);
        self.batches[part].clear();
    }
}

impl Drop for Collector<'_> {
    fn drop(&mut self) {
        (0..PARTS).for_each(|part| self.give(part));
    }
}
