//! Filling an index during recovery: batches of keys of one shard are loaded into tables of their final size.
//!
//! Recovery meets keys in arbitrary order, and some keys in several versions. A record loaded here enters the table if no entry
//! has the same stored hash; otherwise it is returned to recovery, which determines the current version.

use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

use crate::bucket::SLOTS;
use crate::geometry::{GENERATIONS, GEOMETRIES};
use crate::grow::FULL;
use crate::hash::{SHARDS, STORED_HASHES};
use crate::index::Index;
use crate::slot::Pointer;

impl Index {
    /// Number of shards. The upper half of [`Index::stored_hash`] is a key's shard.
    pub const SHARDS: usize = SHARDS;

    /// Recovery: creates tables sized for `keys` keys of a whole index in those of these shards that are empty.
    pub fn reserve(&self, shards: Range<usize>, keys: u64) {
        let mean = keys as f64 / SHARDS as f64;
        // A shard that exceeds the mean by more than two standard deviations grows later.
        let share = (mean + 2.0 * mean.sqrt()) as usize;
        let holds = |generation: &usize| share * 1000 < GEOMETRIES[*generation].buckets() * SLOTS * FULL;
        let Some(generation) = (0..GENERATIONS).find(holds) else { return };
        self.slabs.prefer_huge_pages(generation, shards.clone());
        for shard in shards {
            let mut writer = self.lock(shard);
            if writer.shard.used() != 0 || writer.shard.generation() == generation {
                continue;
            }
            // Without memory for this table, the shard grows step by step as far as memory allows.
            let Some(table) = self.slabs.enter(generation, shard) else { return };
            // As in `rebuild`: a late reader that sees these zeros must also see that the shard has moved.
            fence(Ordering::Release);
            table.zero();
            writer.move_to(generation);
        }
    }

    /// Recovery: prefetches the cache line that [`Index::load_new`] will examine for this key.
    #[inline]
    pub fn prefetch_new(&self, shard: usize, stored: u32) {
        self.shards[shard].table(&self.slabs, shard).prefetch_home(stored);
    }

    /// Recovery: inserts keys into the table of a shard, each given by the lower half of its [`Index::stored_hash`]. Calls
    /// `left` with the position of each key whose stored hash is present already or that finds no slot.
    ///
    /// Only valid for a shard from which nothing was removed since it was empty: then the alternate bucket of a key can be
    /// skipped while its home bucket has a free slot.
    ///
    /// # Panics
    /// If a number is not the lower half of a stored hash.
    pub fn load_new(&self, shard: usize, keys: &[(u32, Pointer)], mut left: impl FnMut(usize)) {
        let mut writer = self.lock(shard);
        if (writer.shard.used() + keys.len()) * 1000 >= writer.table().capacity() * FULL {
            writer.grow();
        }
        // Without memory for a table that holds these pointers, keys whose pointers do not fit are left.
        writer.widen(keys.iter().fold(0, |bits, (_, pointer)| bits | pointer.get()));
        let mut table = writer.table();
        let (mut put_in, mut moved) = (0, 0);
        for (position, (stored, pointer)) in keys.iter().enumerate() {
            assert!(*stored < STORED_HASHES, "not the lower half of a stored hash");
            match table.add(*stored, *pointer) {
                Some(true) => put_in += 1,
                Some(false) => left(position),
                None => {
                    // Entries must be moved to make a free slot, or the table must grow.
                    let has_moved = writer.insert(*stored, *pointer);
                    table = writer.table();
                    if has_moved { moved += 1 } else { left(position) }
                }
            }
        }
        writer.set_used(writer.shard.used() + put_in);
        self.len.fetch_add((put_in + moved) as u64, Ordering::Relaxed);
    }

    /// Recovery: finishes a shard after all its keys are loaded. Shrinks a table that was made for more keys.
    pub fn fit(&self, shard: usize) {
        self.lock(shard).fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::KeyHash;
    use crate::options::IndexOptions;

    fn hash(key: u64) -> KeyHash {
        let spread = (key + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31);
        KeyHash { slot: spread.wrapping_mul(0x94D0_49BB_1331_11EB), check: key }
    }

    fn pointer(key: u64) -> Pointer {
        Pointer::new(key + 1).expect("below 2^40")
    }

    /// Loads keys in batches; returns the keys that were left out.
    fn load(index: &Index, keys: Range<u64>) -> Vec<u64> {
        let mut by_shard = vec![Vec::new(); Index::SHARDS];
        keys.for_each(|key| by_shard[(index.stored_hash(&hash(key)) >> 32) as usize].push(key));
        let mut left = Vec::new();
        for (shard, keys) in by_shard.iter().enumerate() {
            for keys in keys.chunks(50) {
                let places: Vec<_> =
                    keys.iter().map(|&key| (index.stored_hash(&hash(key)) as u32, pointer(key))).collect();
                index.load_new(shard, &places, |position| left.push(keys[position]));
            }
        }
        left
    }

    #[test]
    #[cfg_attr(miri, ignore = "a million keys take hours")]
    fn bulk_loaded_keys_are_found_and_index_stays_small() {
        const KEYS: u64 = 1_200_000;
        for reserved in [0, KEYS / 2, KEYS, 2 * KEYS] {
            let index = Index::new(IndexOptions::default());
            index.reserve(0..Index::SHARDS, reserved);
            let left = load(&index, 0..KEYS);
            assert!(left.len() < 10, "few keys of a million share a stored hash: {left:?}");
            assert_eq!(index.len() + left.len() as u64, KEYS);
            left.iter().for_each(|&key| index.load(hash(key), pointer(key)));
            (0..Index::SHARDS).for_each(|shard| index.fit(shard));
            let bytes_per_key = index.memory_bytes() as f64 / index.len() as f64;
            assert!(bytes_per_key < 10.3, "{bytes_per_key} bytes a key, {reserved} reserved");
            (KEYS..KEYS + 300_000).for_each(|key| index.load(hash(key), pointer(key)));
            for key in 0..KEYS + 300_000 {
                let exact = index.get_exact(&hash(key));
                let found = index.get(&hash(key)) == Some(pointer(key)) || exact == Some(pointer(key));
                assert!(found, "key {key}, {reserved} reserved");
            }
        }
    }

    #[test]
    fn bulk_load_keeps_existing_key_and_returns_newcomer() {
        let index = Index::new(IndexOptions::default());
        assert!(load(&index, 0..1000).is_empty());
        let key = 77;
        let (shard, stored) = (index.stored_hash(&hash(key)) >> 32, index.stored_hash(&hash(key)) as u32);
        let mut left = Vec::new();
        index.load_new(shard as usize, &[(stored, pointer(5000)), (stored, pointer(5001))], |p| left.push(p));
        assert_eq!((left, index.len()), (vec![0, 1], 1000));
        assert_eq!(index.get(&hash(key)), Some(pointer(key)));
    }
}
