//! A miniature engine: records by pointer, of which the newest are readable without I/O, and the operations of an engine to
//! find a key's record, delete it, and relocate a segment. Every call goes to the index and to the oracle, and every result is
//! compared; the stored keys are compared with a map of whole keys.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use esker_index::{
    Cursor, Index, IndexOptions, KeyHash, Occupant, Pointer, Step, Suspects, UnverifiedOverwrite,
};
use rand::Rng;
use rand::rngs::SmallRng;

use crate::oracle::Oracle;

pub(crate) type Key = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    key: Key,
    sequence: u64,
}

pub(crate) struct World {
    pub(crate) index: Index,
    /// `None` where keys overflow from their buckets into the side table, which the oracle does not model.
    oracle: Option<Oracle>,
    hash: fn(Key) -> KeyHash,
    records: BTreeMap<Pointer, Record>,
    truth: BTreeMap<Key, u64>,
    /// Records that had no entry leading to them at the last check.
    unknown: BTreeSet<Pointer>,
    next: u64,
    /// Number of newest records that are in memory.
    in_memory: u64,
}

/// Returns a well-mixed, invertible hash, so that keys differ in their 128 bits.
pub(crate) fn spread(key: Key) -> KeyHash {
    let mut x = key.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    KeyHash { slot: x ^ (x >> 31), check: x.rotate_left(17).wrapping_mul(0xD6E8_FEB8_6659_FD93) }
}

impl World {
    /// Creates a world whose first record has this pointer.
    pub(crate) fn new(
        options: IndexOptions,
        in_memory: u64,
        hash: fn(Key) -> KeyHash,
        with_oracle: bool,
        first: u64,
    ) -> World {
        World {
            index: Index::new(options),
            oracle: with_oracle.then(|| Oracle::new(options.hash_bits)),
            hash,
            records: BTreeMap::new(),
            truth: BTreeMap::new(),
            unknown: BTreeSet::new(),
            next: first,
            in_memory,
        }
    }

    fn append(&mut self, key: Key, sequence: u64) -> Pointer {
        let pointer = Pointer::new(self.next).unwrap();
        self.next += 1;
        self.records.insert(pointer, Record { key, sequence });
        pointer
    }

    /// Reads a record; panics if it lies in a segment that was freed.
    fn read(&self, pointer: Pointer) -> Record {
        *self.records.get(&pointer).unwrap_or_else(|| panic!("{pointer:?} was freed"))
    }

    pub(crate) fn put(&mut self, key: Key) {
        let sequence = self.next;
        let new = self.append(key, sequence);
        let compare = |old: Pointer| match self.read(old) {
            _ if old.get() + self.in_memory < new.get() => Occupant::Unknown,
            record if record.key == key => Occupant::SameKey,
            _ => Occupant::OtherKey,
        };
        let published = self.index.publish((self.hash)(key), new, compare);
        if let Some(oracle) = &mut self.oracle {
            let records = &self.records;
            let compare = |old: Pointer| match records[&old] {
                _ if old.get() + self.in_memory < new.get() => Occupant::Unknown,
                record if record.key == key => Occupant::SameKey,
                _ => Occupant::OtherKey,
            };
            assert_eq!(oracle.publish((self.hash)(key), new, compare), published);
        }
        self.truth.insert(key, sequence);
    }

    /// Looks a key up like an engine: slot, side table, unverified overwrites.
    fn look_up(&mut self, key: Key) -> Option<(Pointer, Record)> {
        let hash = (self.hash)(key);
        let pointer = self.index.get(&hash);
        if let Some(oracle) = &mut self.oracle {
            assert_eq!(oracle.get(&hash), pointer);
        }
        if pointer.is_none() && self.index.may_be_hidden(&hash) {
            self.note_verified(&hash);
            assert!(!self.index.may_be_hidden(&hash) || self.index.get(&hash).is_some());
            return self.look_up(key);
        }
        let record = self.read(pointer?);
        if record.key == key {
            return Some((pointer?, record));
        }
        self.note_verified(&hash);
        let pointer = self.index.get_exact(&hash);
        if let Some(oracle) = &mut self.oracle {
            assert_eq!(oracle.get_exact(&hash), pointer);
        }
        let record = self.read(pointer?);
        assert_eq!(record.key, key, "an exact entry is exact");
        Some((pointer?, record))
    }

    pub(crate) fn get(&mut self, key: Key) {
        let found = self.look_up(key).map(|(_, record)| record.sequence);
        assert_eq!(found, self.truth.get(&key).copied(), "key {key}");
    }

    /// Verifies all unverified overwrites of one stored hash by reading their records.
    pub(crate) fn note_verified(&mut self, hash: &KeyHash) {
        let seen = self.index.suspects(hash);
        if let Some(oracle) = &self.oracle {
            assert_eq!(oracle.suspects(hash), seen);
        }
        let hidden = self.hidden(&seen);
        assert!(self.index.note_verified(hash, &seen, &hidden));
        if !seen.unverified.is_empty() {
            assert!(!self.index.note_verified(hash, &seen, &hidden), "the suspects have changed");
        }
        if let Some(oracle) = &mut self.oracle {
            assert!(oracle.note_verified(hash, &seen, &hidden));
        }
    }

