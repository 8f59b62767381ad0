//! Contents of the log of replicated groups: the current record of each index and state, and which segments still hold
//! any. Appends and recovery apply records by the same function, so that an opening finds the appended state.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use bytes::Bytes;

use super::key::LogKey;

/// Location of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogPlace {
    pub(crate) segment: u64,
    pub(crate) slot: u32,
    pub(crate) offset: u32,
    /// Length in bytes with padding.
    pub(crate) bytes: u32,
}

/// A segment of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldSegment {
    pub(crate) segment: u64,
    pub(crate) slot: u32,
    /// Number and bytes of its records that are current.
    live: u32,
    live_bytes: u64,
}

/// One group.
#[derive(Debug, Default)]
struct Group {
    entries: BTreeMap<u64, LogPlace>,
    states: BTreeMap<u8, (LogPlace, Bytes)>,
    /// Index through which entries were purged, and the owner's note.
    purged: Option<(LogPlace, u64, Bytes)>,
}

/// Contents of the log.
#[derive(Debug, Default)]
pub(crate) struct LogContents {
    groups: BTreeMap<u8, Group>,
    /// All segments, in the order in which they were opened.
    segments: VecDeque<HeldSegment>,
}

impl LogContents {
    /// Adds a segment behind all others.
    pub(crate) fn add_segment(&mut self, segment: u64, slot: u32) {
        debug_assert!(
            self.segments.back().is_none_or(|last| last.segment < segment),
            "segments are in order"
        );
        self.segments.push_back(HeldSegment { segment, slot, live: 0, live_bytes: 0 });
    }

    /// Applies a record at `place`. The value matters for states and purges only.
    pub(crate) fn apply(&mut self, key: LogKey, place: LogPlace, value: &[u8]) {
        let group = self.groups.entry(key.group()).or_default();
        let mut dead = Vec::new();
        let is_live = match key {
            LogKey::Entry { index, .. } => {
                let is_purged = group.purged.as_ref().is_some_and(|(_, through, _)| index <= *through);
                if !is_purged {
                    dead.extend(group.entries.insert(index, place));
                }
                !is_purged
            }
            LogKey::State { number, .. } => {
                let replaced = group.states.insert(number, (place, Bytes::copy_from_slice(value)));
                dead.extend(replaced.map(|(place, _)| place));
                true
            }
            LogKey::Truncate { from, .. } => {
                dead.extend(group.entries.split_off(&from).into_values());
                false
            }
            // A group that is forgotten: everything that the record voids lies before it, as for a truncation.
            LogKey::Purge { through: u64::MAX, .. } => {
                dead.extend(std::mem::take(&mut group.entries).into_values());
                dead.extend(group.purged.take().map(|(place, ..)| place));
                false
            }
            LogKey::Purge { through, .. } => {
                let later = through.checked_add(1).map(|next| group.entries.split_off(&next));
                let purged = std::mem::replace(&mut group.entries, later.unwrap_or_default());
                dead.extend(purged.into_values());
                let note = Bytes::copy_from_slice(value);
                dead.extend(group.purged.replace((place, through, note)).map(|(place, ..)| place));
                true
            }
        };
        if is_live {
            self.count(place, 1);
        }
        dead.into_iter().for_each(|place| self.count(place, -1));
    }

    /// Counts a record as current (1), or as no longer current (-1).
    fn count(&mut self, place: LogPlace, sign: i32) {
        let at = self.segments.binary_search_by_key(&place.segment, |held| held.segment);
        let held = &mut self.segments[at.expect("records lie in segments of the log")];
        held.live = held.live.wrapping_add_signed(sign);
        held.live_bytes = held.live_bytes.wrapping_add_signed(i64::from(sign) * i64::from(place.bytes));
    }

    pub(crate) fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Returns the number of the newest segment; 0 without any.
    pub(crate) fn newest_segment(&self) -> u64 {
        self.segments.back().map_or(0, |held| held.segment)
    }

