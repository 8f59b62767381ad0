//! Scans in log order that are in progress. Each change of the place of a current record is made under their lock, so that a
//! scan visits a record either before or after the change.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use esker_index::{KeyHash, Pointer, Standing};
use esker_log::Location;
use esker_seeded_bugs::{Bug, planted};
use parking_lot::{Mutex, MutexGuard};

use crate::catalog::Catalog;
use crate::catalog::appended::Appended;
use crate::catalog::unvisited::{NewPlace, SegmentAt, Unvisited};

/// Memory of one scan for the bytes that it reads ahead and parses, in bytes. A longer record takes its length.
pub(crate) const SCAN_READ_BYTES: u64 = 4 << 20;

/// The scans in progress, by the numbers of their handles. Usually there is none.
#[derive(Debug, Default)]
pub(crate) struct Scans(Mutex<ScanList>);

#[derive(Debug, Default)]
pub(crate) struct ScanList {
    scans: Vec<(u64, Unvisited)>,
    last: u64,
}

/// One scan in progress. It ends when the handle is dropped.
pub(crate) struct ScanHandle {
    catalog: Arc<Catalog>,
    number: u64,
}

/// A place in the log that a pointer leads to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OldPlace {
    pub(crate) segment: u64,
    pub(crate) offset: u32,
}

/// A record of a segment that is being visited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VisitedRecord {
    pub(crate) hash: KeyHash,
    pub(crate) pointer: Pointer,
    pub(crate) offset: u32,
}

/// Result of [`ScanHandle::visit`].
pub(crate) struct Visited {
    /// For each record that was visited, true if the scan returns it.
    pub(crate) returned: Vec<bool>,
    /// Key of the next record, if that is displaced: only unverified overwrites by other keys lead to it.
    pub(crate) displaced: Option<KeyHash>,
}

impl Scans {
    /// Acquires the lock. The caller then makes records current at other places, and reports each to the scans.
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, ScanList> {
        self.0.lock()
    }

    /// Returns the number of scans in progress.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().scans.len()
    }

    /// Returns the memory of all scans in bytes: for places and keys, and for reads.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let bytes = |(_, unvisited): &(u64, Unvisited)| unvisited.memory_bytes() as u64 + SCAN_READ_BYTES;
        self.0.lock().scans.iter().map(bytes).sum()
    }
}

impl ScanList {
    /// Returns true if no scan is in progress.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.scans.is_empty()
    }

    /// Reports a put that became current. `old`: the place of the record that it displaced, read before it was displaced.
    /// `is_first`: nothing in the index could lead to an older version of the key.
    pub(crate) fn published(
        &mut self,
        catalog: &Catalog,
        put: &Appended,
        key: &[u8],
        old: Option<OldPlace>,
        is_first: bool,
    ) {
        let new = catalog.new_place(put.location, put.padded_bytes);
        let hidden = if is_first { Vec::new() } else { catalog.hidden_places(&put.hash) };
        for (_, unvisited) in &mut self.scans {
            let keyspace = catalog.keyspace(unvisited.database());
            let mut places = old.iter().chain(&hidden);
            let was_unvisited = places.any(|place| unvisited.contains(place.segment, place.offset));
            unvisited.put((&put.hash, key), keyspace, was_unvisited, new);
        }
    }

    /// Reports a copy that became current.
    pub(crate) fn copied(&mut self, old: OldPlace, new: NewPlace) {
        for (_, unvisited) in &mut self.scans {
            let was_unvisited = unvisited.contains(old.segment, old.offset);
            unvisited.copied(was_unvisited, new);
        }
    }

    fn of(&mut self, number: u64) -> &mut Unvisited {
        let found = self.scans.iter_mut().find(|(other, _)| *other == number);
        &mut found.expect("a scan is listed until its handle is dropped").1
    }
}

impl Catalog {
    /// Begins a scan in log order of the keys with a prefix.
    pub(crate) fn begin_scan(self: &Arc<Self>, database: u8, prefix: Bytes) -> ScanHandle {
        let mut list = self.scans.lock();
        list.last += 1;
        let number = list.last;
        let (newest, bytes_max) = (self.space.newest_segment(), self.memory_for_scan());
        let unvisited = Unvisited::new(newest, bytes_max, database, prefix);
        list.scans.push((number, unvisited));
        drop(list);
        self.balance_memory();
        ScanHandle { catalog: self.clone(), number }
    }

