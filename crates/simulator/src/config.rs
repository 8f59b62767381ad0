//! Small stores of every kind.

use std::time::Duration;

use esker_device::Discarded;
use esker_engine::{Compression, Durability, WhenFull};
use esker_simulated::Random;
use serde::{Deserialize, Serialize};

/// Which tiers a store has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tiers {
    /// The capacity tier alone.
    Capacity,
    /// A fast tier in front of it.
    Both,
    /// The fast tier alone.
    Fast,
}

/// A store that a case works with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its tiers.
    pub tiers: Tiers,
    /// Length of a segment.
    pub segment_bytes: u64,
    /// Indirection unit of the capacity tier.
    pub unit_bytes: u64,
    /// Segments of the fast tier.
    pub fast_segments: u64,
    /// Segments of the capacity tier.
    pub capacity_segments: u64,
    /// How many bits of a hash the index keeps; the usual if `None`.
    pub hash_bits: Option<u32>,
    /// Beyond the least that is accepted.
    pub more_memory_bytes: u64,
    /// From which length on values go straight to the capacity tier; the usual if `None`.
    pub shaping_threshold_bytes: Option<u64>,
    /// What users may not fill.
    pub reserve_percent: u8,
    /// How writes are acknowledged that say nothing.
    pub durability: Durability,
    /// How long puts may wait in memory to be overwritten.
    pub coalesce_for: Duration,
    /// How values are compressed.
    pub compression: Compression,
    /// Whether there is a staging file.
    pub staging: bool,
    /// Devices of the kind that grows, as files do.
    pub grows: bool,
    /// Segments that each device has room for beyond those, if it grows.
    pub room_segments: u64,
    /// How long freed segments are kept before they are discarded, if they are.
    pub discard_after: Option<Duration>,
    /// What discarded ranges read as.
    pub discarded: Discarded,
    /// How fast the scrub reads; 0: there is none.
    pub scrub_bytes_per_s: u64,
    /// What becomes of puts when the store is full.
    pub when_full: WhenFull,
}

/// Segments are no shorter than this, nor than so many write units.
const LEAST_SEGMENT_BYTES: u64 = 64 << 10;
const SEGMENT_UNITS: u64 = 8;

impl Config {
    /// A small store with everything at its default.
    pub fn new(tiers: Tiers) -> Config {
        Config {
            tiers,
            segment_bytes: 64 << 10,
            unit_bytes: 4096,
            fast_segments: 10,
            capacity_segments: 24,
            hash_bits: None,
            more_memory_bytes: 0,
            shaping_threshold_bytes: None,
            reserve_percent: 20,
            durability: Durability::Sync,
            coalesce_for: Duration::ZERO,
            // So that values are as long on devices as they are put.
            compression: Compression::Off,
            staging: false,
            grows: false,
            room_segments: 0,
            discard_after: Some(Duration::from_secs(2)),
            discarded: Discarded::Zeros,
            scrub_bytes_per_s: 0,
            when_full: WhenFull::Refuse,
        }
    }

    /// Any small store.
    pub fn random(random: &mut Random, tiers: Tiers) -> Config {
        let unit_bytes = [4096, 4096, 8192, 16384][random.below(4) as usize];
        let segment_bytes = match random.below(8) {
            0..5 => LEAST_SEGMENT_BYTES,
            5..7 => 128 << 10,
            _ => 512 << 10,
        };
        let segment_bytes = u64::max(segment_bytes, SEGMENT_UNITS * unit_bytes);
        let (fast_segments, capacity_segments) = (8 + random.below(6), 10 + random.below(20));
        Config {
            segment_bytes,
            unit_bytes,
            fast_segments,
            capacity_segments,
            hash_bits: [None, None, Some(6), Some(7), Some(8)][random.below(5) as usize],
            more_memory_bytes: if random.one_in(3) { 4 << 20 } else { 0 },
            shaping_threshold_bytes: (tiers == Tiers::Both && random.one_in(2))
                .then(|| 512 + random.below(4096)),
            reserve_percent: [5, 20, 20, 35][random.below(4) as usize],
            grows: random.one_in(4),
            // Not drawn, so that the rest of a seed's life stays what it was.
            discard_after: [Some(0), Some(1), Some(20), None][capacity_segments as usize % 4]
                .map(Duration::from_millis),
            discarded: [Discarded::Zeros, Discarded::Stale, Discarded::Noise][fast_segments as usize % 3],
            compression: [Compression::Lz4, Compression::Off, Compression::Zstd(3), Compression::Lz4]
                [(fast_segments + capacity_segments) as usize % 4],
            coalesce_for: [0, 0, 20, 0, 1500].map(Duration::from_millis)
                [(fast_segments + capacity_segments) as usize % 5],
            scrub_bytes_per_s: if capacity_segments % 7 == 3 { 50_000_000 } else { 0 },
            ..Config::new(tiers)
        }
    }

    /// Few segments, and short ones.
    pub(crate) fn make_small(&mut self) {
        self.segment_bytes = u64::max(LEAST_SEGMENT_BYTES, SEGMENT_UNITS * self.unit_bytes);
        (self.fast_segments, self.capacity_segments) = (8, 8);
    }

    pub(crate) fn least_memory_bytes(&self) -> u64 {
        let lanes = if self.tiers == Tiers::Both { 2 } else { 1 };
        let coalescing = if lanes == 1 && !self.coalesce_for.is_zero() { 2 } else { 0 };
        (24 << 20) + (2 * lanes + coalescing + 2) * self.segment_bytes + INDEX_BYTES
    }

    /// Bytes of a tier of so many segments.
    pub fn tier_bytes(&self, segments: u64) -> u64 {
        (2 << 20) + segments * self.segment_bytes
    }
}

/// What the smallest index takes, and a little more.
const INDEX_BYTES: u64 = 12 << 20;

/// What a history's store does when it is full. Not drawn, so that the rest of a seed's life stays what it was.
pub(crate) fn when_full(seed: u64) -> WhenFull {
    match seed % 8 {
        0 | 3 => WhenFull::Evict,
        5 => WhenFull::EvictExpiring,
        _ => WhenFull::Refuse,
    }
}
