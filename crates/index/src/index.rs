//! The index, as called by the engine.

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
use crate::unverified::{Standing, Suspects, UnverifiedOverwrite, Verified};

/// The in-memory hash index. See the documentation of the crate.
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
    /// Creates an empty index.
    pub fn new(options: IndexOptions) -> Index {
        Index {
            cut: Cut::new(options.hash_bits),
            unverified_limit: options.unverified_limit,
            slabs: Slabs::new(options.buckets_max),
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            len: CachePadded::default(),
            unverified_len: CachePadded::default(),
        }
    }

    /// Returns the pointer of the slot whose stored hash matches, otherwise of the side table entry with the same 128 bits. The
    /// record may hold another key; then ask [`Index::get_exact`], then [`Index::suspects`].
    #[inline]
    pub fn get(&self, hash: &KeyHash) -> Option<Pointer> {
        let Place { shard, stored } = self.cut.place(hash);
        let found = self.shards[shard].get(&self.slabs, shard, stored);
        found.or_else(|| self.shards[shard].side.get(stored, hash))
    }

    /// Prefetches the cache lines that [`Index::get`] will examine. Called for many keys first, it overlaps the cache misses of
    /// their look-ups.
    #[inline]
    pub fn prefetch(&self, hash: &KeyHash) {
        let Place { shard, stored } = self.cut.place(hash);
        self.shards[shard].table(&self.slabs, shard).prefetch(stored);
    }

    /// Returns the pointer of the side table entry with the same 128 bits.
    pub fn get_exact(&self, hash: &KeyHash) -> Option<Pointer> {
        let Place { shard, stored } = self.cut.place(hash);
        self.shards[shard].side.get(stored, hash)
    }

    /// Returns the number by which the index distinguishes keys: keys with the same number share a slot. Writers that need
    /// exclusive access to a key exclude each other by this number.
    #[inline]
    pub fn stored_hash(&self, hash: &KeyHash) -> u64 {
        let Place { shard, stored } = self.cut.place(hash);
        (shard as u64) << 32 | u64::from(stored)
    }

    /// Publishes `new` as the location of the newest version of this key.
    ///
    /// If the side table has all 128 bits, that entry is replaced. Otherwise, if a slot has the same stored hash, `compare`
    /// reports whose record it points at: [`Occupant::SameKey`] is replaced; beside [`Occupant::OtherKey`] the key enters the
    /// side table and displaces nothing; [`Occupant::Unknown`] is replaced, and an [`UnverifiedOverwrite`] is recorded. Without
    /// such a slot the key gets a slot of its own. `compare` is also called for an entry of the side table: the key of that
    /// entry is known, but if its record is unknown it must be verified later, so an unverified overwrite is recorded.
    /// `compare` runs under the shard's lock: it must neither block nor call the index.
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
                self.swing(writer, found, stored, &hash, new);
                Published { displaced: Some(displaced), unverified: false, is_first: false }
            }
            Occupant::Unknown => {
                // The unverified overwrite is recorded first, so that a reader that meets the foreign key finds it.
                self.unverified(&mut writer, stored, UnverifiedOverwrite { displaced, check: hash.check });
                self.swing(writer, found, stored, &hash, new);
                Published { displaced: Some(displaced), unverified: true, is_first: false }
            }
        }
    }

    /// Relocation: swings exactly `old` to `new`, in the slot or the side table. Returns false if the key is no longer at
    /// `old`. Afterwards the entry is `hash`'s, which may be another key with the same stored hash.
    pub fn replace(&self, hash: &KeyHash, old: Pointer, new: Pointer) -> bool {
        let Place { shard, stored } = self.cut.place(hash);
        let writer = self.lock(shard);
        let is_old = |found: &Found| found.pointer() == old || planted(Bug::CopyOverNewer);
        if let Some(found) = writer.find(stored).filter(is_old) {
            self.swing(writer, found, stored, hash, new);
            return true;
        }
        let at_old = writer.shard.side.get(stored, hash) == Some(old);
        if at_old {
            writer.shard.side.replace(stored, hash, new);
        }
        at_old
    }

    /// Deletion and expiry: removes exactly the entry at `old`. Returns false if the key is no longer there.
    ///
    /// The caller first verifies the unverified overwrites of this stored hash. Unverifiable ones remain, and are recorded for
    /// this key as well: the key is newer than the records they displaced, so those records never bring it back. A key that is
    /// hidden by them is reported by [`Index::may_be_hidden`].
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

    /// Deletion of a key whose record cannot be read. Removes the key's entry of the side table. Without one, and if the record of the
    /// slot may be the key's (`may_be_in_slot`), that record becomes an unverified overwrite by this key. All others of this stored
    /// hash are recorded for this key as well. So the key is absent from now on, and a key that shares its slot is found once the
    /// record there can be read. Returns the removed pointer.
    ///
    /// The caller keeps other keys of this stored hash from being published since it looked at the slot.
    pub fn remove_unread(&self, hash: &KeyHash, may_be_in_slot: bool) -> Option<Pointer> {
        let Place { shard, stored } = self.cut.place(hash);
        let mut writer = self.lock(shard);
        let exact = writer.shard.side.get(stored, hash);
        let found = writer.find(stored).filter(|_| may_be_in_slot && exact.is_none());
        if let Some(found) = found.as_ref().filter(|_| !planted(Bug::UnreadRemovalNotNoted)) {
            // Before the slot is emptied, so that a reader of another key finds it.
            let displaced = found.pointer();
            self.unverified(&mut writer, stored, UnverifiedOverwrite { displaced, check: hash.check });
        }
        self.note_removed(&mut writer, stored, hash);
        let removed = exact.or_else(|| found.as_ref().map(Found::pointer))?;
        match found {
            Some(found) => writer.remove(found),
            None => writer.shard.side.remove(stored, hash),
        }
        self.len.fetch_sub(1, Ordering::Relaxed);
        Some(removed)
    }

    /// Returns true if a key that [`Index::get`] did not find may still exist, to be found by verifying its unverified
    /// overwrites. This happens only after the removal of a key while some of them could not be verified.
    #[inline]
    pub fn may_be_hidden(&self, hash: &KeyHash) -> bool {
        let Place { shard, stored } = self.cut.place(hash);
        self.shards[shard].removed_unverified.load(Ordering::Acquire) && self.is_hidden(hash, shard, stored)
    }

    /// Checks under the lock, because the key may have moved to the slot or the side table since they were read.
    #[cold]
    fn is_hidden(&self, hash: &KeyHash, shard: usize, stored: u32) -> bool {
        let writer = self.lock(shard);
        let Suspects { occupant, exact, unverified } = self.suspects_of(&writer, stored);
        let of_others = |group: &[UnverifiedOverwrite]| group.iter().all(|known| known.check != hash.check);
        occupant.is_some()
            || exact.iter().any(|(other, _)| other == hash)
            || unverified.chunk_by(|a, b| a.displaced == b.displaced).any(of_others)
    }

    /// Returns true if exactly this pointer is the current one, in the slot or the side table.
    pub fn is_current(&self, hash: &KeyHash, pointer: Pointer) -> bool {
        let Place { shard, stored } = self.cut.place(hash);
        let found = self.shards[shard].get(&self.slabs, shard, stored);
        found == Some(pointer) || self.shards[shard].side.get(stored, hash) == Some(pointer)
    }

    /// Recovery: inserts a key that differs from every key in the index.
    pub fn load(&self, hash: KeyHash, pointer: Pointer) {
        self.publish(hash, pointer, |_| Occupant::OtherKey);
    }

    /// Returns the number of keys in slots and in the side table.
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    /// Returns true if the index has no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the memory of the index in bytes, including all overhead.
    pub fn memory_bytes(&self) -> u64 {
        let bytes = |number: usize| self.shards[number].memory_bytes(&self.slabs, number);
        let shards: u64 = (0..SHARDS).map(bytes).sum();
        size_of::<Index>() as u64 + self.slabs.overhead_bytes() + shards
    }

    /// Returns the number of times that the system refused memory for larger tables. Keys then go to the side table, which
    /// takes 52 bytes each.
    pub fn refused_slabs(&self) -> u64 {
        self.slabs.refused()
    }

    /// Removes all entries and unverified overwrites. Calls `see` with the pointer of each entry, under the lock of its shard.
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

    /// Returns the next entries of an iteration, about `limit` pointers.
    ///
    /// A cursor stays valid under all changes: an entry that exists from the start of the iteration to its end is returned at
    /// least once, as current or as displaced.
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

    /// Returns the number of pending unverified overwrites.
    pub fn unverified_len(&self) -> usize {
        self.unverified_len.load(Ordering::Relaxed)
    }

    /// Returns the memory of pending unverified overwrites as a fraction of its limit. Above one, the caller must verify some
    /// of them.
    pub fn unverified_pressure(&self) -> f64 {
        self.unverified_limit.pressure(self.len(), self.unverified_len())
    }

    /// Returns true if any entry leads to this pointer; see [`Verified::is_known`].
    pub fn is_known(&self, hash: &KeyHash, pointer: Pointer) -> bool {
        let Place { shard, stored } = self.cut.place(hash);
        let writer = self.lock(shard);
        is_at(&writer, stored, hash, pointer) || writer.state.unverified.against(stored, pointer) > 0
    }

    /// Returns the way in which the index leads to a record that was found to have this hash. Changes nothing.
    pub fn standing(&self, hash: &KeyHash, pointer: Pointer) -> Standing {
        if self.is_current(hash, pointer) {
            return Standing::Current;
        }
        let Place { shard, stored } = self.cut.place(hash);
        let writer = self.lock(shard);
        let of_key = UnverifiedOverwrite { displaced: pointer, check: hash.check };
        match () {
            () if is_at(&writer, stored, hash, pointer) => Standing::Current,
            () if writer.state.unverified.against(stored, pointer) == 0 => Standing::Dead,
            () if writer.state.unverified.has(stored, of_key) => Standing::Dead,
            () => Standing::Displaced,
        }
    }

    /// Called after the record at `pointer` was found to have this hash. If its own key displaced it, drops all unverified
    /// overwrites of the record. Returns the number of those that remain, and whether any entry still leads to the record. All
    /// its overwrites have the stored hash of the record, because it was displaced by keys that share its slot.
    pub fn verify(&self, hash: &KeyHash, pointer: Pointer) -> Verified {
        let Place { shard, stored } = self.cut.place(hash);
        let mut writer = self.lock(shard);
        let against = writer.state.unverified.against(stored, pointer);
        let of_key = UnverifiedOverwrite { displaced: pointer, check: hash.check };
        let same = usize::from(against > 0 && writer.state.unverified.has(stored, of_key));
        if same > 0 {
            let dropped =
                writer.change_unverified(|all| all.remove(stored, |known| known.displaced == pointer));
            self.unverified_len.fetch_sub(dropped, Ordering::Relaxed);
        }
        let other = if same > 0 { 0 } else { against };
        Verified { same, other, is_known: other > 0 || is_at(&writer, stored, hash, pointer) }
    }

    /// Drops the unverified overwrites of records for which `is_dead` returns true. The caller knows that each key of such a
    /// record has a newer version or was removed, although the record was not read.
    pub fn drop_dead(&self, is_dead: impl Fn(Pointer) -> bool) {
        for shard in 0..SHARDS {
            let mut writer = self.lock(shard);
            for (stored, displaced) in writer.state.unverified.displaced_in(0..STORED_HASHES) {
                if is_dead(displaced) {
                    let dropped = writer
                        .change_unverified(|all| all.remove(stored, |known| known.displaced == displaced));
                    self.unverified_len.fetch_sub(dropped, Ordering::Relaxed);
                }
            }
        }
    }

    /// Calls `see` with the displaced pointer of each pending unverified overwrite.
    pub fn displaced(&self, mut see: impl FnMut(Pointer)) {
        for shard in 0..SHARDS {
            self.lock(shard).state.unverified.iter().for_each(|unverified| see(unverified.displaced));
        }
    }

    /// Returns all entries with the stored hash of `hash`.
    pub fn suspects(&self, hash: &KeyHash) -> Suspects {
        let Place { shard, stored } = self.cut.place(hash);
        self.suspects_of(&self.lock(shard), stored)
    }

    /// If nothing about the stored hash of `hash` has changed since `seen`: drops the unverified overwrites in `seen` and
    /// inserts the hidden keys into the side table, in one step. Otherwise returns false and changes nothing.
    ///
    /// A key is hidden if its newest version is at a displaced pointer. It is not hidden if it is also in the slot or in
    /// `seen.exact`, because it was published again since; nor if it displaced that version itself, because it was published
    /// again and may have been removed.
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
        let dropped = writer.change_unverified(|all| all.remove(stored, |_| true));
        if !hidden.is_empty() || dropped > 0 {
            // A key recorded here may have returned to the slot behind a scan: see the order in `entries_in`.
            writer.count_move();
        }
        self.unverified_len.fetch_sub(dropped, Ordering::Relaxed);
        true
    }

    pub(crate) fn lock(&self, shard: usize) -> Writer<'_> {
        self.shards[shard].lock(&self.slabs, shard)
    }

    /// Inserts an absent key into a slot, or into the side table if its buckets are full.
    fn insert(&self, mut writer: Writer<'_>, stored: u32, hash: &KeyHash, pointer: Pointer) {
        let generation = writer.shard.generation();
        if !writer.insert(stored, pointer) {
            self.insert_exact(&writer, stored, hash, pointer);
            return;
        }
        self.len.fetch_add(1, Ordering::Relaxed);
        self.follow_growth(writer, generation);
    }

    /// Swings the entry of a stored hash, which was found, to another record of the key `hash`.
    fn swing(&self, mut writer: Writer<'_>, found: Found, stored: u32, hash: &KeyHash, pointer: Pointer) {
        let generation = writer.shard.generation();
        writer.swing(found, stored, hash, pointer);
        self.follow_growth(writer, generation);
    }

    /// If a shard has grown since `generation`, lets its neighbours grow along, and collapses its pages into huge ones.
    #[inline]
    fn follow_growth(&self, writer: Writer<'_>, generation: usize) {
        let (shard, grown) = (writer.number, writer.shard.generation());
        // Holds one lock at a time, because two shards could otherwise deadlock.
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
        writer.change_unverified(|all| all.insert(stored, unverified));
        self.unverified_len.fetch_add(1, Ordering::Relaxed);
    }

    /// Records a key that is about to be removed as one that displaced every record that is not verified yet.
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

/// Returns true if a key's slot or its side table entry points at this pointer.
fn is_at(writer: &Writer<'_>, stored: u32, hash: &KeyHash, pointer: Pointer) -> bool {
    writer.find(stored).is_some_and(|found| found.pointer() == pointer)
        || writer.shard.side.get(stored, hash) == Some(pointer)
}
