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

    /// Removes all offsets below one.
    fn remove_below(&mut self, offset: u32) {
        self.0.retain(|range| range.end > offset);
        if let Some(first) = self.0.first_mut() {
            first.start = first.start.max(offset);
        }
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
            let touched = self.touched(new.at);
            let extends = touched.last == Last::Added;
            let end = new.offset + new.bytes;
            touched.added.add(new.offset..end, extends);
            touched.end = touched.end.max(end);
            touched.last = Last::Added;
            self.ranges += usize::from(!extends);
            self.check_memory();
        }
    }

    /// Returns true if a record left the unvisited places.
    fn moved(&mut self, was_unvisited: bool, new: NewPlace) -> bool {
        let NewPlace { at, offset, bytes } = new;
        match (was_unvisited, self.is_to_come(at.segment, offset)) {
            (true, true) => {
                let touched = self.touched(at);
                touched.end = touched.end.max(offset + bytes);
                touched.last = Last::Other;
            }
            (false, true) => {
                let touched = self.touched(at);
                let extends = touched.last == Last::Left;
                touched.left.add(offset..offset + bytes, extends);
                touched.last = Last::Left;
                self.ranges += usize::from(!extends);
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

    fn touched(&mut self, at: SegmentAt) -> &mut Touched {
        let new =
            || Touched { at, added: Ranges::default(), left: Ranges::default(), last: Last::Other, end: 0 };
        self.touched.entry(at.segment).or_insert_with(new)
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

    /// Notes that a segment was visited up to an offset.
    pub(crate) fn visited_to(&mut self, segment: u64, offset: u32) {
        if segment <= self.through {
            self.visited = self.visited.max((segment, offset));
        }
        if let Some(touched) = self.touched.get_mut(&segment) {
            touched.added.remove_below(offset);
        }
    }

    /// Notes that one record outside the order of offsets was visited.
    pub(crate) fn visited_one(&mut self, place: NewPlace) {
        let touched = self.touched(place.at);
        touched.left.add(place.offset..place.offset + place.bytes, false);
        touched.last = Last::Other;
        self.ranges += 1;
    }

    /// Begins a visit of the records of a segment that are current now, in any order of offsets.
    pub(crate) fn begin_in_any_order(&mut self, segment: u64) {
        if let Some(touched) = self.touched.get_mut(&segment) {
            touched.end = 0;
        }
    }

    /// Ends that visit. Returns false if a record has become current in the segment since: the visit must begin again.
    pub(crate) fn end_in_any_order(&mut self, segment: u64) -> bool {
        let is_over = self.touched.get(&segment).is_none_or(|touched| touched.end == 0);
        if is_over {
            self.leave_segment(segment);
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
        self.leave_segment(segment);
        true
    }

    /// Ends the visit of a segment of which no record is current any more, or all were visited.
    pub(crate) fn leave_segment(&mut self, segment: u64) {
        if segment <= self.through {
            self.visited = self.visited.max((segment, u32::MAX));
        }
        if let Some(Touched { added, left, .. }) = self.touched.remove(&segment) {
            self.ranges = self.ranges.saturating_sub(added.0.len() + left.0.len());
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
