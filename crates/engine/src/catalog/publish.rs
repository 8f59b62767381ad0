//! Makes records visible atomically, and subtracts the live bytes of the records that they displace.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use esker_index::{KeyHash, Occupant, Pointer};
use esker_log::{Claim, Entry, Kind, Location, RecordView, class_bytes};
use esker_seeded_bugs::{Bug, planted};

use crate::catalog::Catalog;
use crate::catalog::appended::{Appended, Ephemeral};
use crate::catalog::feed::{Cause, Change};
use crate::catalog::place::Place;
use crate::catalog::scans::OldPlace;
use crate::segments::damaged::Tombstone;

impl Catalog {
    /// Makes the records of a group visible atomically, and reports them, and the keys that the same batch created and
    /// deleted.
    ///
    /// Must be called in lane order: by the holder of the lane's lock while nothing waits for the committer, else by
    /// the committer. A batch without records is published by its writer, which holds the reservation of its keys.
    pub(crate) fn publish(&self, records: &[Appended], ephemeral: &[Ephemeral]) {
        let turn = self.feed.turn();
        let batch = (records.len() > 1 && !planted(Bug::HalfABatchSeen)).then(|| self.batches.begin());
        // The keys of a batch differ, so deletes can be published first. They must be, because otherwise a put of
        // another key with the same hash could displace the record that a delete looked up, and be deleted in its
        // place.
        records.iter().filter(|r| r.kind == Kind::Tombstone).for_each(|r| self.publish_tombstone(r));
        records.iter().filter(|r| r.kind == Kind::Put).for_each(|r| self.publish_put(r, &r.key));
        self.feed.report(turn, batch, || {
            let newest = self.space.sequence.load(Ordering::Acquire);
            let of_ephemeral = ephemeral.iter().map(move |key| key.change(newest));
            records.iter().map(|record| record.change(&record.key)).chain(of_ephemeral)
        });
    }

    /// Makes one put visible. Same conditions as [`publish`](Self::publish).
    pub(crate) fn publish_one(&self, put: &Appended, key: &Bytes) {
        let turn = self.feed.turn();
        self.publish_put(put, key);
        self.feed.report(turn, None, || std::iter::once(put.change(key)));
    }

    fn publish_put(&self, record: &Appended, key: &Bytes) {
        self.space.add_live(record.location, i64::from(record.padded_bytes));
        let (mut known_bytes, mut old_place) = (None, None);
        let mut scans = self.scans.lock();
        let published = self.index.publish(record.hash, record.pointer, |old| {
            if !scans.is_empty() {
                // Read while the index leads to it, so that its segment cannot be freed.
                old_place = Some(self.old_place(old));
            }
            if let Some(replaced) = record.replaces
                && replaced.pointer == old
            {
                known_bytes = Some(i64::from(replaced.padded_bytes));
                return Occupant::SameKey;
            }
            let (occupant, bytes) = self.compare_in_memory(key, old);
            known_bytes = bytes;
            occupant
        });
        if !scans.is_empty() {
            let displaced = old_place.filter(|_| published.displaced.is_some());
            scans.published(self, record, key, displaced, published.is_first);
        }
        drop(scans);
        if let Some(old) = published.displaced {
            let bytes = known_bytes.filter(|_| !published.unverified).unwrap_or_else(|| self.estimate(old));
            self.space.add_live(self.packing.unpack(old.get()), -bytes);
        }
        if !published.is_first && !planted(Bug::OverwriteHidesNothing) {
            // Relocation may drop this record only if the older version that it hides cannot reappear.
            self.space.slot(record.location).note_hides();
        }
    }

    fn publish_tombstone(&self, record: &Appended) {
        let tier = self.space.tier(record.location.tier);
        let Location { tier: name, slot, .. } = record.location;
        tier.add_tombstones(slot, i64::from(record.padded_bytes));
        let (sequence, segment, bytes) = (record.sequence, tier.slot(slot).segment(), record.padded_bytes);
        self.space.note_tombstone(&record.hash, Tombstone { sequence, tier: name, slot, segment, bytes });
        let Some(replaced) = record.replaces.filter(|replaced| !replaced.is_unread) else {
            if !planted(Bug::UnreadDeleteKeepsRecord) {
                let removed = self.index.remove_unread(&record.hash, record.replaces.is_some());
                removed.into_iter().for_each(|removed| {
                    self.space.add_live(self.packing.unpack(removed.get()), -self.estimate(removed));
                });
            }
            return;
        };
        if self.space.full.load(Ordering::Acquire) {
            // The delete may have made a segment worth collecting.
            self.space.reclaim.notify_one();
        }
        let mut current = replaced.pointer;
        // The key is reserved, so only relocation can have moved it, and nothing removed it. If the side table has the
        // key, the slot belongs to another key.
        while !self.index.remove(&record.hash, current) {
            let now = self.index.get_exact(&record.hash).or_else(|| self.index.get(&record.hash));
            match now {
                Some(moved) if moved != current => current = moved,
                _ => return,
            }
        }
        self.space.add_live(self.packing.unpack(current.get()), -i64::from(replaced.padded_bytes));
    }

