//! The places of the log that a scan has still to visit. See `docs/decisions/0045-scans-in-log-order.md`.
//!
//! Invariant: a key that exists since the scan began was not returned yet if and only if its current record is at an
//! unvisited place, or the key is noted. When a record becomes current at another place, [`Unvisited::put`] and
//! [`Unvisited::copied`] preserve this, under the lock that the scan holds while it visits records.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use bytes::Bytes;
use esker_index::{KeyHash, Keyspace};
use esker_log::Tier as TierName;
use esker_seeded_bugs::{Bug, planted};

use crate::base::fixed_hash::FixedState;

/// Upper bounds of the memory of one entry, including free capacity of its container.
const KEY_BYTES: usize = 40;
const RANGE_BYTES: usize = 16;
const SEGMENT_BYTES: usize = 256;

/// A segment and its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentAt {
    pub(crate) segment: u64,
    pub(crate) tier: TierName,
    pub(crate) slot: u32,
}

/// Offsets of a segment, in ascending order and disjoint.
#[derive(Debug, Default)]
struct Ranges(Vec<Range<u32>>);

impl Ranges {
    fn contains(&self, offset: u32) -> bool {
        let after = self.0.partition_point(|range| range.start <= offset);
        after > 0 && offset < self.0[after - 1].end
    }

    /// Adds a range. `extends`: no record that must stay outside lies between the last range and this one, so that one
    /// range covers both.
    fn add(&mut self, range: Range<u32>, extends: bool) {
        match self.0.last_mut() {
            Some(last) if extends && last.end <= range.start => last.end = range.end,
            Some(last) if last.end > range.start => {
                let at = self.0.partition_point(|other| other.start < range.start);
                self.0.insert(at, range);
            }
            _ => self.0.push(range),
        }
    }

    /// Removes offsets.
    fn remove(&mut self, gone: &Range<u32>) {
        let overlaps = |range: &Range<u32>| range.start < gone.end && gone.start < range.end;
        if gone.is_empty() || !self.0.iter().any(overlaps) {
            return;
        }
        let around = |range: &Range<u32>| {
            [range.start..range.end.min(gone.start), range.start.max(gone.end)..range.end]
        };
        self.0 = self.0.iter().flat_map(around).filter(|range| !range.is_empty()).collect();
    }

    fn end(&self) -> u32 {
        self.0.last().map_or(0, |range| range.end)
    }
}

/// The decision on the last record that became current in a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Last {
    #[default]
    Other,
    Added,
    Left,
}

/// A segment in which records became current since the scan began.
#[derive(Debug)]
struct Touched {
    at: SegmentAt,
    /// Places to visit besides those in the order of segments.
    added: Ranges,
    /// Places not to visit although they were added, or their turn in the order of segments is still to come.
    left: Ranges,
    last: Last,
    /// End of the last record that became current at an unvisited place.
    end: u32,
}

impl Touched {
    fn ranges(&self) -> usize {
        self.added.0.len() + self.left.0.len()
    }
}

/// A record that became current.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewPlace {
    pub(crate) at: SegmentAt,
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Unvisited {
    /// Newest segment when the scan began.
    through: u64,
    /// Places up to this one were visited, in the order of segment numbers and offsets.
    visited: (u64, u32),
    touched: BTreeMap<u64, Touched>,
    /// Keys that were put while their previous record was unvisited.
    keys: HashSet<KeyHash, FixedState>,
    ranges: usize,
    /// Memory for places and keys. A scan that needs more is overtaken.
    bytes_max: u64,
    database: u8,
    prefix: Bytes,
    is_overtaken: bool,
}

/// The next step of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Visit this segment.
    Segment(SegmentAt),
    /// Only noted keys are left.
    Keys,
    /// Nothing is left.
    Nothing,
}

impl Unvisited {
    /// Begins a scan. `through`: number of the newest segment, read under the lock of all scans. `bytes_max`: limit of its
    /// memory for places and keys.
    pub(crate) fn new(through: u64, bytes_max: u64, database: u8, prefix: Bytes) -> Unvisited {
        Unvisited {
            through,
            visited: (0, 0),
            touched: BTreeMap::new(),
            keys: HashSet::default(),
            ranges: 0,
            bytes_max,
            database,
            prefix,
            is_overtaken: false,
        }
    }

