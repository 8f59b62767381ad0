//! The index as plain maps: slow, large, and simple enough to be obviously correct.

use std::collections::BTreeMap;

use esker_index::{KeyHash, Occupant, Pointer, Published, Suspects, UnverifiedOverwrite, Verified};

/// The part of a hash that a slot keeps.
type Stored = u64;

#[derive(Debug)]
pub(crate) struct Oracle {
    mask: Stored,
    slots: BTreeMap<Stored, Pointer>,
    side: BTreeMap<Stored, BTreeMap<(u64, u64), Pointer>>,
    unverified: BTreeMap<Stored, Vec<UnverifiedOverwrite>>,
}

impl Oracle {
    pub(crate) fn new(hash_bits: Option<u32>) -> Oracle {
        let mask = hash_bits.map_or(u64::MAX, |bits| (1 << bits) - 1);
        Oracle { mask, slots: BTreeMap::new(), side: BTreeMap::new(), unverified: BTreeMap::new() }
    }

    fn stored(&self, hash: &KeyHash) -> Stored {
        hash.slot & self.mask
    }

    fn exact(&mut self, hash: &KeyHash) -> Option<&mut Pointer> {
        self.side.get_mut(&(hash.slot & self.mask))?.get_mut(&(hash.slot, hash.check))
    }

    fn insert_exact(&mut self, hash: KeyHash, at: Pointer) {
        self.side.entry(self.stored(&hash)).or_default().insert((hash.slot, hash.check), at);
    }

    pub(crate) fn get(&mut self, hash: &KeyHash) -> Option<Pointer> {
        self.slots.get(&self.stored(hash)).copied().or_else(|| self.get_exact(hash))
    }

    pub(crate) fn get_exact(&mut self, hash: &KeyHash) -> Option<Pointer> {
        self.exact(hash).copied()
    }

    pub(crate) fn publish(
        &mut self,
        hash: KeyHash,
        new: Pointer,
        compare: impl FnOnce(Pointer) -> Occupant,
    ) -> Published {
        let stored = self.stored(&hash);
        if let Some(at) = self.exact(&hash) {
            let displaced = std::mem::replace(at, new);
            let unverified = compare(displaced) == Occupant::Unknown;
            if unverified {
                self.unverified
                    .entry(stored)
                    .or_default()
                    .push(UnverifiedOverwrite { displaced, check: hash.check });
            }
            return Published { displaced: Some(displaced), unverified, is_first: false };
        }
        let Some(occupant) = self.slots.get(&stored).copied() else {
            self.slots.insert(stored, new);
            return Published { displaced: None, unverified: false, is_first: true };
        };
        match compare(occupant) {
            Occupant::OtherKey => {
                self.insert_exact(hash, new);
                Published { displaced: None, unverified: false, is_first: false }
            }
            Occupant::SameKey => {
                self.slots.insert(stored, new);
                Published { displaced: Some(occupant), unverified: false, is_first: false }
            }
            Occupant::Unknown => {
                self.slots.insert(stored, new);
                self.unverified
                    .entry(stored)
                    .or_default()
                    .push(UnverifiedOverwrite { displaced: occupant, check: hash.check });
                Published { displaced: Some(occupant), unverified: true, is_first: false }
            }
        }
    }

    pub(crate) fn replace(&mut self, hash: &KeyHash, old: Pointer, new: Pointer) -> bool {
        let stored = self.stored(hash);
        let at = match self.slots.get_mut(&stored) {
            Some(at) if *at == old => Some(at),
            _ => self.exact(hash),
        };
        match at {
            Some(at) if *at == old => {
                *at = new;
                true
            }
            _ => false,
        }
    }

    pub(crate) fn remove(&mut self, hash: &KeyHash, old: Pointer) -> bool {
        let stored = self.stored(hash);
        if self.slots.get(&stored) == Some(&old) {
            self.slots.remove(&stored);
            return true;
        }
        let there = self.exact(hash).is_some_and(|at| *at == old);
        if there {
            self.side.get_mut(&stored).expect("found above").remove(&(hash.slot, hash.check));
        }
        there
    }

    pub(crate) fn is_current(&mut self, hash: &KeyHash, pointer: Pointer) -> bool {
        self.slots.get(&self.stored(hash)) == Some(&pointer) || self.get_exact(hash) == Some(pointer)
    }

    pub(crate) fn pointers(&self) -> Vec<Pointer> {
        let side = self.side.values().flat_map(BTreeMap::values);
        let mut all: Vec<_> = self.slots.values().chain(side).copied().collect();
        all.sort();
        all
    }

    pub(crate) fn displaced(&self) -> Vec<Pointer> {
        self.unverified.values().flatten().map(|unverified| unverified.displaced).collect()
    }

    pub(crate) fn suspects(&self, hash: &KeyHash) -> Suspects {
        let stored = self.stored(hash);
        let exact = self.side.get(&stored).into_iter().flatten();
        let mut unverified = self.unverified.get(&stored).cloned().unwrap_or_default();
        unverified.sort();
        Suspects {
            occupant: self.slots.get(&stored).copied(),
            exact: exact.map(|(&(slot, check), &at)| (KeyHash { slot, check }, at)).collect(),
            unverified,
        }
    }

    pub(crate) fn note_verified(
        &mut self,
        hash: &KeyHash,
        seen: &Suspects,
        hidden: &[(KeyHash, Pointer)],
    ) -> bool {
        if self.suspects(hash) != *seen {
            return false;
        }
        self.unverified.remove(&self.stored(hash));
        for (hash, at) in hidden {
            self.insert_exact(*hash, *at);
        }
        true
    }

    pub(crate) fn verify(&mut self, hash: &KeyHash, displaced: Pointer) -> Verified {
        let mut verified = Verified { same: 0, other: 0, is_known: self.is_current(hash, displaced) };
        self.unverified.entry(self.stored(hash)).or_default().retain(|unverified| {
            let (against, same) = (unverified.displaced == displaced, unverified.check == hash.check);
            verified.same += usize::from(against && same);
            verified.other += usize::from(against && !same);
            verified.is_known |= against && !same;
            !(against && same)
        });
        verified
    }

    pub(crate) fn clear(&mut self) {
        self.slots.clear();
        self.side.clear();
        self.unverified.clear();
    }
}
