//! The index: what the engine calls.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use esker_seeded_bugs::{Bug, planted};

use crate::grow;
use crate::hash::{Cut, KeyHash, Place, SHARDS, STORED_HASHES};
use crate::options::{IndexOptions, UnverifiedLimit};
use crate::publish::{Occupant, Published};
use crate::scan::{Cursor, Step};
use crate::shard::{Shard, Writer};
use crate::slab::Slabs;
use crate::slot::Pointer;
use crate::table::Found;
use crate::unverified::{Suspects, UnverifiedOverwrite, Verified};

/// The in-memory hash index. See the crate's documentation.
#[derive(Debug)]
pub struct Index {
    pub(crate) cut: Cut,
    unverified_limit: UnverifiedLimit,
    pub(crate) slabs: Slabs,
    pub(crate) shards: Box<[Shard]>,
    pub(crate) len: CachePadded<AtomicU64>,
    unverified_len: CachePadded<AtomicUsize>,
}

impl Index {
    /// An empty index.
    pub fn new(options: IndexOptions) -> Index {
        Index {
            cut: Cut::new(options.hash_bits),
            unverified_limit: options.unverified_limit,
            slabs: Slabs::new(),
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            len: CachePadded::default(),
            unverified_len: CachePadded::default(),
        }
    }

    /// The pointer of the slot whose stored hash matches, else of the side table's entry with all 128 bits. The
    /// record may turn out to hold another key; then ask [`Index::get_exact`], then [`Index::suspects`].
    #[inline]
    pub fn get(&self, hash: &KeyHash) -> Option<Pointer> {
        let Place { shard, stored } = self.cut.place(hash);
        let found = self.shards[shard].get(&self.slabs, shard, stored);
        found.or_else(|| self.shards[shard].side.get(stored, hash))
    }

    /// Gets what [`Index::get`] will look at into the processor's cache. Many look-ups wait for their cache lines together
    /// if this is called for all of them first.
    #[inline]
    pub fn prefetch(&self, hash: &KeyHash) {
        let Place { shard, stored } = self.cut.place(hash);
        self.shards[shard].table(&self.slabs, shard).prefetch(stored);
    }

    /// The pointer of the exact side table's entry with all 128 bits.
    pub fn get_exact(&self, hash: &KeyHash) -> Option<Pointer> {
        let Place { shard, stored } = self.cut.place(hash);
        self.shards[shard].side.get(stored, hash)
    }

    /// What the index tells keys apart by: keys with the same number share a slot. Writers that must have a key to
    /// themselves exclude each other by it.
    #[inline]
    pub fn stored_hash(&self, hash: &KeyHash) -> u64 {
        let Place { shard, stored } = self.cut.place(hash);
        (shard as u64) << 32 | u64::from(stored)
    }

    /// The newest version of this key is now at `new`.
    ///
    /// If all 128 bits are in the side table, the entry is replaced there. Else, if a slot has the same stored hash,
    /// `compare` says whose record it points at: [`Occupant::SameKey`] is taken over; next to
    /// [`Occupant::OtherKey`] the key goes into the side table and displaces nothing; [`Occupant::Unknown`] is taken
    /// over and a [`UnverifiedOverwrite`] is remembered. Without such a slot the key gets one. `compare` is asked about an entry of the
    /// side table too: whose it is is known, but if its record is unknown somebody has to look at that later, so an unverified overwrite
    /// is remembered. `compare` runs under the shard's lock: it must neither block nor call the index.
    pub fn publish(
        &self,
        hash: KeyHash,
        new: Pointer,
        compare: impl FnOnce(Pointer) -> Occupant,
    ) -> Published {
        let Place { shard, stored } = self.cut.place(&hash);
        let mut writer = self.lock(shard);
        if let Some(displaced) = writer.shard.side.get(stored, &hash) {
            let unverified = compare(displaced) == Occupant::Unknown;
            if unverified {
                self.unverified(&mut writer, stored, UnverifiedOverwrite { displaced, check: hash.check });
            }
            writer.shard.side.insert(stored, &hash, new);
            return Published { displaced: Some(displaced), unverified, is_first: false };
        }
        let Some(found) = writer.find(stored) else {
            let is_first = !writer.shard.removed_unverified.load(Ordering::Relaxed)
                || planted(Bug::FirstBesideRemoved)
                || writer.state.unverified.of(stored).is_empty();
            self.insert(writer, stored, &hash, new);
            return Published { displaced: None, unverified: false, is_first };
        };
        let displaced = found.pointer();
        match compare(displaced) {
            Occupant::OtherKey => {
                self.insert_exact(&writer, stored, &hash, new);
                Published { displaced: None, unverified: false, is_first: false }
            }
            Occupant::SameKey => {
                writer.table().swing(found, new);
                Published { displaced: Some(displaced), unverified: false, is_first: false }
            }
            Occupant::Unknown => {
                // The unverified overwrite first: a reader that meets the foreign key then finds it.
                self.unverified(&mut writer, stored, UnverifiedOverwrite { displaced, check: hash.check });
                writer.table().swing(found, new);
                Published { displaced: Some(displaced), unverified: true, is_first: false }
            }
        }
    }

