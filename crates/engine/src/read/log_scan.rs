//! Iteration over all keys in the order of the log: segments are read from end to end, and records that are current are
//! returned. See `docs/decisions/0045-scans-in-log-order.md` for the order and the proof that no key is missed.

mod by_index;
mod item;

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use esker_index::{KeyHash, Keyspace};
use esker_log::{Damage, Entry as LogEntry, Kind, WalkStep, WalkedRecord};
use esker_seeded_bugs::{Bug, planted};
use futures_util::future::join_all;

use self::by_index::ByIndex;
use self::item::Copies;
pub(crate) use self::item::LogItem;

use crate::base::error::{Error, Result};
use crate::catalog::place::Place;
use crate::catalog::records::Damaged;
use crate::catalog::scans::{ScanHandle, VisitedRecord};
use crate::catalog::unvisited::{Next, SegmentAt};
use crate::catalog::verify::ROW;
use crate::read::segment_reader::{Filled, SegmentReader};
use crate::read::{Reader, has_prefix};
use crate::segments::slot::SlotState;

/// Number of records that are checked under one acquisition of the lock of all scans.
const VISITED_TOGETHER: usize = 64;
/// Number of items of a page. So few that they are still in the processor's cache when they are taken.
const PAGE_ITEMS: usize = 512;
/// Number of noted keys from which they are looked up before more segments are read, so that few must be remembered.
const NOTED_MANY: usize = 4096;
/// Number of segments that are listed at a time.
const LISTED_SEGMENTS: usize = 4096;

/// Length in bytes that a device reads in the time of one random read. Decides between the two orders of a scan: 10,000 to
/// 100,000 random reads take as long as 160 MB to 1.6 GB of sequential reads.
const RANDOM_READ_BYTES: u64 = 16 << 10;
/// Number of keys from which a scan in log order pays.
const KEYS_MIN: u64 = 1024;

/// A scan in log order.
pub(crate) struct LogScan<T> {
    scanner: Scanner,
    /// Segments to visit, in the order of their numbers.
    listed: VecDeque<SegmentAt>,
    are_all_listed: bool,
    reading: Option<SegmentReader>,
    by_index: Option<ByIndex>,
    copies: Copies,
    items: PhantomData<fn() -> T>,
}

/// The part of a scan that its steps share.
struct Scanner {
    reader: Arc<Reader>,
    handle: ScanHandle,
    database: u8,
    prefix: Bytes,
}

/// One step of a scan in log order.
pub(crate) enum LogPage<T> {
    /// Items, possibly none.
    Items(Vec<Result<T>>),
    /// More changed during the scan than there is memory to note. A key that was not returned yet may be anywhere.
    Overtaken,
    /// All items were returned.
    End,
}

impl Reader {
    /// Returns true if a scan of a database in log order is expected to read faster than one in the order of the index,
    /// which makes a random read for each record that is not in memory.
    pub(crate) fn log_order_pays(&self, database: u8, with_values: bool) -> bool {
        if self.catalog.is_spread(database) {
            // A scan in log order is one of a single keyspace.
            return false;
        }
        let keys = self.catalog.len_in(database);
        let bytes_in = |tier: &crate::segments::tier::Tier| {
            let used = tier.slots_total() - tier.slots().count(SlotState::Free);
            u64::from(used) * u64::from(tier.shape().segment_bytes)
        };
        let log_bytes: u64 = self.space.tiers().map(bytes_in).sum();
        let memory_bytes = self.space.buffered.bytes().min(log_bytes);
        if keys < KEYS_MIN || memory_bytes > log_bytes / 2 || !self.catalog.has_memory_for_scan() {
            return false;
        }
        let value_bytes =
            if with_values { self.space.live_bytes() / self.catalog.index.len().max(1) } else { 0 };
        let from_device = keys as f64 * (1.0 - memory_bytes as f64 / log_bytes as f64);
        (log_bytes - memory_bytes) as f64 <= from_device * (RANDOM_READ_BYTES + value_bytes) as f64
    }

    /// Begins a scan in log order of the keys with a prefix.
    pub(crate) fn log_scan<T: LogItem>(self: &Arc<Self>, database: u8, prefix: Bytes) -> LogScan<T> {
        let handle = self.catalog.begin_scan(database, prefix.clone());
        LogScan {
            scanner: Scanner { reader: self.clone(), handle, database, prefix },
            listed: VecDeque::new(),
            are_all_listed: false,
            reading: None,
            by_index: None,
            copies: Copies::default(),
            items: PhantomData,
        }
    }
}

