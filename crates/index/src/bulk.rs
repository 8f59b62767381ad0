//! Filling an index that is being recovered: all keys of a shard at once.
//!
//! Keys that come in the order of their stored hashes come in the order of their home buckets, so the table is written
//! from its first bucket to its last, in its final size, and nothing is looked up.

use std::sync::atomic::{Ordering, fence};

use crate::bucket::SLOTS;
use crate::geometry::{GENERATIONS, GEOMETRIES};
use crate::grow::FULL;
use crate::hash::{KeyHash, SHARDS};
use crate::index::Index;
use crate::slot::Pointer;
use crate::table::Entry;

impl Index {
    /// How many shards there are. A key's is given by the upper half of its [`Index::stored_hash`].
    pub const SHARDS: usize = SHARDS;

    /// Recovery: [`Index::load`] for many keys of one shard, in the order of their stored hashes. Fast where the shard
    /// is empty.
    ///
    /// # Panics
    /// If they are of several shards, or not in order.
    pub fn load_shard(&self, keys: &[(KeyHash, Pointer)]) {
        let Some((first, _)) = keys.first() else { return };
        let shard = self.cut.place(first).shard;
        let rest = self.fill(shard, keys);
        // What found no room goes the usual way: the table grows, or it is remembered exactly.
        match rest {
            Some(rest) => {
                self.slabs.collapse(self.shards[shard].generation(), shard);
                rest.into_iter().for_each(|(_, hash, pointer)| self.load(hash, pointer));
            }
            None => keys.iter().for_each(|(hash, pointer)| self.load(*hash, *pointer)),
        }
    }

    /// Makes the table of an empty shard; returns the keys that found no room in it. `None`: the shard is not empty, or
    /// there is no memory for such a table.
    fn fill(&self, shard: usize, keys: &[(KeyHash, Pointer)]) -> Option<Vec<Entry>> {
        let place = |hash: &KeyHash| {
            let place = self.cut.place(hash);
            assert_eq!(place.shard, shard, "keys of one shard are loaded at once");
            place.stored
        };
        let mut distinct = 0;
        let mut last = None;
        for (hash, _) in keys {
            let stored = place(hash);
            assert!(last <= Some(stored), "keys are loaded in the order of their stored hashes");
            distinct += usize::from(last != Some(stored));
            last = Some(stored);
        }
        let mut writer = self.lock(shard);
        if writer.shard.len() != 0 || writer.state.claims.len() != 0 {
            return None;
        }
        let holds = |generation: &usize| distinct * 1000 < GEOMETRIES[*generation].buckets() * SLOTS * FULL;
        let generation = (0..GENERATIONS).find(holds)?;
        let stays = generation == writer.shard.generation();
        let table = if stays { writer.table() } else { self.slabs.enter(generation, shard)? };
        // As when a table grows: a late reader that sees what is written here must also see that the shard has moved.
        fence(Ordering::Release);
        let mut last = None;
        let alone = keys.iter().filter_map(|(hash, pointer)| {
            let stored = place(hash);
            // Of keys that share a stored hash the first gets the slot.
            (last.replace(stored) != Some(stored)).then_some((stored, *hash, *pointer))
        });
        let mut away = table.fill_homes(alone);
        away.retain(|(stored, _, pointer)| !table.insert(*stored, *pointer, || writer.count_move()));
        let used = distinct - away.len();
        writer.shard.used.store(used, Ordering::Relaxed);
        self.len.fetch_add(used as u64, Ordering::Relaxed);
        if !stays {
            writer.move_to(generation);
        }
        let mut last = None;
        for (hash, pointer) in keys.iter().filter(|_| distinct < keys.len()) {
            let stored = place(hash);
            if last.replace(stored) == Some(stored) {
                self.insert_exact(&writer, stored, hash, *pointer);
            }
        }
        Some(away)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::IndexOptions;

    #[test]
    fn what_was_loaded_at_once_is_found_grows_and_is_small() {
        let index = Index::new(IndexOptions::default());
        let hash = |key: u64| KeyHash {
            slot: (key + 1)
                .wrapping_mul(0x9E37_79B9_7F4A_7C15)
                .rotate_left(31)
                .wrapping_mul(0x94D0_49BB_1331_11EB),
            check: key,
        };
        let pointer = |key: u64| Pointer::new(key + 1).expect("below 2^40");
        let mut keys: Vec<_> = (0..1_200_000).map(|key| (hash(key), pointer(key))).collect();
        keys.sort_unstable_by_key(|(hash, _)| index.stored_hash(hash));
        let shard = |hash: &KeyHash| index.stored_hash(hash) >> 32;
        keys.chunk_by(|a, b| shard(&a.0) == shard(&b.0)).for_each(|keys| index.load_shard(keys));
        assert_eq!(index.len(), 1_200_000);
        let bytes_per_key = index.memory_bytes() as f64 / index.len() as f64;
        assert!(bytes_per_key < 9.7, "{bytes_per_key}");
        (1_200_000..1_500_000).for_each(|key| index.load(hash(key), pointer(key)));
        for key in 0..1_500_000 {
            let exact = index.get_exact(&hash(key));
            assert!(index.get(&hash(key)) == Some(pointer(key)) || exact == Some(pointer(key)), "key {key}");
        }
    }
}