    /// Relocation: makes a copy current, durably written, if the index still leads to the record in the victim. Returns false
    /// if it does not. `old`: segment and location of the record.
    pub(crate) fn swing(
        &self,
        hash: &KeyHash,
        (segment, old): (u64, Location),
        (new, bytes): (Location, u32),
    ) -> bool {
        let mut scans = self.scans.lock();
        let is_swung = self.index.replace(hash, self.pointer(old), self.pointer(new));
        if is_swung && !scans.is_empty() {
            let old = OldPlace { segment, offset: old.offset };
            scans.copied(old, self.new_place(new, bytes));
        }
        is_swung
    }

    /// Removes a record from the index, if the index leads to this location, and notifies observers of the cause if the
    /// key is given. Returns false if the index leads elsewhere. The caller holds the reservation of the key.
    pub(crate) fn take_out(
        &self,
        entry: &Entry,
        location: Location,
        key: Option<&[u8]>,
        cause: Cause,
    ) -> bool {
        // A concurrent put of the key must be reported after this removal.
        let turn = self.feed.take_turn();
        if !self.index.remove(&entry.key_hash, self.pointer(location)) {
            return false;
        }
        let bytes = self.space.tier(location.tier).shape().padded(entry.bytes as usize);
        self.space.add_live(location, -(bytes as i64));
        let Entry { key_hash: hash, sequence: version, expires_at_ms, .. } = *entry;
        let keyspace = hash.keyspace().number();
        let change = key.map(|key| Change { hash, keyspace, key, cause, version, expires_at_ms, origin: 0 });
        self.feed.notify(&turn, |observer| change.iter().for_each(|change| observer.changed(change)));
        true
    }

    /// Compares a key with that of a record, if the record is in memory. Returns the record's length too.
    fn compare_in_memory(&self, key: &Bytes, pointer: Pointer) -> (Occupant, Option<i64>) {
        let Place { location, segment, .. } = self.unchecked_place(pointer);
        let verdict = |same| if same { Occupant::SameKey } else { Occupant::OtherKey };
        let buffered = self.space.buffered.hold();
        if let Some(buffered_segment) = buffered.find(location.tier, location.slot, segment) {
            let identity = self.space.secret.identity(segment, location.offset);
            if let Ok(record) = RecordView::in_memory(buffered_segment.record(location.offset), &identity) {
                let shape = self.space.tier(location.tier).shape();
                return (verdict(record.key == key), Some(shape.padded(record.bytes()) as i64));
            }
        }
        if let Some(cached) = self.cache.get(segment, location.offset) {
            return (verdict(cached.key() == key), Some(i64::from(cached.padded_bytes)));
        }
        (Occupant::Unknown, None)
    }

    /// Returns the padded length of a record whose segment is in memory.
    pub(crate) fn length_in_memory(&self, pointer: Pointer) -> Option<i64> {
        let Place { location, segment, .. } = self.unchecked_place(pointer);
        let buffered = self.space.buffered.hold();
        let buffered_segment = buffered.find(location.tier, location.slot, segment)?;
        let bytes = Claim::of(buffered_segment.record(location.offset))?.bytes;
        Some(self.space.tier(location.tier).shape().padded(bytes) as i64)
    }

    /// Returns the estimated length of a record that was displaced without being read, used until the overwrite is
    /// verified: the mean record length of its segment, clamped to the range of its size class.
    pub(crate) fn estimate(&self, pointer: Pointer) -> i64 {
        let location = self.packing.unpack(pointer.get());
        let most = class_bytes(location.class, location.offset);
        let least = match self.expansions.are_there(location.class) {
            true => 0,
            false => location.class.checked_sub(1).map_or(0, |class| class_bytes(class, location.offset)),
        };
        let bytes = match self.space.slot(location).record_bytes() {
            0 => most,
            mean => u64::from(mean).clamp(least, most),
        };
        bytes.min(u64::from(self.space.tier(location.tier).shape().segment_bytes)) as i64
    }

    /// Runs a lookup so that it sees each batch as a whole or not at all.
    pub(crate) fn between_batches<T>(&self, look_up: impl Fn() -> T) -> T {
        self.batches.between(look_up)
    }
}
