//! Table of the keys that clients have read and cached.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;

/// Clients that cache a key, usually one.
enum Keepers {
    One(u64),
    Some(BTreeSet<u64>),
}

impl Keepers {
    /// Adds a client. Returns true if it was not among them.
    fn add(&mut self, id: u64) -> bool {
        match self {
            Keepers::One(known) if *known == id => false,
            Keepers::One(known) => {
                *self = Keepers::Some(BTreeSet::from([*known, id]));
                true
            }
            Keepers::Some(known) => known.insert(id),
        }
    }

    fn len(&self) -> usize {
        match self {
            Keepers::One(_) => 1,
            Keepers::Some(known) => known.len(),
        }
    }

    fn into_ids(self) -> Vec<u64> {
        match self {
            Keepers::One(id) => vec![id],
            Keepers::Some(known) => known.into_iter().collect(),
        }
    }
}

/// Memory of a key beyond its name, in bytes: its slots in the list and in the map, which double when they grow, and the
/// allocation of its name.
const KEY_BYTES: usize = 256;

/// Memory per client of a key, in bytes.
const KEEPER_BYTES: usize = 32;

/// The table. It contains a key from the first read to the next change.
#[derive(Default)]
pub(super) struct Table {
    /// Unordered, so that a random key can be chosen by its index.
    keys: Vec<(Bytes, Keepers)>,
    places: HashMap<Bytes, usize>,
    items: usize,
    bytes: usize,
    /// State of the random choice of keys to remove.
    draw: u64,
}

impl Table {
    /// Records that client `id` has read a key.
    pub(super) fn insert(&mut self, key: &[u8], id: u64) {
        if let Some(&place) = self.places.get(key) {
            if self.keys[place].1.add(id) {
                self.items += 1;
                self.bytes += KEEPER_BYTES;
            }
            return;
        }
        let key = Bytes::copy_from_slice(key);
        self.items += 1;
        self.bytes += key_bytes(&key) + KEEPER_BYTES;
        self.places.insert(key.clone(), self.keys.len());
        self.keys.push((key, Keepers::One(id)));
    }

    /// Removes a key. Returns it with its clients.
    pub(super) fn remove(&mut self, key: &[u8]) -> Option<(Bytes, Vec<u64>)> {
        let place = self.places.remove(key)?;
        Some(self.take(place))
    }

    /// Removes a random key. Returns it with its clients.
    pub(super) fn remove_any(&mut self) -> Option<(Bytes, Vec<u64>)> {
        // Linear congruential generator; its upper bits are close to random.
        self.draw = self.draw.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let place = (self.draw >> 33) as usize % self.keys.len().max(1);
        let key = self.keys.get(place)?.0.clone();
        self.remove(&key)
    }

    fn take(&mut self, place: usize) -> (Bytes, Vec<u64>) {
        let (key, keepers) = self.keys.swap_remove(place);
        if let Some((moved, _)) = self.keys.get(place) {
            *self.places.get_mut(moved).expect("every key has an index") = place;
        }
        self.items -= keepers.len();
        self.bytes -= key_bytes(&key) + keepers.len() * KEEPER_BYTES;
        (key, keepers.into_ids())
    }

    /// Removes all keys and frees their memory.
    pub(super) fn clear(&mut self) {
        *self = Table { draw: self.draw, ..Table::default() };
    }

    pub(super) fn keys(&self) -> usize {
        self.keys.len()
    }

    /// Returns the number of pairs of key and client.
    pub(super) fn items(&self) -> usize {
        self.items
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

fn key_bytes(key: &Bytes) -> usize {
    KEY_BYTES + key.len()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Compared with a map of sets.
    #[test]
    fn keys_are_kept_by_whoever_read_them_until_they_are_taken_out() {
        let (mut table, mut model) = (Table::default(), BTreeMap::<Vec<u8>, BTreeSet<u64>>::new());
        let mut random = 1_u64;
        for _ in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let key = format!("key {}", (random >> 33) % 50).into_bytes();
            match (random >> 20) % 8 {
                0 => {
                    let taken = table.remove(&key).map(|(_, ids)| BTreeSet::from_iter(ids));
                    assert_eq!(taken, model.remove(&key));
                }
                1 => {
                    let taken = table.remove_any().map(|(key, ids)| (key.to_vec(), BTreeSet::from_iter(ids)));
                    let expected = taken.as_ref().and_then(|(key, _)| model.remove(key));
                    assert_eq!(taken.map(|(_, ids)| ids), expected);
                }
                _ => {
                    let id = (random >> 40) % 7;
                    table.insert(&key, id);
                    model.entry(key).or_default().insert(id);
                }
            }
            assert_eq!(table.keys(), model.len());
            assert_eq!(table.items(), model.values().map(BTreeSet::len).sum::<usize>());
        }
        for key in model.into_keys() {
            assert!(table.remove(&key).is_some());
        }
        assert_eq!((table.keys(), table.items(), table.bytes()), (0, 0, 0));
    }
}
