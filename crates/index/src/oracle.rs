//! The index as plain maps under one lock: slow, large, and simple enough to be believed.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::claims::{CLAIM_BYTES, Claim, Suspects};
use crate::hash::{Cut, KeyHash, SHARDS};
use crate::options::IndexOptions;
use crate::publish::{Occupant, Published};
use crate::scan::Cursor;
use crate::slot::Pointer;

/// The in-memory hash index.
#[derive(Debug)]
pub struct Index {
    options: IndexOptions,
    maps: Mutex<Maps>,
}

/// Shard and stored hash, packed like a [`Cursor`].
type Stored = u64;

#[derive(Debug, Default)]
struct Maps {
    slots: BTreeMap<Stored, Pointer>,
    side: BTreeMap<Stored, Vec<(KeyHash, Pointer)>>,
    claims: BTreeMap<Stored, Vec<Claim>>,
}

impl Maps {
    fn exact(&mut self, stored: Stored, hash: &KeyHash) -> Option<&mut Pointer> {
        self.side.get_mut(&stored)?.iter_mut().find(|(known, _)| known == hash).map(|(_, at)| at)
    }

    fn insert_exact(&mut self, stored: Stored, hash: KeyHash, at: Pointer) {
        let entries = self.side.entry(stored).or_default();
        entries.retain(|(known, _)| *known != hash);
        entries.push((hash, at));
        entries.sort_by_key(|(hash, _)| (hash.slot, hash.check));
    }

    fn suspects(&self, stored: Stored) -> Suspects {
        Suspects {
            occupant: self.slots.get(&stored).copied(),
            exact: self.side.get(&stored).cloned().unwrap_or_default(),
            claims: self.claims.get(&stored).cloned().unwrap_or_default(),
        }
    }
}

impl Index {
    /// An empty index.
    pub fn new(options: IndexOptions) -> Index {
        Index { options, maps: Mutex::default() }
    }

    fn stored(&self, hash: &KeyHash) -> Stored {
        let place = Cut::new(self.options.hash_bits).place(hash);
        Cursor::at(place.shard, place.stored).to_u64()
    }

    /// The pointer of the slot whose stored hash matches, else of the side table's entry with all 128 bits. The
    /// record may turn out to hold another key; then ask [`Index::get_exact`], then [`Index::suspects`].
    pub fn get(&self, hash: &KeyHash) -> Option<Pointer> {
        let stored = self.stored(hash);
        let mut maps = self.maps.lock();
        maps.slots.get(&stored).copied().or_else(|| maps.exact(stored, hash).copied())
    }

    /// The pointer of the exact side table's entry with all 128 bits.
    pub fn get_exact(&self, hash: &KeyHash) -> Option<Pointer> {
        self.maps.lock().exact(self.stored(hash), hash).copied()
    }

    /// The newest version of this key is now at `new`.
    ///
    /// If all 128 bits are in the side table, the entry is replaced there. Else, if a slot has the same stored hash,
    /// `compare` says whose record it points at: [`Occupant::SameKey`] is taken over; next to
    /// [`Occupant::OtherKey`] the key goes into the side table and displaces nothing; [`Occupant::Unknown`] is taken
    /// over and a [`Claim`] is remembered. Without such a slot the key gets one. `compare` runs under the shard's
    /// lock: it must neither block nor call the index.
    pub fn publish(
        &self,
        hash: KeyHash,
        new: Pointer,
        compare: impl FnOnce(Pointer) -> Occupant,
    ) -> Published {
        let stored = self.stored(&hash);
        let mut maps = self.maps.lock();
        if let Some(at) = maps.exact(stored, &hash) {
            return Published { displaced: Some(std::mem::replace(at, new)), claimed: false };
        }
        let Some(occupant) = maps.slots.get(&stored).copied() else {
            maps.slots.insert(stored, new);
            return Published { displaced: None, claimed: false };
        };
        match compare(occupant) {
            Occupant::OtherKey => {
                maps.insert_exact(stored, hash, new);
                Published { displaced: None, claimed: false }
            }
            Occupant::SameKey => {
                maps.slots.insert(stored, new);
                Published { displaced: Some(occupant), claimed: false }
            }
            Occupant::Unknown => {
                maps.slots.insert(stored, new);
                maps.claims.entry(stored).or_default().push(Claim { hash, displaced: occupant });
                Published { displaced: Some(occupant), claimed: true }
            }
        }
    }

    /// Relocation: swings exactly `old` to `new`, in the slot or the side table; false if the key is no longer at
    /// `old`.
    pub fn replace(&self, hash: &KeyHash, old: Pointer, new: Pointer) -> bool {
        let stored = self.stored(hash);
        let mut maps = self.maps.lock();
        if let Some(at) = maps.slots.get_mut(&stored).filter(|at| **at == old) {
            *at = new;
            return true;
        }
        match maps.exact(stored, hash) {
            Some(at) if *at == old => {
                *at = new;
                true
            }
            _ => false,
        }
    }