/// A record of a window, and its place.
type InWindow<'a> = (VisitedRecord, LogEntry, WalkedRecord<'a>);

impl<T: LogItem> LogScan<T> {
    /// Makes one step: reads a part of a segment, or looks up a few noted keys.
    ///
    /// # Errors
    /// Errors that do not concern single records.
    pub(crate) async fn page(&mut self) -> Result<LogPage<T>> {
        self.scanner.reader.space.health.check_open()?;
        let (is_overtaken, noted) =
            self.scanner.handle.with(|unvisited| (unvisited.is_overtaken(), unvisited.noted()));
        if is_overtaken {
            return Ok(LogPage::Overtaken);
        }
        let keyspace = self.scanner.reader.catalog.keyspace(self.scanner.database);
        let items = if noted >= NOTED_MANY {
            self.scanner.noted_keys(keyspace).await?
        } else if self.by_index.is_some() {
            self.visit_by_index(keyspace).await?
        } else if self.reading.is_some() {
            self.visit(keyspace).await?
        } else {
            match self.next_segment() {
                Next::Segment(at) => {
                    let (space, with_values) = (self.scanner.reader.space.clone(), T::WITH_VALUES);
                    self.reading = Some(SegmentReader::new(space, at, with_values));
                    Vec::new()
                }
                Next::Keys => self.scanner.noted_keys(keyspace).await?,
                Next::Nothing => return Ok(LogPage::End),
            }
        };
        // After a swap the records read are those of another database.
        let is_still = self.scanner.reader.catalog.keyspace(self.scanner.database) == keyspace;
        Ok(LogPage::Items(if is_still { items } else { Vec::new() }))
    }

    #[cfg(test)]
    pub(crate) fn visited_segment(&self) -> u64 {
        self.scanner.handle.with(|unvisited| unvisited.visited_segment())
    }

    fn next_segment(&mut self) -> Next {
        if self.listed.is_empty() && !self.are_all_listed {
            let (after, through) =
                self.scanner.handle.with(|unvisited| (unvisited.visited_segment(), unvisited.through()));
            self.listed = self.list_segments(after, through).into();
            self.are_all_listed = self.listed.is_empty();
        }
        let listed = self.listed.front().copied();
        let next = self.scanner.handle.with(|unvisited| unvisited.next(listed));
        if listed.is_some_and(|listed| next == Next::Segment(listed)) {
            self.listed.pop_front();
        }
        next
    }

    /// Returns the segments with the lowest numbers in a range, in order.
    fn list_segments(&self, after: u64, through: u64) -> Vec<SegmentAt> {
        let mut found: Vec<SegmentAt> = Vec::new();
        for tier in self.scanner.reader.space.tiers() {
            for (slot, state) in tier.slots().in_use() {
                let segment = state.segment();
                if segment > after && segment <= through {
                    found.push(SegmentAt { segment, tier: tier.name(), slot });
                }
                if found.len() >= 2 * LISTED_SEGMENTS {
                    keep_lowest(&mut found);
                }
            }
        }
        keep_lowest(&mut found);
        found
    }

    /// Visits the records of the next bytes of the segment being read.
    async fn visit(&mut self, keyspace: Keyspace) -> Result<Vec<Result<T>>> {
        let Some(reading) = &mut self.reading else { return Ok(Vec::new()) };
        let (segment, filled) = (reading.at.segment, reading.fill().await?);
        match filled {
            Filled::Bytes => {
                let (found, is_damaged) = self.visit_window(keyspace).await?;
                if is_damaged {
                    self.end_damaged();
                }
                self.scanner.shown(keyspace, found).await
            }
            Filled::End => {
                let walked = reading.walk.at();
                if self.scanner.handle.with(|unvisited| unvisited.finish_segment(segment, walked)) {
                    self.reading = None;
                } else if !reading.resume() {
                    self.end_damaged();
                }
                Ok(Vec::new())
            }
            Filled::Gone => {
                let offset = reading.walk.at();
                self.scanner.handle.with(|unvisited| unvisited.leave_segment(segment));
                self.reading = None;
                let damage = Damage::Header;
                let damaged = Damaged { damage, key: None, claimed_key: None, segment, offset };
                let is_reported = planted(Bug::FreedSegmentTakenForDamage);
                Ok(is_reported.then(|| Err(damaged.into_error(None))).into_iter().collect())
            }
            Filled::Unreadable => {
                self.end_damaged();
                Ok(Vec::new())
            }
        }
    }