    pub(crate) fn through(&self) -> u64 {
        self.through
    }

    /// Returns the number of the segment visited last in the order of segments.
    pub(crate) fn visited_segment(&self) -> u64 {
        self.visited.0
    }

    pub(crate) fn database(&self) -> u8 {
        self.database
    }

    /// Returns true if more changed than there is memory to note: the scan cannot tell any more which keys it returned.
    pub(crate) fn is_overtaken(&self) -> bool {
        self.is_overtaken
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.keys.len() * KEY_BYTES + self.ranges * RANGE_BYTES + self.touched.len() * SEGMENT_BYTES
    }

    /// Returns true if a place has its turn in the order of segments still to come.
    fn is_to_come(&self, segment: u64, offset: u32) -> bool {
        segment <= self.through && (segment, offset) >= self.visited
    }

    /// Returns true if a place is unvisited.
    pub(crate) fn contains(&self, segment: u64, offset: u32) -> bool {
        let is_to_come = self.is_to_come(segment, offset);
        match self.touched.get(&segment) {
            Some(touched) => (is_to_come || touched.added.contains(offset)) && !touched.left.contains(offset),
            None => is_to_come,
        }
    }

    /// Notes that a put became current. `was_unvisited`: the record that it replaced was at an unvisited place.
    pub(crate) fn put(
        &mut self,
        (hash, key): (&KeyHash, &[u8]),
        keyspace: Keyspace,
        was_unvisited: bool,
        new: NewPlace,
    ) {
        if self.moved(was_unvisited, new) && hash.keyspace() == keyspace && key.starts_with(&self.prefix) {
            self.keys.insert(*hash);
            self.check_memory();
        }
    }

    /// Notes that a copy became current. `was_unvisited`: the copied record is at an unvisited place.
    pub(crate) fn copied(&mut self, was_unvisited: bool, new: NewPlace) {
        if self.moved(was_unvisited, new) {
            let end = new.offset + new.bytes;
            self.change(new.at, |touched| {
                touched.added.add(new.offset..end, touched.last == Last::Added);
                touched.end = touched.end.max(end);
                touched.last = Last::Added;
            });
            self.check_memory();
        }
    }

    /// Returns true if a record left the unvisited places.
    fn moved(&mut self, was_unvisited: bool, new: NewPlace) -> bool {
        let NewPlace { at, offset, bytes } = new;
        match (was_unvisited, self.is_to_come(at.segment, offset)) {
            (true, true) => {
                self.change(at, |touched| {
                    touched.end = touched.end.max(offset + bytes);
                    touched.last = Last::Other;
                });
            }
            (false, true) => {
                self.change(at, |touched| {
                    touched.left.add(offset..offset + bytes, touched.last == Last::Left);
                    touched.last = Last::Left;
                });
                self.check_memory();
            }
            (false, false) => {
                if let Some(touched) = self.touched.get_mut(&at.segment) {
                    touched.last = Last::Other;
                }
            }
            (true, false) => return !planted(Bug::ScanMissesMoved),
        }
        false
    }

    /// Changes the notes on a segment, and counts its ranges again.
    fn change(&mut self, at: SegmentAt, change: impl FnOnce(&mut Touched)) {
        let new =
            || Touched { at, added: Ranges::default(), left: Ranges::default(), last: Last::Other, end: 0 };
        let touched = self.touched.entry(at.segment).or_insert_with(new);
        self.ranges -= touched.ranges();
        change(touched);
        self.ranges += touched.ranges();
    }

    fn check_memory(&mut self) {
        if self.memory_bytes() as u64 > self.bytes_max {
            self.is_overtaken = true;
            self.forget();
        }
    }

    /// Drops everything: the scan is over.
    fn forget(&mut self) {
        self.touched = BTreeMap::new();
        self.keys = HashSet::default();
        (self.ranges, self.through) = (0, 0);
    }

    /// Notes that the records of a segment at these offsets were visited. A place below them that became unvisited after
    /// its visit stays unvisited.
    pub(crate) fn visited(&mut self, segment: u64, offsets: Range<u32>) {
        if segment <= self.through {
            self.visited = self.visited.max((segment, offsets.end));
        }
        if let Some(at) = self.touched.get(&segment).map(|touched| touched.at) {
            self.change(at, |touched| {
                touched.added.remove(&offsets);
                // The range that the next record might extend may be gone.
                touched.last = Last::Other;
            });
        }
    }

