//! The indexes of a store: one per keyspace in use, with the interface of a single index.
//!
//! A digest contains its keyspace, so callers need not distinguish several indexes. The index of the first keyspace always
//! exists; another is created by the first key inserted into its keyspace, and is kept.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::hash::{Cut, KeyHash, Keyspace, Place, SHARDS};
use crate::index::Index;
use crate::options::IndexOptions;
use crate::publish::{Occupant, Published};
use crate::scan::{Cursor, Step};
use crate::slot::Pointer;
use crate::unverified::{Standing, Suspects, Verified};

/// Bit positions of the shard and of the keyspace in the result of [`Indexes::stored_hash`].
const SHARD_SHIFT: u32 = 32;
const KEYSPACE_SHIFT: u32 = SHARD_SHIFT + SHARDS.trailing_zeros();

/// One index per keyspace. Methods without an explanation are those of [`Index`].
#[derive(Debug)]
pub struct Indexes {
    options: IndexOptions,
    cut: Cut,
    first: Index,
    others: [OnceLock<Box<Index>>; Keyspace::COUNT - 1],
    /// True if another index than the first exists. Most stores have one keyspace, and every put asks for the number of keys.
    are_others: AtomicBool,
}

impl Indexes {
    /// Number of shards of each index. [`Indexes::shard_of`] returns the shard of a key.
    pub const SHARDS: usize = SHARDS;

    /// Creates the indexes, without keys.
    pub fn new(options: IndexOptions) -> Indexes {
        Indexes {
            options,
            cut: Cut::new(options.hash_bits),
            first: Index::new(options),
            others: Default::default(),
            are_others: AtomicBool::new(false),
        }
    }

    /// Returns the index of a keyspace, if it exists.
    #[inline]
    fn known(&self, keyspace: Keyspace) -> Option<&Index> {
        match usize::from(keyspace.number()) {
            0 => Some(&self.first),
            number => self.others.get(number - 1)?.get().map(|index| &**index),
        }
    }