    /// Relocation: swings exactly `old` to `new`, in the slot or the side table; false if the key is no longer at
    /// `old`.
    pub fn replace(&self, hash: &KeyHash, old: Pointer, new: Pointer) -> bool {
        let Place { shard, stored } = self.cut.place(hash);
        let writer = self.lock(shard);
        let is_old = |found: &Found| found.pointer() == old || planted(Bug::CopyOverNewer);
        if let Some(found) = writer.find(stored).filter(is_old) {
            writer.table().swing(found, new);
            return true;
        }
        let at_old = writer.shard.side.get(stored, hash) == Some(old);
        if at_old {
            writer.shard.side.replace(stored, hash, new);
        }
        at_old
    }

    /// Deletion and expiry: removes exactly the entry at `old`; false if the key is no longer there.
    ///
    /// The caller verifies the unverified overwrites of this stored hash first. Those that it could not verify stay, and are noted to be
    /// this key's too: it is newer than what they displaced, which therefore never brings it back. A key that is hidden there
    /// is found by [`Index::may_be_hidden`].
    pub fn remove(&self, hash: &KeyHash, old: Pointer) -> bool {
        let Place { shard, stored } = self.cut.place(hash);
        let mut writer = self.lock(shard);
        let found = writer.find(stored).filter(|found| found.pointer() == old);
        if found.is_none() && writer.shard.side.get(stored, hash) != Some(old) {
            return false;
        }
        self.note_removed(&mut writer, stored, hash);
        match found {
            Some(found) => writer.remove(found),
            None => writer.shard.side.remove(stored, hash),
        }
        self.len.fetch_sub(1, Ordering::Relaxed);
        true
    }

    /// For a key that [`Index::get`] found nothing of: whether there may be something all the same, to be told when its unverified
    /// overwrites are verified. Only where some could not be when a key was removed.
    #[inline]
    pub fn may_be_hidden(&self, hash: &KeyHash) -> bool {
        let Place { shard, stored } = self.cut.place(hash);
        self.shards[shard].removed_unverified.load(Ordering::Acquire) && self.is_hidden(hash, shard, stored)
    }

    /// It may have gone to the slot or the side table since they were looked at.
    #[cold]
    fn is_hidden(&self, hash: &KeyHash, shard: usize, stored: u32) -> bool {
        let writer = self.lock(shard);
        let Suspects { occupant, exact, unverified } = self.suspects_of(&writer, stored);
        let of_others = |group: &[UnverifiedOverwrite]| group.iter().all(|known| known.check != hash.check);
        occupant.is_some()
            || exact.iter().any(|(other, _)| other == hash)
            || unverified.chunk_by(|a, b| a.displaced == b.displaced).any(of_others)
    }

    /// Whether exactly this pointer is the current one, in the slot or the side table.
    pub fn is_current(&self, hash: &KeyHash, pointer: Pointer) -> bool {
        let Place { shard, stored } = self.cut.place(hash);
        let found = self.shards[shard].get(&self.slabs, shard, stored);
        found == Some(pointer) || self.shards[shard].side.get(stored, hash) == Some(pointer)
    }

    /// Recovery: inserts a key that differs from every key that is in the index.
    pub fn load(&self, hash: KeyHash, pointer: Pointer) {
        self.publish(hash, pointer, |_| Occupant::OtherKey);
    }