    /// Deletion and expiry: removes exactly the entry at `old`; false if the key is no longer there.
    ///
    /// The caller settles the claims of this stored hash first. A slot that is emptied while such claims are pending
    /// makes the key hidden behind it unreachable, and a claim that outlives its key brings an old version back.
    pub fn remove(&self, hash: &KeyHash, old: Pointer) -> bool {
        let stored = self.stored(hash);
        let mut maps = self.maps.lock();
        if maps.slots.get(&stored) == Some(&old) {
            debug_assert!(!maps.claims.contains_key(&stored), "removed with claims pending");
            maps.slots.remove(&stored);
            return true;
        }
        if maps.exact(stored, hash).is_some_and(|at| *at == old) {
            debug_assert!(!maps.claims.contains_key(&stored), "removed with claims pending");
            maps.side.get_mut(&stored).expect("found above").retain(|(known, _)| known != hash);
            return true;
        }
        false
    }

    /// Whether exactly this pointer is the current one, in the slot or the side table.
    pub fn is_current(&self, hash: &KeyHash, pointer: Pointer) -> bool {
        let stored = self.stored(hash);
        let mut maps = self.maps.lock();
        maps.slots.get(&stored) == Some(&pointer) || maps.exact(stored, hash).is_some_and(|at| *at == pointer)
    }

    /// Recovery: inserts a key that differs from every key that is in the index.
    pub fn load(&self, hash: KeyHash, pointer: Pointer) {
        self.publish(hash, pointer, |_| Occupant::OtherKey);
    }

    /// Keys that the index points at, in slots and in the side table.
    pub fn len(&self) -> u64 {
        let maps = self.maps.lock();
        (maps.slots.len() + maps.side.values().map(Vec::len).sum::<usize>()) as u64
    }

    /// Whether the index points at no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the index takes, everything counted.
    pub fn memory_bytes(&self) -> u64 {
        self.len() * 100 + self.claims_len() as u64 * CLAIM_BYTES
    }

    /// Forgets every entry and every claim.
    pub fn clear(&self) {
        *self.maps.lock() = Maps::default();
    }

    /// The next entries of an iteration: about `limit` pointers, and where to go on, `None` at the end.
    ///
    /// A cursor stays valid whatever the index does meanwhile: an entry that is there from the start of the
    /// iteration to its end is returned at least once.
    pub fn scan(&self, cursor: Cursor, limit: usize) -> (Vec<Pointer>, Option<Cursor>) {
        let maps = self.maps.lock();
        let mut found: Vec<(Stored, Pointer)> =
            maps.slots.range(cursor.to_u64()..).take(limit + 1).map(|(stored, at)| (*stored, *at)).collect();
        let end = (SHARDS as u64) << 32;
        let next = if found.len() > limit.max(1) { found.pop().expect("not empty").0 } else { end };
        for (stored, entries) in maps.side.range(cursor.to_u64()..next) {
            found.extend(entries.iter().map(|(_, at)| (*stored, *at)));
        }
        let pointers = found.into_iter().map(|(_, at)| at).collect();
        (pointers, (next < end).then(|| Cursor::from_u64(next)))
    }

    /// Pending claims.
    pub fn claims_len(&self) -> usize {
        self.maps.lock().claims.values().map(Vec::len).sum()
    }

    /// The memory of the pending claims, as a fraction of its limit. Beyond one the caller is to settle before it
    /// publishes more.
    pub fn claims_pressure(&self) -> f64 {
        let limit = self.options.claims_limit.bytes(self.len());
        (self.claims_len() as u64 * CLAIM_BYTES) as f64 / limit as f64
    }

    /// All claims whose displaced pointer satisfies the predicate.
    pub fn claims_where(&self, mut pred: impl FnMut(Pointer) -> bool) -> Vec<Claim> {
        let maps = self.maps.lock();
        maps.claims.values().flatten().filter(|claim| pred(claim.displaced)).copied().collect()
    }

    /// Everything known about the stored hash of `hash`.
    pub fn suspects(&self, hash: &KeyHash) -> Suspects {
        self.maps.lock().suspects(self.stored(hash))
    }

    /// If nothing about the stored hash of `hash` has changed since `seen`: drops the claims in `seen` and inserts the
    /// keys that turned out to be hidden into the side table, in one step. Else returns false and changes nothing.
    ///
    /// A key is hidden if its newest version is at a displaced pointer: one that also is the slot's, or in
    /// `seen.exact`, is not, for it was published again since.
    pub fn settle(&self, hash: &KeyHash, seen: &Suspects, hidden: &[(KeyHash, Pointer)]) -> bool {
        let stored = self.stored(hash);
        let mut maps = self.maps.lock();
        if maps.suspects(stored) != *seen {
            return false;
        }
        maps.claims.remove(&stored);
        for (hash, at) in hidden {
            assert_eq!(self.stored(hash), stored, "a hidden key has the stored hash of its claims");
            maps.insert_exact(stored, *hash, *at);
        }
        true
    }

    /// Drops claims that were verified: the displaced record had the same key.
    pub fn release(&self, claims: &[Claim]) {
        let mut maps = self.maps.lock();
        for claim in claims {
            let stored = self.stored(&claim.hash);
            if let Some(pending) = maps.claims.get_mut(&stored) {
                pending.retain(|known| known != claim);
                if pending.is_empty() {
                    maps.claims.remove(&stored);
                }
            }
        }
    }
}
