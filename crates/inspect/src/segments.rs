//! All slots of a store with their content, as rows of a table and cells of a map.

use std::sync::atomic::{AtomicU64, Ordering};

use esker_log::{KeyHash, Keyspace, Location, SegmentClass};
use serde::Serialize;

use crate::newest_versions::{Rule, read_summaries};
use crate::slots::{Content, Segment, TierSlots, is_plainly_free};
use crate::store::StoreView;
use crate::watch::Watcher;

/// Number of records above which live bytes are estimated from a sample.
const EXACT_RECORDS: u64 = 4 << 20;

/// The state of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SlotState {
    /// Empty.
    Free,
    /// Begun, without a summary.
    Open,
    /// Written, with a summary.
    Sealed,
    /// Start and end contradict each other, or cannot be read.
    Unclear,
}

impl SlotState {
    /// Returns the name of the state.
    pub fn name(self) -> &'static str {
        match self {
            SlotState::Free => "free",
            SlotState::Open => "open",
            SlotState::Sealed => "sealed",
            SlotState::Unclear => "unclear",
        }
    }
}

/// A slot and its content.
#[derive(Clone, Debug, Serialize)]
pub struct SlotRow {
    /// `fast` or `capacity`.
    pub tier: &'static str,
    /// Number of the slot in its tier.
    pub slot: u32,
    /// Its state.
    pub state: SlotState,
    /// Number of the segment in it; higher numbers were opened later.
    pub segment: Option<u64>,
    /// Class of the segment.
    #[serde(serialize_with = "crate::class::name_if_any")]
    pub class: Option<SegmentClass>,
    /// Records in it, current or superseded.
    pub records: u64,
    /// Byte offset of the end of its last frame.
    pub used_bytes: u64,
    /// Bytes of current records.
    pub live_bytes: u64,
    /// Live bytes as a share of a whole segment.
    pub live_share: f64,
    /// Epoch in which it was sealed.
    pub epoch: Option<u64>,
    /// Highest sequence number in it.
    pub max_sequence: Option<u64>,
    /// Estimated time at which many of its records will have expired, in seconds since the Unix epoch.
    pub expires_s: Option<u32>,
}

/// All slots of a store.
#[derive(Clone, Debug, Serialize)]
pub struct Segments {
    /// The slots, ordered by tier and slot number.
    pub slots: Vec<SlotRow>,
    /// Sampling ratio of live bytes: one key in `sampled` was counted; 1 means all.
    pub sampled: u64,
    /// Length of a segment in bytes.
    pub segment_bytes: u64,
}

impl StoreView {
    /// Returns every slot with its content. Reads all summaries. If `exact`, live bytes are counted
    /// instead of estimated.
    pub fn slot_rows(&self, exact: bool, watcher: &dyn Watcher) -> Segments {
        let slots = self.slots();
        let mut segments = self.segments(&slots);
        let records: u64 = segments.iter().map(Segment::records).sum();
        let sampled = if exact { 1 } else { (records / EXACT_RECORDS + 1).next_power_of_two() };
        let live = self.live_bytes(&mut segments, records / sampled, sampled, watcher);
        let mut rows = Vec::new();
        for (tier, of_tier) in slots.iter().enumerate() {
            rows.extend((0..of_tier.ends.len() as u32).map(|slot| self.free_row(tier, slot, of_tier)));
        }
        let firsts = self.first_rows(&slots);
        for (segment, live) in segments.iter().zip(live) {
            let row = &mut rows[firsts[segment.tier] + segment.slot as usize];
            self.fill(row, segment, live.into_inner() * sampled);
        }
        Segments { slots: rows, sampled, segment_bytes: self.packing.segment_bytes }
    }

    /// Returns the index of the first row of each tier.
    fn first_rows(&self, slots: &[TierSlots]) -> Vec<usize> {
        let lengths = slots.iter().map(|of_tier| of_tier.ends.len());
        let ends = lengths.scan(0, |end, length| {
            *end += length;
            Some(*end)
        });
        std::iter::once(0).chain(ends).collect()
    }