    /// Keys that the index points at, in slots and in the side table.
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    /// Whether the index points at no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the index takes, everything counted.
    pub fn memory_bytes(&self) -> u64 {
        let shards: u64 = (0..SHARDS).map(|shard| self.lock(shard).memory_bytes()).sum();
        size_of::<Index>() as u64 + self.slabs.overhead_bytes() + shards
    }

    /// Forgets every entry and every unverified overwrite. `see` is shown what the entries pointed at, under the locks of
    /// their shards.
    pub fn clear(&self, mut see: impl FnMut(Pointer)) {
        for shard in 0..SHARDS {
            let mut writer = self.lock(shard);
            if writer.shard.used() > 0 {
                writer.table().entries().for_each(|(_, pointer)| see(pointer));
            }
            let exact = writer.shard.side.entries_in(0..STORED_HASHES);
            exact.into_iter().for_each(|(_, pointer)| see(pointer));
            self.len.fetch_sub(writer.shard.len() as u64, Ordering::Relaxed);
            self.unverified_len.fetch_sub(writer.state.unverified.len(), Ordering::Relaxed);
            writer.clear();
        }
    }

    /// The next entries of an iteration: about `limit` pointers.
    ///
    /// A cursor stays valid whatever the index does meanwhile: an entry that is there from the start of the
    /// iteration to its end is returned at least once, as current or as displaced.
    pub fn scan(&self, cursor: Cursor, limit: usize) -> Step {
        let mut step = Step::default();
        let (mut from, mut met) = (cursor.stored(), 0);
        for shard in cursor.shard()..SHARDS {
            let wanted = limit.saturating_sub(met).max(1);
            let (found, next) = self.shards[shard].scan(&self.slabs, shard, from, wanted);
            met += found.len();
            for (_, pointer, is_displaced) in found {
                if is_displaced { &mut step.displaced } else { &mut step.current }.push(pointer);
            }
            let after_shard = (met >= limit && shard + 1 < SHARDS).then(|| Cursor::at(shard + 1, 0));
            step.next = next.map(|stored| Cursor::at(shard, stored)).or(after_shard);
            if step.next.is_some() {
                break;
            }
            from = 0;
        }
        // Several keys may have displaced one record: see `note_removed`.
        step.displaced.sort_unstable();
        step.displaced.dedup();
        step
    }

    /// Pending unverified overwrites.
    pub fn unverified_len(&self) -> usize {
        self.unverified_len.load(Ordering::Relaxed)
    }

    /// The memory of the pending unverified overwrites, as a fraction of its limit. Beyond one the caller is to verify some of them.
    pub fn unverified_pressure(&self) -> f64 {
        self.unverified_limit.pressure(self.len(), self.unverified_len())
    }

    /// Whether anything leads to this pointer; see [`Verified::is_known`].
    pub fn is_known(&self, hash: &KeyHash, pointer: Pointer) -> bool {
        let Place { shard, stored } = self.cut.place(hash);
        let writer = self.lock(shard);
        is_at(&writer, stored, hash, pointer) || writer.state.unverified.against(stored, pointer) > 0
    }

    /// The record at `pointer` has this hash: drops the unverified overwrites of it that are those of its own key, and tells what is
    /// left. Unverified overwrites against a record have its stored hash, as it was displaced by keys that share its slot.
    pub fn verify(&self, hash: &KeyHash, pointer: Pointer) -> Verified {
        let Place { shard, stored } = self.cut.place(hash);
        let mut writer = self.lock(shard);
        let against = writer.state.unverified.against(stored, pointer);
        let of_key = UnverifiedOverwrite { displaced: pointer, check: hash.check };
        let same = usize::from(against > 0 && writer.state.unverified.has(stored, of_key));
        if same > 0 {
            let dropped = writer.state.unverified.remove(stored, |known| known.displaced == pointer);
            self.unverified_len.fetch_sub(dropped, Ordering::Relaxed);
        }
        let other = if same > 0 { 0 } else { against };
        Verified { same, other, is_known: other > 0 || is_at(&writer, stored, hash, pointer) }
    }

    /// Shows what each pending unverified overwrite displaced.
    pub fn displaced(&self, mut see: impl FnMut(Pointer)) {
        for shard in 0..SHARDS {
            self.lock(shard).state.unverified.iter().for_each(|unverified| see(unverified.displaced));
        }
    }

