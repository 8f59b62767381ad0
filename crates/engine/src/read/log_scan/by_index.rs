//! The part of a segment that cannot be walked, because a frame or a record in it is damaged or its device fails: the index
//! leads to the records in it, which are read one by one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use esker_index::{Cursor, KeyHash, Keyspace, Pointer, Standing};
use esker_log::Kind;
use futures_util::future::join_all;

use super::{LogItem, LogScan, Scanner, of_record};

use crate::base::error::{Error, Result};
use crate::base::waiting::yield_now;
use crate::catalog::place::Place;
use crate::catalog::records::Damaged;
use crate::catalog::scans::VisitedRecord;
use crate::catalog::unvisited::SegmentAt;
use crate::catalog::verify::ROW;
use crate::read::has_prefix;

/// Entries of the index that are examined at a time.
const STEP_ENTRIES: usize = 1 << 16;

/// The visit of the rest of a segment.
pub(super) struct ByIndex {
    at: SegmentAt,
    from: u32,
    /// Pointers that are still to be read; `None` before they are collected.
    pointers: Option<VecDeque<Pointer>>,
    /// Records that could not be read.
    unreadable: Vec<Unreadable>,
}

struct Unreadable {
    place: Place,
    reason: std::result::Result<Damaged, Error>,
}

impl ByIndex {
    pub(super) fn new(at: SegmentAt, from: u32) -> ByIndex {
        ByIndex { at, from, pointers: None, unreadable: Vec::new() }
    }
}

impl<T: LogItem> LogScan<T> {
    /// Visits the next records of the rest of a segment.
    pub(super) async fn visit_by_index(&mut self, keyspace: Keyspace) -> Result<Vec<Result<T>>> {
        let Some(mut visit) = self.by_index.take() else { return Ok(Vec::new()) };
        let mut pointers = match visit.pointers.take() {
            Some(pointers) => pointers,
            None => {
                self.scanner.handle.with(|unvisited| unvisited.begin_in_any_order(visit.at.segment));
                self.scanner.pointers_into(&visit, keyspace).await.into_iter().collect()
            }
        };
        if pointers.is_empty() {
            let items = self.scanner.unreadable(&visit, keyspace).await;
            if !self.scanner.handle.with(|unvisited| unvisited.end_in_any_order(visit.at.segment, visit.from))
            {
                self.by_index = Some(ByIndex::new(visit.at, visit.from));
            }
            return Ok(items);
        }
        let row: Vec<Pointer> = pointers.drain(..pointers.len().min(ROW)).collect();
        let found = self.scanner.read_row(&mut visit, row, keyspace).await?;
        visit.pointers = Some(pointers);
        self.by_index = Some(visit);
        self.scanner.shown(keyspace, found).await
    }
}

impl Scanner {
    async fn read_row<T: LogItem>(
        &self,
        visit: &mut ByIndex,
        row: Vec<Pointer>,
        keyspace: Keyspace,
    ) -> Result<Vec<Result<T>>> {
        let catalog = &self.reader.catalog;
        let read = row.into_iter().map(|pointer| async move {
            let place = catalog.unchecked_place(pointer);
            (place, T::read_at(catalog, &place).await)
        });
        let mut found = Vec::new();
        for (place, read) in join_all(read).await {
            let reason = match read {
                _ if place.segment != visit.at.segment => continue,
                Ok(Ok(item)) => {
                    let hash = catalog.hash(keyspace, item.key());
                    let (pointer, offset) = (place.pointer, place.location.offset);
                    let visited = VisitedRecord { hash, pointer, offset };
                    let is_returned = self.visit_one(visit.at, &visited).await?;
                    found.extend((is_returned && has_prefix(item.key(), &self.prefix)).then_some(Ok(item)));
                    continue;
                }
                Ok(Err(damaged)) => Ok(damaged),
                Err(error) => Err(of_record(error)?),
            };
            visit.unreadable.push(Unreadable { place, reason });
        }
        Ok(found)
    }

    /// Visits one record, of which the place alone is visited then. Returns true if the scan returns it.
    async fn visit_one(&self, at: SegmentAt, record: &VisitedRecord) -> Result<bool> {
        let mut noted = None;
        loop {
            if let Some(is_returned) = self.handle.visit_one(at, record, noted) {
                return Ok(is_returned);
            }
            noted = self.verify(record.hash).await?;
        }
    }

    /// Returns the errors of the records that could not be read, as far as the index still leads to them.
    async fn unreadable<T: LogItem>(&self, visit: &ByIndex, keyspace: Keyspace) -> Vec<Result<T>> {
        let mut errors = Vec::new();
        if visit.unreadable.is_empty() {
            return errors;
        }
        let catalog = &self.reader.catalog;
        let hashes = self.hashes_of(visit).await;
        let known = self.pointers_into(visit, keyspace).await;
        for Unreadable { place, reason } in &visit.unreadable {
            // Reads the pointer first: if the segment still exists afterwards, the pointer led to it.
            let is_there = known.contains(&place.pointer)
                && catalog.unchecked_place(place.pointer).segment == visit.at.segment;
            // Its own key may have displaced it.
            let is_dead = |hash| catalog.index.standing(hash, place.pointer) == Standing::Dead;
            if !is_there || hashes.get(&place.location.offset).is_some_and(is_dead) {
                continue;
            }
            errors.push(Err(match reason {
                Ok(damaged) => {
                    let key = catalog.key_of(place, damaged).await;
                    damaged.error(key.as_deref())
                }
                Err(error) => error.clone(),
            }));
        }
        errors
    }

    /// Returns the digests of the keys of unreadable records, by offset, as far as the summary is readable.
    async fn hashes_of(&self, visit: &ByIndex) -> BTreeMap<u32, KeyHash> {
        let (space, SegmentAt { tier, slot, segment, .. }) = (&self.reader.space, visit.at);
        let entries = space.read_entries(space.tier(tier), slot).await.ok().flatten();
        // The entries were read under the number that the slot had then.
        let entries = entries.filter(|_| space.tier(tier).slot(slot).segment() == segment);
        let wanted: BTreeSet<u32> = visit.unreadable.iter().map(|read| read.place.location.offset).collect();
        let of_puts = entries.iter().flatten().filter(|entry| entry.kind == Kind::Put);
        of_puts.filter(|entry| wanted.contains(&entry.offset)).map(|e| (e.offset, e.key_hash)).collect()
    }

    /// Returns the pointers of a keyspace that lead to the rest of a segment.
    async fn pointers_into(&self, visit: &ByIndex, keyspace: Keyspace) -> BTreeSet<Pointer> {
        let catalog = &self.reader.catalog;
        let (mut found, mut cursor) = (BTreeSet::new(), Some(Cursor::START));
        while let Some(at) = cursor {
            let step = catalog.index.scan(keyspace, at, STEP_ENTRIES);
            found.extend(step.current.into_iter().chain(step.displaced).filter(|pointer| {
                let location = catalog.packing.unpack(pointer.get());
                (location.tier, location.slot) == (visit.at.tier, visit.at.slot)
                    && location.offset >= visit.from
            }));
            cursor = step.next;
            yield_now().await;
        }
        found
    }
}