    /// Returns the bytes of all current records.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.segments.iter().map(|held| held.live_bytes).sum()
    }

    /// Returns the last of the oldest segments without current records, except the one that is being filled.
    pub(crate) fn dead_through(&self) -> Option<u64> {
        let filled = self.segments.len().saturating_sub(1);
        self.segments.iter().take(filled).take_while(|held| held.live == 0).last().map(|held| held.segment)
    }

    /// Removes the oldest segment and returns it, if it is `through` or older and has no current record.
    pub(crate) fn take_dead(&mut self, through: u64) -> Option<HeldSegment> {
        let is_dead = |held: &&HeldSegment| held.segment <= through && held.live == 0;
        self.segments.front().filter(is_dead)?;
        self.segments.pop_front()
    }

    /// Returns the current records of the oldest segment, except if it is being filled.
    pub(crate) fn oldest_records(&self) -> Vec<(LogKey, LogPlace)> {
        let Some(oldest) = self.segments.front().filter(|_| self.segments.len() > 1) else {
            return Vec::new();
        };
        let mut records = Vec::new();
        for (&group, held) in &self.groups {
            let entries = held.entries.iter().map(|(&index, place)| (LogKey::Entry { group, index }, *place));
            let states =
                held.states.iter().map(|(&number, (place, _))| (LogKey::State { group, number }, *place));
            let purged =
                held.purged.iter().map(|&(place, through, _)| (LogKey::Purge { group, through }, place));
            let all = entries.chain(states).chain(purged);
            records.extend(all.filter(|(_, place)| place.segment == oldest.segment));
        }
        records
    }

    /// Returns the place of a record if it is current.
    pub(crate) fn place(&self, key: LogKey) -> Option<LogPlace> {
        let group = self.groups.get(&key.group())?;
        match key {
            LogKey::Entry { index, .. } => group.entries.get(&index).copied(),
            LogKey::State { number, .. } => group.states.get(&number).map(|(place, _)| *place),
            LogKey::Purge { through, .. } => {
                group.purged.as_ref().filter(|purged| purged.1 == through).map(|purged| purged.0)
            }
            LogKey::Truncate { .. } => None,
        }
    }

    pub(crate) fn groups(&self) -> Vec<u8> {
        self.groups.keys().copied().collect()
    }

    /// Returns the range of indexes that a group holds; empty at the next index if it holds none, and at 0 if it never did.
    pub(crate) fn range(&self, group: u8) -> Range<u64> {
        let Some(group) = self.groups.get(&group) else { return 0..0 };
        match (group.entries.first_key_value(), group.entries.last_key_value()) {
            (Some((&first, _)), Some((&last, _))) => first..last + 1,
            _ => {
                let next = group.purged.as_ref().map_or(0, |(_, through, _)| through + 1);
                next..next
            }
        }
    }

    pub(crate) fn entries(&self, group: u8, range: Range<u64>) -> Vec<(u64, LogPlace)> {
        let Some(group) = self.groups.get(&group).filter(|_| range.start < range.end) else {
            return Vec::new();
        };
        group.entries.range(range).map(|(&index, &place)| (index, place)).collect()
    }

    pub(crate) fn state(&self, group: u8, number: u8) -> Option<Bytes> {
        self.groups.get(&group)?.states.get(&number).map(|(_, value)| value.clone())
    }

    pub(crate) fn purged(&self, group: u8) -> Option<(u64, Bytes)> {
        self.groups.get(&group)?.purged.as_ref().map(|(_, through, note)| (*through, note.clone()))
    }

    /// Returns the group and index of the first entry that is missing between others, or behind the purged ones.
    pub(crate) fn first_hole(&self) -> Option<(u8, u64)> {
        self.groups.iter().find_map(|(&number, group)| {
            let purged = group.purged.as_ref().map(|(_, through, _)| through + 1);
            let mut next = purged.or_else(|| group.entries.keys().next().copied())?;
            let missing = group.entries.keys().find_map(|&index| {
                let is_missing = index != next;
                let wanted = std::mem::replace(&mut next, index + 1);
                is_missing.then_some(wanted)
            });
            missing.map(|index| (number, index))
        })
    }
}

#[cfg(test)]
#[path = "contents_tests.rs"]
mod tests;