    /// Returns the index of a keyspace, after creating it if necessary.
    fn of(&self, keyspace: Keyspace) -> &Index {
        match usize::from(keyspace.number()) {
            0 => &self.first,
            number => self.others[number - 1].get_or_init(|| {
                // Set before the index can be found.
                self.are_others.store(true, Ordering::Relaxed);
                Box::new(Index::new(self.options))
            }),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Index> {
        let others: &[_] = if self.are_others.load(Ordering::Relaxed) { &self.others } else { &[] };
        let others = others.iter().filter_map(|index| index.get());
        std::iter::once(&self.first).chain(others.map(|index| &**index))
    }

    /// See [`Index::get`].
    #[inline]
    pub fn get(&self, hash: &KeyHash) -> Option<Pointer> {
        self.known(hash.keyspace())?.get(hash)
    }

    /// See [`Index::prefetch`].
    #[inline]
    pub fn prefetch(&self, hash: &KeyHash) {
        if let Some(index) = self.known(hash.keyspace()) {
            index.prefetch(hash);
        }
    }

    /// See [`Index::get_exact`].
    pub fn get_exact(&self, hash: &KeyHash) -> Option<Pointer> {
        self.known(hash.keyspace())?.get_exact(hash)
    }

    /// See [`Index::stored_hash`]. Keys of different keyspaces have different numbers.
    #[inline]
    pub fn stored_hash(&self, hash: &KeyHash) -> u64 {
        let Place { shard, stored } = self.cut.place(hash);
        u64::from(hash.keyspace().number()) << KEYSPACE_SHIFT
            | (shard as u64) << SHARD_SHIFT
            | u64::from(stored)
    }

    /// Returns the shard of a key in the index of its keyspace, from its [`stored_hash`](Self::stored_hash).
    #[inline]
    pub const fn shard_of(stored_hash: u64) -> usize {
        (stored_hash >> SHARD_SHIFT) as usize % SHARDS
    }

    /// See [`Index::publish`].
    pub fn publish(
        &self,
        hash: KeyHash,
        new: Pointer,
        compare: impl FnOnce(Pointer) -> Occupant,
    ) -> Published {
        self.of(hash.keyspace()).publish(hash, new, compare)
    }

    /// See [`Index::replace`].
    pub fn replace(&self, hash: &KeyHash, old: Pointer, new: Pointer) -> bool {
        self.known(hash.keyspace()).is_some_and(|index| index.replace(hash, old, new))
    }

    /// See [`Index::remove`].
    pub fn remove(&self, hash: &KeyHash, old: Pointer) -> bool {
        self.known(hash.keyspace()).is_some_and(|index| index.remove(hash, old))
    }

    /// See [`Index::remove_unread`].
    pub fn remove_unread(&self, hash: &KeyHash, may_be_in_slot: bool) -> Option<Pointer> {
        self.known(hash.keyspace())?.remove_unread(hash, may_be_in_slot)
    }

    /// See [`Index::is_current`].
    pub fn is_current(&self, hash: &KeyHash, pointer: Pointer) -> bool {
        self.known(hash.keyspace()).is_some_and(|index| index.is_current(hash, pointer))
    }

    /// See [`Index::may_be_hidden`].
    #[inline]
    pub fn may_be_hidden(&self, hash: &KeyHash) -> bool {
        self.known(hash.keyspace()).is_some_and(|index| index.may_be_hidden(hash))
    }

    /// See [`Index::load`].
    pub fn load(&self, hash: KeyHash, pointer: Pointer) {
        self.of(hash.keyspace()).load(hash, pointer);
    }

    /// Returns the number of keys in all keyspaces.
    pub fn len(&self) -> u64 {
        self.all().map(Index::len).sum()
    }

    /// Returns true if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of keys in one keyspace.
    pub fn len_of(&self, keyspace: Keyspace) -> u64 {
        self.known(keyspace).map_or(0, Index::len)
    }

    /// Returns the memory of all indexes in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.all().map(Index::memory_bytes).sum()
    }

    /// Removes all entries of all keyspaces.
    pub fn clear(&self) {
        self.all().for_each(|index| index.clear(drop));
    }

    /// Removes all entries of one keyspace; see [`Index::clear`].
    pub fn clear_one(&self, keyspace: Keyspace, see: impl FnMut(Pointer)) {
        if let Some(index) = self.known(keyspace) {
            index.clear(see);
        }
    }

    /// See [`Index::scan`]; scans one keyspace.
    pub fn scan(&self, keyspace: Keyspace, cursor: Cursor, limit: usize) -> Step {
        self.known(keyspace).map_or_else(Step::default, |index| index.scan(cursor, limit))
    }

    /// Returns the number of times that the system refused memory for larger tables; see [`Index::refused_slabs`].
    pub fn refused_slabs(&self) -> u64 {
        self.all().map(Index::refused_slabs).sum()
    }

    /// Returns the number of pending unverified overwrites in all keyspaces.
    pub fn unverified_len(&self) -> usize {
        self.all().map(Index::unverified_len).sum()
    }

    /// See [`Index::unverified_pressure`]; for all keyspaces together.
    pub fn unverified_pressure(&self) -> f64 {
        let (len, unverified) = (self.len(), self.unverified_len());
        self.options.unverified_limit.pressure(len, unverified)
    }

    /// See [`Index::is_known`].
    pub fn is_known(&self, hash: &KeyHash, pointer: Pointer) -> bool {
        self.known(hash.keyspace()).is_some_and(|index| index.is_known(hash, pointer))
    }

    /// See [`Index::standing`].
    pub fn standing(&self, hash: &KeyHash, pointer: Pointer) -> Standing {
        self.known(hash.keyspace()).map_or(Standing::Dead, |index| index.standing(hash, pointer))
    }

    /// See [`Index::verify`].
    pub fn verify(&self, hash: &KeyHash, pointer: Pointer) -> Verified {
        let nothing = Verified { same: 0, other: 0, is_known: false };
        self.known(hash.keyspace()).map_or(nothing, |index| index.verify(hash, pointer))
    }

    /// See [`Index::drop_dead`]; for one keyspace.
    pub fn drop_dead(&self, keyspace: Keyspace, is_dead: impl Fn(Pointer) -> bool) {
        if let Some(index) = self.known(keyspace) {
            index.drop_dead(is_dead);
        }
    }

    /// See [`Index::displaced`].
    pub fn displaced(&self, mut see: impl FnMut(Pointer)) {
        self.all().for_each(|index| index.displaced(&mut see));
    }

    /// See [`Index::suspects`].
    pub fn suspects(&self, hash: &KeyHash) -> Suspects {
        self.known(hash.keyspace()).map_or_else(Suspects::default, |index| index.suspects(hash))
    }

    /// See [`Index::note_verified`].
    pub fn note_verified(&self, hash: &KeyHash, seen: &Suspects, hidden: &[(KeyHash, Pointer)]) -> bool {
        self.of(hash.keyspace()).note_verified(hash, seen, hidden)
    }

    /// Recovery: creates tables for `keys` keys of the first keyspace, which has most keys; see [`Index::reserve`].
    pub fn reserve(&self, shards: Range<usize>, keys: u64) {
        self.first.reserve(shards, keys);
    }

    /// Recovery: see [`Index::prefetch_new`]; for one keyspace.
    #[inline]
    pub fn prefetch_new(&self, keyspace: Keyspace, shard: usize, stored: u32) {
        self.of(keyspace).prefetch_new(shard, stored);
    }

    /// Recovery: see [`Index::load_new`]; for one keyspace.
    pub fn load_new(
        &self,
        keyspace: Keyspace,
        shard: usize,
        keys: &[(u32, Pointer)],
        left: impl FnMut(usize),
    ) {
        self.of(keyspace).load_new(shard, keys, left);
    }

    /// Recovery: see [`Index::fit`]; for this shard of all keyspaces.
    pub fn fit(&self, shard: usize) {
        self.all().for_each(|index| index.fit(shard));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(key: u64, keyspace: Keyspace) -> KeyHash {
        KeyHash { slot: key.wrapping_mul(0x9E37_79B9_7F4A_7C15), check: key << 8 }.in_keyspace(keyspace)
    }

    fn pointer(at: u64) -> Pointer {
        Pointer::new(at).expect("below 2^40")
    }

    fn keyspace(number: u8) -> Keyspace {
        Keyspace::new(number).expect("it is one of sixteen")
    }

    #[test]
    fn the_same_key_in_two_keyspaces_is_two_keys() {
        let indexes = Indexes::new(IndexOptions::default());
        let empty = indexes.memory_bytes();
        for keyspace in Keyspace::all() {
            assert_eq!(indexes.get(&hash(7, keyspace)), None);
            assert_eq!(indexes.scan(keyspace, Cursor::START, 10), Step::default());
        }
        assert_eq!(indexes.memory_bytes(), empty, "a look-up creates no index");
        for keyspace in Keyspace::all() {
            indexes.load(hash(7, keyspace), pointer(100 + u64::from(keyspace.number())));
        }
        assert_eq!((indexes.len(), indexes.len_of(keyspace(5))), (16, 1));
        for keyspace in Keyspace::all() {
            let at = pointer(100 + u64::from(keyspace.number()));
            assert_eq!(indexes.get(&hash(7, keyspace)), Some(at));
            assert_eq!(indexes.scan(keyspace, Cursor::START, 10).current, [at]);
        }
        let mut stored: Vec<u64> = Keyspace::all().map(|k| indexes.stored_hash(&hash(7, k))).collect();
        stored.dedup();
        assert_eq!(stored.len(), Keyspace::COUNT, "each keyspace has stored hashes of its own");
    }

    #[test]
    fn clear_of_one_keyspace_returns_its_pointers_only() {
        let indexes = Indexes::new(IndexOptions { hash_bits: Some(5), ..IndexOptions::default() });
        let (two, three) = (keyspace(2), keyspace(3));
        // Few hash bits, so that some keys are in the side table.
        for key in 1..100 {
            indexes.load(hash(key, two), pointer(key));
            indexes.load(hash(key, three), pointer(1000 + key));
        }
        let mut seen = Vec::new();
        indexes.clear_one(two, |pointer| seen.push(pointer.get()));
        seen.sort_unstable();
        assert_eq!(seen, (1..100).collect::<Vec<u64>>());
        assert_eq!((indexes.len_of(two), indexes.len_of(three)), (0, 99));
        assert_eq!(indexes.get_exact(&hash(99, two)), None);
        assert!(indexes.is_current(&hash(99, three), pointer(1099)));
    }
}