    /// Returns the keys whose newest version is at a displaced pointer.
    fn hidden(&self, seen: &Suspects) -> Vec<(KeyHash, Pointer)> {
        let mut newest = BTreeMap::new();
        for unverified in &seen.unverified {
            let record = self.read(unverified.displaced);
            let reachable = seen.occupant.is_some_and(|at| self.read(at).key == record.key)
                || seen.exact.iter().any(|(hash, _)| *hash == (self.hash)(record.key));
            let best = newest.entry(record.key).or_insert((record.sequence, unverified.displaced));
            *best = (*best).max((record.sequence, unverified.displaced));
            if reachable {
                newest.remove(&record.key);
            }
        }
        let hidden = newest.into_iter().map(|(key, (_, at))| ((self.hash)(key), at));
        let is_own = |(hash, displaced): &(KeyHash, Pointer)| {
            seen.unverified.contains(&UnverifiedOverwrite { displaced: *displaced, check: hash.check })
        };
        hidden.filter(|hidden| !is_own(hidden)).collect()
    }

    /// Deletes a key; `blindly` means that displaced records cannot be read now.
    pub(crate) fn delete(&mut self, key: Key, blindly: bool) {
        let hash = (self.hash)(key);
        if !blindly {
            self.note_verified(&hash);
        }
        let found = self.look_up(key);
        assert_eq!(found.is_some(), self.truth.remove(&key).is_some());
        if let Some((pointer, _)) = found {
            let other = Pointer::new(self.next).unwrap();
            assert!(!self.index.remove(&hash, other));
            assert!(self.index.remove(&hash, pointer));
            assert!(!self.index.remove(&hash, pointer));
            if let Some(oracle) = &mut self.oracle {
                assert!(oracle.remove(&hash, pointer));
            }
        }
    }

    /// Deletes a key, which may be absent, while neither the record of its slot nor displaced ones can be read.
    fn delete_unread(&mut self, key: Key, is_unidentified: bool, is_verified: bool) {
        let hash = (self.hash)(key);
        self.truth.remove(&key);
        let occupant = self.index.suspects(&hash).occupant;
        let is_anothers = occupant.is_some_and(|occupant| self.read(occupant).key != key);
        if is_verified {
            // By a reader, between the look-up of the delete and its publication.
            self.note_verified(&hash);
        }
        // The record of the slot cannot be identified, or is known to be another key's.
        self.index.remove_unread(&hash, !is_anothers || is_unidentified);
        assert!(self.index.get_exact(&hash).is_none() && self.index.remove_unread(&hash, false).is_none());
    }

    /// Frees a segment: verifies its unverified overwrites, moves its current records, drops the rest.
    pub(crate) fn relocate(&mut self, segment: Range<u64>) {
        self.note_unknown();
        let range = Pointer::new(segment.start).unwrap()..Pointer::new(segment.end).unwrap();
        let displaced = self.displaced(&range);
        let records: Vec<_> = self.records.range(range.clone()).map(|(at, record)| (*at, *record)).collect();
        let (mut before, mut other) = (self.index.unverified_len(), Vec::new());
        for (at, record) in &records {
            let hash = (self.hash)(record.key);
            let verified = self.index.verify(&hash, *at);
            if let Some(oracle) = &mut self.oracle {
                assert_eq!(verified, oracle.verify(&hash, *at));
            }
            assert_eq!(verified.is_known, self.index.is_known(&hash, *at));
            let against = displaced.iter().filter(|known| *known == at).count();
            assert!(verified.same + verified.other == against || (verified.same, verified.other) == (1, 0));
            before -= if verified.same > 0 { against } else { 0 };
            assert_eq!(self.index.unverified_len(), before);
            other.extend((verified.other > 0).then_some(hash));
        }
        for hash in other {
            self.note_verified(&hash);
        }
        assert_eq!(self.displaced(&range), [], "every unverified overwrite displaced a record");

        for (old, record) in records {
            let hash = (self.hash)(record.key);
            let current = self.truth.get(&record.key) == Some(&record.sequence);
            assert_eq!(self.index.is_current(&hash, old), current, "{record:?} at {old:?}");
            assert_eq!(
                self.index.is_known(&hash, old),
                current,
                "no unverified overwrite against it is left"
            );
            if let Some(oracle) = &mut self.oracle {
                assert_eq!(oracle.is_current(&hash, old), current);
            }
            if current {
                let new = self.append(record.key, record.sequence);
                assert!(self.index.replace(&hash, old, new));
                assert!(!self.index.replace(&hash, old, new));
                if let Some(oracle) = &mut self.oracle {
                    assert!(oracle.replace(&hash, old, new));
                }
            }
            self.records.remove(&old);
        }
    }