    /// Ends the sequential read of a segment: the index leads to the records that could not be walked, unless the segment was
    /// freed meanwhile.
    fn end_damaged(&mut self) {
        if let Some(reading) = self.reading.take() {
            self.by_index = Some(ByIndex::new(reading.at, reading.walk.at()));
        }
    }

    /// Walks the window, or a part of it with the items of a page. Returns the items, and true if a record is damaged.
    async fn visit_window(&mut self, keyspace: Keyspace) -> Result<(Vec<Result<T>>, bool)> {
        let LogScan { scanner, reading, copies, .. } = self;
        let scanner: &Scanner = scanner;
        let Scanner { reader, prefix, .. } = scanner;
        let Some(reading) = reading else { return Ok((Vec::new(), false)) };
        let (mut found, mut is_damaged) = (Vec::with_capacity(PAGE_ITEMS + VISITED_TOGETHER), false);
        let SegmentAt { segment, tier, slot } = reading.at;
        let mut needs = None;
        loop {
            let mut together: Vec<InWindow<'_>> = Vec::with_capacity(VISITED_TOGETHER);
            let from = reading.walk.at();
            let is_over = loop {
                if together.len() == VISITED_TOGETHER {
                    break false;
                }
                match reading.walk.step(&reading.bytes, reading.base) {
                    Ok(WalkStep::Record { offset, padded_bytes, record }) => {
                        let (kind, of, key) = facts(&record);
                        if kind == Kind::Put && of == keyspace && has_prefix(key, prefix) {
                            let hash = reader.catalog.hash(keyspace, key);
                            // Entries of the index are far apart. They arrive while the other records are walked.
                            reader.catalog.index.prefetch(&hash);
                            let entry = entry_of(&record, hash, offset, padded_bytes);
                            let location = reader.space.location(tier, slot, &entry);
                            let pointer = reader.catalog.pointer(location);
                            together.push((VisitedRecord { hash, pointer, offset }, entry, record));
                        }
                    }
                    Ok(WalkStep::Needs(offset)) => {
                        needs = Some(offset);
                        break true;
                    }
                    Ok(WalkStep::NoFrame) => break true,
                    Err(_) => {
                        is_damaged = true;
                        break true;
                    }
                }
            };
            let visited: Vec<VisitedRecord> = together.iter().map(|(visited, ..)| *visited).collect();
            let returned = scanner.visit(reading.at, &visited, from..reading.walk.at()).await?;
            for ((_, entry, record), _) in together.iter().zip(returned).filter(|(_, returned)| *returned) {
                let location = reader.space.location(tier, slot, entry);
                let item = T::of_walked(&reader.catalog, copies, record, location, entry.bytes);
                found.push(item.map_err(|damage| {
                    let (key, offset) = (Some(facts(record).2.to_vec()), entry.offset);
                    Damaged { damage, key, claimed_key: None, segment, offset }.into_error(None)
                }));
            }
            if is_over {
                break;
            }
            if found.len() >= PAGE_ITEMS {
                reading.note_rest();
                return Ok((found, false));
            }
        }
        match needs {
            Some(offset) => reading.require(offset),
            None if !is_damaged => reading.note_no_frame(),
            None => {}
        }
        Ok((found, is_damaged))
    }
}

impl Scanner {
    /// Visits records of a segment, given in the order of their offsets, and all other places at `offsets`. Returns for each
    /// true if the scan returns it.
    async fn visit(
        &self,
        at: SegmentAt,
        records: &[VisitedRecord],
        mut offsets: Range<u32>,
    ) -> Result<Vec<bool>> {
        let (mut returned, mut noted) = (Vec::with_capacity(records.len()), None);
        loop {
            let visited = self.handle.visit(at, &records[returned.len()..], offsets.clone(), noted);
            returned.extend(visited.returned);
            let Some(displaced) = visited.displaced else { return Ok(returned) };
            offsets.start = records[returned.len()].offset;
            noted = self.verify(displaced).await?;
        }
    }

    /// Verifies the overwrites that displaced a record of a key, so that the index tells whether it is current. Returns the
    /// key if it does not, because a record cannot be read.
    async fn verify(&self, displaced: KeyHash) -> Result<Option<KeyHash>> {
        match self.reader.catalog.verify(&displaced).await {
            Ok(()) => Ok(None),
            Err(error) => of_record(error).map(|_| Some(displaced)),
        }
    }