    /// Returns the row of a slot in which no segment was found.
    fn free_row(&self, tier: usize, slot: u32, of_tier: &TierSlots) -> SlotRow {
        let ends = &of_tier.ends[slot as usize];
        let free = is_plainly_free(ends) || ends.is_blank();
        SlotRow {
            tier: self.tiers[tier].name().name(),
            slot,
            state: if free { SlotState::Free } else { SlotState::Unclear },
            segment: None,
            class: None,
            records: 0,
            used_bytes: 0,
            live_bytes: 0,
            live_share: 0.0,
            epoch: None,
            max_sequence: None,
            expires_s: None,
        }
    }

    fn fill(&self, row: &mut SlotRow, segment: &Segment, live_bytes: u64) {
        row.segment = Some(segment.number).filter(|number| *number > 0);
        row.class = Some(SegmentClass::of(segment.stream));
        row.records = segment.records();
        row.used_bytes = segment.tail().into();
        row.live_bytes = live_bytes.min(row.used_bytes);
        row.live_share = row.live_bytes as f64 / self.packing.segment_bytes as f64;
        row.state = match &segment.content {
            Content::Sealed(footer) => {
                (row.epoch, row.max_sequence) = (Some(footer.epoch), Some(footer.max_sequence));
                row.expires_s = Some(footer.expires_s).filter(|at| *at > 0);
                SlotState::Sealed
            }
            Content::Scanned(scan) => {
                row.max_sequence = scan.entries.iter().map(|entry| entry.sequence).max();
                if scan.lost.is_empty() { SlotState::Open } else { SlotState::Unclear }
            }
            Content::Nameless => SlotState::Unclear,
        };
    }

    /// Returns the bytes of current records of each segment, counted for one key in `sampled`.
    fn live_bytes(
        &self,
        segments: &mut [Segment],
        expected: u64,
        sampled: u64,
        watcher: &dyn Watcher,
    ) -> Vec<AtomicU64> {
        let keep = |hash: &KeyHash| is_sampled(hash, sampled);
        let versions = read_summaries(self, segments, watcher, expected, keep);
        let live: Vec<AtomicU64> = segments.iter().map(|_| AtomicU64::new(0)).collect();
        let mut places: Vec<Vec<usize>> = self.tiers.iter().map(|_| Vec::new()).collect();
        for (number, segment) in segments.iter().enumerate() {
            let of_tier = &mut places[segment.tier];
            of_tier.resize(of_tier.len().max(segment.slot as usize + 1), 0);
            of_tier[segment.slot as usize] = number;
        }
        let number = |location: &Location| {
            let tier = self.tiers.iter().position(|tier| tier.name() == location.tier).unwrap_or(0);
            places[tier][location.slot as usize]
        };
        let rule = Rule::new(self, segments);
        versions.for_each_key(
            || (),
            |(), versions| {
                if let Some(current) = rule.current(versions).filter(|current| !current.is_tombstone()) {
                    let bytes = current.padded_bytes(&self.packing);
                    live[number(&current.location(&self.packing))].fetch_add(bytes, Ordering::Relaxed);
                }
            },
        );
        live
    }
}

/// Returns true if a key is in the sample of one key in `sampled`, a power of two. The lowest bits of the
/// digest are not used, because they are the keyspace: with them, all keys of a database would be in the
/// sample, or none.
fn is_sampled(hash: &KeyHash, sampled: u64) -> bool {
    (hash.check >> Keyspace::BITS) & (sampled - 1) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A digest with evenly spread bits, except for its keyspace bits.
    fn key(number: u64, keyspace: Keyspace) -> KeyHash {
        let mixed = (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        KeyHash { slot: number, check: mixed ^ mixed >> 31 }.in_keyspace(keyspace)
    }

    #[test]
    fn of_every_keyspace_one_key_in_so_many_is_looked_at() {
        const KEYS: u64 = 1 << 17;
        for keyspace in Keyspace::all() {
            for sampled in [1, 2, 4, 16, 64] {
                let seen = (0..KEYS).filter(|number| is_sampled(&key(*number, keyspace), sampled)).count();
                let ideal = (KEYS / sampled) as f64;
                let off = (seen as f64 / ideal - 1.0).abs();
                assert!(off < 0.1, "{seen} keys of {keyspace:?} are looked at instead of {ideal}");
            }
        }
    }
}