    /// Returns the displaced pointers of pending unverified overwrites in a range.
    fn displaced(&self, range: &Range<Pointer>) -> Vec<Pointer> {
        let mut displaced = Vec::new();
        self.index.displaced(|pointer| displaced.extend(range.contains(&pointer).then_some(pointer)));
        displaced.sort();
        if let Some(oracle) = &self.oracle {
            let mut expected = oracle.displaced();
            expected.retain(|pointer| range.contains(pointer));
            expected.sort();
            assert_eq!(displaced, expected);
        }
        displaced
    }

    /// Checks that a record without any entry leading to it stays so, whatever is verified.
    fn note_unknown(&mut self) {
        for (at, record) in &self.records {
            if self.index.is_known(&(self.hash)(record.key), *at) {
                assert!(!self.unknown.contains(at), "{record:?} at {at:?} has come back");
            } else {
                self.unknown.insert(*at);
            }
        }
    }

    pub(crate) fn scan(&mut self, limit: usize) {
        let (mut found, mut all_displaced) = (BTreeSet::new(), BTreeSet::new());
        let mut cursor = Some(Cursor::START);
        while let Some(at) = cursor {
            let Step { current, displaced, next } = self.index.scan(Cursor::from_u64(at.to_u64()), limit);
            assert!(next.is_none_or(|next| next > at), "a scan goes on");
            for pointer in current.into_iter().chain(displaced.iter().copied()) {
                assert!(found.insert(pointer), "without changes meanwhile no entry is returned twice");
            }
            all_displaced.extend(displaced);
            cursor = next;
        }
        // Displaced pointers of unverified overwrites are returned too.
        self.index.displaced(|displaced| {
            found.remove(&displaced);
            assert!(
                all_displaced.contains(&displaced),
                "a displaced record is in no slot, but a scan returns it"
            );
        });
        assert_eq!(found.len() as u64, self.index.len());
        if let Some(oracle) = &self.oracle {
            assert_eq!(found.into_iter().collect::<Vec<_>>(), oracle.pointers());
        }
    }

    pub(crate) fn clear(&mut self) {
        self.index.clear(drop);
        if let Some(oracle) = &mut self.oracle {
            oracle.clear();
        }
        self.records.clear();
        self.truth.clear();
        assert!(self.index.is_empty() && self.index.unverified_len() == 0);
    }

    /// Reloads like a recovery: inserts every key once into an empty index.
    pub(crate) fn reload(&mut self) {
        let mut newest: Vec<_> =
            self.truth.iter().map(|(&key, &sequence)| Record { key, sequence }).collect();
        newest.sort_by_key(|record| self.index.stored_hash(&(self.hash)(record.key)));
        let in_bulk = self.next.is_multiple_of(2);
        self.clear();
        let mut loaded = Vec::new();
        for Record { key, sequence } in newest {
            let pointer = self.append(key, sequence);
            loaded.push(((self.hash)(key), pointer));
            if let Some(oracle) = &mut self.oracle {
                oracle.publish((self.hash)(key), pointer, |_| Occupant::OtherKey);
            }
            self.truth.insert(key, sequence);
        }
        if in_bulk {
            let stored = |key: &(KeyHash, Pointer)| self.index.stored_hash(&key.0);
            self.index.reserve(0..Index::SHARDS, loaded.len() as u64);
            let mut left = Vec::new();
            for keys in loaded.chunk_by(|a, b| stored(a) >> 32 == stored(b) >> 32) {
                let shard = (stored(&keys[0]) >> 32) as usize;
                let places: Vec<_> = keys.iter().map(|key| (stored(key) as u32, key.1)).collect();
                self.index.load_new(shard, &places, |position| left.push(keys[position]));
                self.index.fit(shard);
            }
            left.iter().for_each(|(hash, pointer)| self.index.load(*hash, *pointer));
        } else {
            loaded.iter().for_each(|(hash, pointer)| self.index.load(*hash, *pointer));
        }
        assert_eq!(self.index.len(), self.truth.len() as u64, "a recovery hides no key");
    }

    pub(crate) fn check_all(&mut self, keys: Range<Key>) {
        keys.for_each(|key| self.get(key));
    }

    /// Does one random step over `keys` keys.
    pub(crate) fn step(&mut self, rng: &mut SmallRng, keys: u64) {
        let key = rng.random_range(0..keys);
        match rng.random_range(0..1000) {
            0..550 => self.put(key),
            550..800 => self.get(key),
            800..830 if self.oracle.is_none() => {
                self.delete_unread(key, rng.random_bool(0.5), rng.random_bool(0.3));
            }
            800..970 => self.delete(key, self.oracle.is_none() && rng.random_bool(0.3)),
            970..975 => self.scan(rng.random_range(1..50)),
            975..976 => self.reload(),
            _ => {
                let start = self.records.keys().next().map_or(1, |first| first.get());
                let start = rng.random_range(start..=self.next);
                self.relocate(start..start + rng.random_range(1..200));
            }
        }
    }
}