    /// Returns the items of a keyspace that may be shown.
    async fn shown<T: LogItem>(&self, keyspace: Keyspace, found: Vec<Result<T>>) -> Result<Vec<Result<T>>> {
        let expires = |item: &Result<T>| item.as_ref().is_ok_and(|item| item.expires_at_ms().is_some());
        if self.reader.catalog.is_direct(self.database) || !found.iter().any(expires) {
            return Ok(found);
        }
        let mut items = Vec::with_capacity(found.len());
        for item in found {
            let item = match item {
                Ok(item) => item,
                Err(error) => {
                    items.push(Err(error));
                    continue;
                }
            };
            let (hash, writer) = (self.reader.catalog.hash(keyspace, item.key()), &self.reader.writer);
            match writer.may_show(item.key(), &hash, item.version(), item.expires_at_ms()).await {
                Ok(true) => items.push(Ok(item)),
                Ok(false) => {}
                Err(error) => items.push(Err(of_record(error)?)),
            }
        }
        Ok(items)
    }

    /// Looks up some keys that were put while their previous record was unvisited.
    async fn noted_keys<T: LogItem>(&self, keyspace: Keyspace) -> Result<Vec<Result<T>>> {
        let hashes = self.handle.with(|unvisited| unvisited.take_keys(ROW));
        let hashes = hashes.into_iter().filter(|hash| hash.keyspace() == keyspace);
        let looked_up = join_all(hashes.map(|hash| self.find::<T>(hash))).await;
        let mut found = Vec::new();
        for item in looked_up {
            match item {
                Ok(Some((item, Place { segment, location, .. }))) => {
                    let is_unvisited = self.handle.is_unvisited(segment, location.offset);
                    let is_returned = has_prefix(item.key(), &self.prefix) && !is_unvisited;
                    found.extend(is_returned.then_some(Ok(item)));
                }
                Ok(None) => {}
                Err(error) => found.push(Err(of_record(error)?)),
            }
        }
        self.shown(keyspace, found).await
    }

    /// Returns the current record of a key of which only the digest is known, and its place.
    async fn find<T: LogItem>(&self, hash: KeyHash) -> Result<Option<(T, Place)>> {
        let hash = &hash;
        let catalog = &self.reader.catalog;
        loop {
            let seen = catalog.index.suspects(hash);
            let exact = seen.exact.iter().find(|(other, _)| other == hash).map(|(_, pointer)| *pointer);
            if let Some(pointer) = exact.or(seen.occupant) {
                let Some(place) = catalog.place(hash, pointer) else { continue };
                match T::read_at(catalog, &place).await? {
                    Ok(item) if catalog.hash(hash.keyspace(), item.key()) == *hash => {
                        return Ok(Some((item, place)));
                    }
                    Ok(_) => {}
                    Err(_) if !catalog.is_still(hash, &place) => continue,
                    Err(damaged) => {
                        let key = catalog.key_of(&place, &damaged).await;
                        return Err(damaged.into_error(key.as_deref()));
                    }
                }
            }
            if !seen.unverified.is_empty() {
                catalog.verify(hash).await?;
            } else if catalog.index.suspects(hash) == seen {
                return Ok(None);
            }
        }
    }
}

/// Returns the error if it concerns a single record.
fn of_record(error: Error) -> Result<Error> {
    if error.is_of_reading() { Ok(error) } else { Err(error) }
}

/// Sorts segments by their numbers, and keeps as many as are listed at a time.
fn keep_lowest(found: &mut Vec<SegmentAt>) {
    found.sort_unstable_by_key(|at| at.segment);
    found.truncate(LISTED_SEGMENTS);
}

/// Returns kind, keyspace and key of a record.
fn facts<'a>(record: &WalkedRecord<'a>) -> (Kind, Keyspace, &'a [u8]) {
    match record {
        WalkedRecord::Whole(record) => (record.kind, record.keyspace, record.key),
        WalkedRecord::Head(head) => (head.kind, head.keyspace, head.key),
    }
}

/// Returns the summary entry of a record.
fn entry_of(record: &WalkedRecord<'_>, key_hash: KeyHash, offset: u32, bytes: u32) -> LogEntry {
    let (kind, sequence, expires_at_ms, expansion) = match record {
        WalkedRecord::Whole(record) => {
            (record.kind, record.sequence, record.expires_at_ms, record.expansion())
        }
        WalkedRecord::Head(head) => (head.kind, head.sequence, head.expires_at_ms, head.expansion()),
    };
    LogEntry { key_hash, sequence, offset, bytes, kind, expansion, expires_at_ms }
}