    /// Notes that one record outside the order of offsets was visited.
    pub(crate) fn visited_one(&mut self, place: NewPlace) {
        self.change(place.at, |touched| {
            touched.left.add(place.offset..place.offset + place.bytes, false);
            touched.last = Last::Other;
        });
    }

    /// Begins a visit of the records of a segment that are current now, in any order of offsets.
    pub(crate) fn begin_in_any_order(&mut self, segment: u64) {
        if let Some(touched) = self.touched.get_mut(&segment) {
            touched.end = 0;
        }
    }

    /// Ends that visit, which was one of the records from the offset `from` on. Returns false if a record has become
    /// current in the segment since: the visit must begin again.
    pub(crate) fn end_in_any_order(&mut self, segment: u64, from: u32) -> bool {
        let is_over = self.touched.get(&segment).is_none_or(|touched| touched.end == 0);
        if is_over {
            self.visited(segment, from..u32::MAX);
            self.pass_segment(segment);
        }
        is_over
    }

    /// Ends the visit of a segment of which every record below `offset` was visited. Returns false if a record has become
    /// current behind it since: the visit must continue.
    pub(crate) fn finish_segment(&mut self, segment: u64, offset: u32) -> bool {
        if let Some(touched) = self.touched.get(&segment)
            && touched.end.max(touched.added.end()) > offset
        {
            return false;
        }
        self.pass_segment(segment);
        true
    }

    /// Ends the visit of a segment. If a copy became current behind the reader, the segment is read once more for it.
    fn pass_segment(&mut self, segment: u64) {
        let is_behind =
            |touched: &&Touched| !touched.added.0.is_empty() && !planted(Bug::ScanMissesBehindReader);
        match self.touched.get(&segment).filter(is_behind).map(|touched| touched.at) {
            Some(at) => {
                self.visited(segment, u32::MAX..u32::MAX);
                self.change(at, |touched| (touched.left, touched.end) = (Ranges::default(), 0));
            }
            None => self.leave_segment(segment),
        }
    }

    /// Ends the visit of a segment of which no record is current any more.
    pub(crate) fn leave_segment(&mut self, segment: u64) {
        if segment <= self.through {
            self.visited = self.visited.max((segment, u32::MAX));
        }
        if let Some(touched) = self.touched.remove(&segment) {
            self.ranges -= touched.ranges();
        }
    }

    /// Returns the next step. `listed`: the next segment in use that was found by its number; `None` if none is left below
    /// [`through`](Self::through). Segments in which records became current since they were listed come first.
    pub(crate) fn next(&mut self, listed: Option<SegmentAt>) -> Next {
        let from = self.visited.0 + u64::from(self.visited.1 == u32::MAX);
        let until = listed.map_or(self.through + 1, |listed| listed.segment);
        let since = self.touched.range(from..until.max(from)).find(|(_, touched)| touched.end > 0);
        if let Some((_, touched)) = since {
            return Next::Segment(touched.at);
        }
        if let Some(listed) = listed {
            self.visited = self.visited.max((listed.segment, 0));
            return Next::Segment(listed);
        }
        self.visited = self.visited.max((self.through + 1, 0));
        match self.touched.values().find(|touched| !touched.added.0.is_empty()) {
            Some(touched) => Next::Segment(touched.at),
            None if self.keys.is_empty() => Next::Nothing,
            None => Next::Keys,
        }
    }

    /// Returns the number of noted keys.
    pub(crate) fn noted(&self) -> usize {
        self.keys.len()
    }

    /// Notes a key that may be hidden at a visited place.
    pub(crate) fn note_key(&mut self, hash: KeyHash) {
        self.keys.insert(hash);
        self.check_memory();
    }

    /// Takes up to `most` noted keys, which count as returned from now on.
    pub(crate) fn take_keys(&mut self, most: usize) -> Vec<KeyHash> {
        let taken: Vec<KeyHash> = self.keys.iter().take(most).copied().collect();
        for hash in &taken {
            self.keys.remove(hash);
        }
        // An iteration over a set passes its free capacity too.
        if self.keys.len() < self.keys.capacity() / 4 {
            self.keys.shrink_to_fit();
        }
        taken
    }
}

#[cfg(test)]
#[path = "unvisited_tests.rs"]
mod tests;