    /// Returns the place that a pointer leads to, as long as the index leads to it too.
    pub(crate) fn old_place(&self, pointer: Pointer) -> OldPlace {
        let location = self.packing.unpack(pointer.get());
        OldPlace { segment: self.space.slot(location).segment(), offset: location.offset }
    }

    /// Returns true if a segment is in its slot.
    fn is_in_slot(&self, at: SegmentAt) -> bool {
        self.space.tier(at.tier).slot(at.slot).segment() == at.segment
    }

    pub(crate) fn new_place(&self, location: Location, bytes: u32) -> NewPlace {
        let Location { tier, slot, offset, .. } = location;
        let segment = self.space.slot(location).segment();
        NewPlace { at: SegmentAt { segment, tier, slot }, offset, bytes }
    }

    /// Returns the places at which a key may be hidden: those displaced by other keys and not verified yet.
    fn hidden_places(&self, hash: &KeyHash) -> Vec<OldPlace> {
        loop {
            let seen = self.index.suspects(hash);
            let groups = seen.unverified.chunk_by(|a, b| a.displaced == b.displaced);
            let of_others = groups.filter(|group| group.iter().all(|known| known.check != hash.check));
            let places = of_others.map(|group| self.old_place(group[0].displaced)).collect();
            // A segment is freed only after no unverified overwrite leads to it.
            if seen.unverified.is_empty() || self.index.suspects(hash) == seen {
                return places;
            }
        }
    }
}

impl ScanHandle {
    /// Runs `look` under the lock of all scans.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut Unvisited) -> T) -> T {
        look(self.catalog.scans.lock().of(self.number))
    }

    /// Visits records of a segment, given in the order of their offsets, up to the first displaced one. All places of the
    /// segment at `offsets` are visited then, or those below the displaced record. `noted`: a key whose displaced records
    /// are noted instead.
    pub(crate) fn visit(
        &self,
        at: SegmentAt,
        records: &[VisitedRecord],
        offsets: Range<u32>,
        noted: Option<KeyHash>,
    ) -> Visited {
        self.with(|unvisited| {
            let mut returned = Vec::with_capacity(records.len());
            for record in records {
                match self.is_returned(unvisited, at, record, noted) {
                    Some(is_returned) => returned.push(is_returned),
                    None => {
                        unvisited.visited(at.segment, offsets.start..record.offset);
                        return Visited { returned, displaced: Some(record.hash) };
                    }
                }
            }
            unvisited.visited(at.segment, offsets);
            Visited { returned, displaced: None }
        })
    }

    /// Visits one record, of which the place alone is visited then. Returns true if the scan returns it, and `None` if it
    /// was not visited, because it is displaced.
    pub(crate) fn visit_one(
        &self,
        at: SegmentAt,
        record: &VisitedRecord,
        noted: Option<KeyHash>,
    ) -> Option<bool> {
        self.with(|unvisited| {
            let is_returned = self.is_returned(unvisited, at, record, noted)?;
            unvisited.visited_one(NewPlace { at, offset: record.offset, bytes: 1 });
            Some(is_returned)
        })
    }

    /// Returns true if the scan returns a record. Returns `None` for a displaced one: its key may have been returned from
    /// a newer record, which the index cannot tell before the overwrites are verified.
    fn is_returned(
        &self,
        unvisited: &mut Unvisited,
        at: SegmentAt,
        record: &VisitedRecord,
        noted: Option<KeyHash>,
    ) -> Option<bool> {
        if !unvisited.contains(at.segment, record.offset) {
            return Some(false);
        }
        match self.catalog.index.standing(&record.hash, record.pointer) {
            // The slot after the pointer: if the segment is in it then, the pointer led to the segment that was read.
            Standing::Current => Some(self.catalog.is_in_slot(at) || planted(Bug::ScanTrustsFreedSlot)),
            Standing::Displaced if noted == Some(record.hash) || planted(Bug::ScanTrustsOverwrites) => {
                unvisited.note_key(record.hash);
                Some(false)
            }
            Standing::Displaced => None,
            Standing::Dead => Some(false),
        }
    }

    /// Returns true if the place of a noted key that was found is still to be visited, where the scan returns it.
    pub(crate) fn is_unvisited(&self, segment: u64, offset: u32) -> bool {
        self.with(|unvisited| unvisited.contains(segment, offset))
    }
}

impl Drop for ScanHandle {
    fn drop(&mut self) {
        self.catalog.scans.lock().scans.retain(|(number, _)| *number != self.number);
        self.catalog.balance_memory();
    }
}