    /// Everything known about the stored hash of `hash`.
    pub fn suspects(&self, hash: &KeyHash) -> Suspects {
        let Place { shard, stored } = self.cut.place(hash);
        self.suspects_of(&self.lock(shard), stored)
    }

    /// If nothing about the stored hash of `hash` has changed since `seen`: drops the unverified overwrites in `seen` and inserts the
    /// keys that turned out to be hidden into the side table, in one step. Else returns false and changes nothing.
    ///
    /// A key is hidden if its newest version is at a displaced pointer: one that also is the slot's, or in
    /// `seen.exact`, is not, for it was published again since; nor one that displaced that version itself, for it was published
    /// again, and may have been removed.
    pub fn note_verified(&self, hash: &KeyHash, seen: &Suspects, hidden: &[(KeyHash, Pointer)]) -> bool {
        let Place { shard, stored } = self.cut.place(hash);
        let mut writer = self.lock(shard);
        if self.suspects_of(&writer, stored) != *seen {
            return false;
        }
        for (hash, pointer) in hidden {
            let belongs = self.cut.place(hash) == Place { shard, stored };
            assert!(belongs, "a hidden key has the stored hash of its unverified overwrite");
            self.insert_exact(&writer, stored, hash, *pointer);
        }
        let dropped = writer.state.unverified.remove(stored, |_| true);
        if !hidden.is_empty() || dropped > 0 {
            // A key that was remembered here may have moved to the slot, behind a scan: see its order.
            writer.count_move();
        }
        self.unverified_len.fetch_sub(dropped, Ordering::Relaxed);
        true
    }

    pub(crate) fn lock(&self, shard: usize) -> Writer<'_> {
        self.shards[shard].lock(&self.slabs, shard)
    }

    /// Gives a key that has none a slot, or an exact entry where its buckets have no room.
    fn insert(&self, mut writer: Writer<'_>, stored: u32, hash: &KeyHash, pointer: Pointer) {
        let (shard, generation) = (writer.number, writer.shard.generation());
        if !writer.insert(stored, pointer) {
            self.insert_exact(&writer, stored, hash, pointer);
            return;
        }
        self.len.fetch_add(1, Ordering::Relaxed);
        let grown = writer.shard.generation();
        // One lock at a time: two shards could otherwise wait for each other.
        drop(writer);
        if grown > generation {
            for neighbour in grow::neighbours(shard, grown) {
                self.lock(neighbour).grow_along(grown);
            }
            self.slabs.collapse(grown, shard);
        }
    }

    fn unverified(&self, writer: &mut Writer<'_>, stored: u32, unverified: UnverifiedOverwrite) {
        if planted(Bug::UnverifiedForgotten) && unverified.displaced.get().is_multiple_of(16) {
            return;
        }
        writer.state.unverified.insert(stored, unverified);
        self.unverified_len.fetch_add(1, Ordering::Relaxed);
    }

    /// A key is about to be removed: it counts as one that displaced all that is not verified yet.
    fn note_removed(&self, writer: &mut Writer<'_>, stored: u32, hash: &KeyHash) {
        let unverified = writer.state.unverified.of(stored);
        if unverified.is_empty() || planted(Bug::RemovalNotNoted) {
            return;
        }
        for group in unverified.chunk_by(|a, b| a.displaced == b.displaced) {
            if group.iter().all(|known| known.check != hash.check) {
                let displaced = group[0].displaced;
                self.unverified(writer, stored, UnverifiedOverwrite { displaced, check: hash.check });
            }
        }
        writer.shard.removed_unverified.store(true, Ordering::Release);
    }

    pub(crate) fn insert_exact(&self, writer: &Writer<'_>, stored: u32, hash: &KeyHash, pointer: Pointer) {
        if writer.shard.side.insert(stored, hash, pointer).is_none() {
            self.len.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn suspects_of(&self, writer: &Writer<'_>, stored: u32) -> Suspects {
        Suspects {
            occupant: writer.find(stored).map(|found| found.pointer()),
            exact: writer.shard.side.of(stored),
            unverified: writer.state.unverified.of(stored),
        }
    }
}

/// Whether a key's slot or its entry in the side table leads to this pointer.
fn is_at(writer: &Writer<'_>, stored: u32, hash: &KeyHash, pointer: Pointer) -> bool {
    writer.find(stored).is_some_and(|found| found.pointer() == pointer)
        || writer.shard.side.get(stored, hash) == Some(pointer)
}
