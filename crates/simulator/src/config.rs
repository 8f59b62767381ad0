//! Configurations of small stores of every kind.

use std::time::Duration;

use esker_device::Discarded;
use esker_engine::{Compression, Durability, MaxGarbage, WhenFull};
use esker_simulated::Random;
use serde::{Deserialize, Serialize};

/// Tiers of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tiers {
    /// The capacity tier alone.
    Capacity,
    /// A fast tier in front of it.
    Both,
    /// The fast tier alone.
    Fast,
}

/// Configuration of a store under test.
#[derive(Clone, Debug)]
pub struct Config {
    /// Tiers.
    pub tiers: Tiers,
    /// Length of a segment in bytes.
    pub segment_bytes: u64,
    /// Indirection unit of the capacity tier in bytes.
    pub unit_bytes: u64,
    /// Segments of the fast tier.
    pub fast_segments: u64,
    /// Segments of the capacity tier.
    pub capacity_segments: u64,
    /// Segments of each further device of the tier where records stay.
    pub more_devices: Vec<u64>,
    /// Bits of a hash that the index keeps; the default if `None`.
    pub hash_bits: Option<u32>,
    /// Memory beyond the accepted minimum.
    pub more_memory_bytes: u64,
    /// Minimum length of a value that goes directly to the capacity tier; the default if `None`.
    pub shaping_threshold_bytes: Option<u64>,
    /// Share of the capacity that users cannot fill, in percent.
    pub reserve_percent: u8,
    /// Bound of garbage.
    pub max_garbage: MaxGarbage,
    /// Default durability of writes.
    pub durability: Durability,
    /// Maximum time that puts coalesce in memory.
    pub coalesce_for: Duration,
    /// Compression of values.
    pub compression: Compression,
    /// True if there is a staging file.
    pub staging: bool,
    /// True if devices can grow, as files do.
    pub grows: bool,
    /// Segments by which each growing device can grow.
    pub room_segments: u64,
    /// Time from freeing a segment to its discard; `None`: no discards.
    pub discard_after: Option<Duration>,
    /// Content of discarded ranges.
    pub discarded: Discarded,
    /// Rate of the scrub; 0: no scrub.
    pub scrub_bytes_per_s: u64,
    /// Handling of puts when the store is full.
    pub when_full: WhenFull,
}

/// Minimum length of a segment in bytes; `SEGMENT_UNITS` is the minimum in write units.
const LEAST_SEGMENT_BYTES: u64 = 64 << 10;
const SEGMENT_UNITS: u64 = 8;

impl Config {
    /// Returns the configuration of a small store with default settings.
    pub fn new(tiers: Tiers) -> Config {
        Config {
            tiers,
            segment_bytes: 64 << 10,
            unit_bytes: 4096,
            fast_segments: 10,
            capacity_segments: 24,
            more_devices: Vec::new(),
            hash_bits: None,
            more_memory_bytes: 0,
            shaping_threshold_bytes: None,
            reserve_percent: 20,
            // Collection is frequent, whatever the number of free slots.
            max_garbage: MaxGarbage::Percent(25),
            durability: Durability::Sync,
            coalesce_for: Duration::ZERO,
            // Off, so that values on devices have their original length.
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

    /// Returns the configuration of a random small store.
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
            // Derived instead of drawn, so that existing seeds keep the rest of their configuration.
            discard_after: [Some(0), Some(1), Some(20), None][capacity_segments as usize % 4]
                .map(Duration::from_millis),
            discarded: [Discarded::Zeros, Discarded::Stale, Discarded::Noise][fast_segments as usize % 3],
            compression: [Compression::Lz4, Compression::Off, Compression::Zstd(3), Compression::Lz4]
                [(fast_segments + capacity_segments) as usize % 4],
            coalesce_for: [0, 0, 20, 0, 1500].map(Duration::from_millis)
                [(fast_segments + capacity_segments) as usize % 5],
            max_garbage: [MaxGarbage::Off, MaxGarbage::Percent(25), MaxGarbage::Auto]
                [(fast_segments + 2 * capacity_segments) as usize % 3],
            scrub_bytes_per_s: if capacity_segments % 7 == 3 { 50_000_000 } else { 0 },
            ..Config::new(tiers)
        }
    }

    /// Reduces the store to few and short segments.
    pub(crate) fn make_small(&mut self) {
        self.segment_bytes = u64::max(LEAST_SEGMENT_BYTES, SEGMENT_UNITS * self.unit_bytes);
        (self.fast_segments, self.capacity_segments) = (8, 8);
    }

    pub(crate) fn least_memory_bytes(&self) -> u64 {
        let lanes = if self.tiers == Tiers::Both { 2 } else { 1 };
        let coalescing = if lanes == 1 && !self.coalesce_for.is_zero() { 2 } else { 0 };
        (24 << 20) + (2 * lanes + coalescing + 2) * self.segment_bytes + INDEX_BYTES
    }

    /// Returns the bytes of a tier of this many segments.
    pub fn tier_bytes(&self, segments: u64) -> u64 {
        let superblocks = (4 * self.unit_bytes).next_multiple_of(1 << 20);
        superblocks + (1 << 20) + segments * self.segment_bytes
    }
}

/// Memory of the smallest index, rounded up.
const INDEX_BYTES: u64 = 11 << 20;

/// Returns the full-store policy of a history. Derived instead of drawn, so that existing seeds keep the rest of their
/// plan.
pub(crate) fn when_full(seed: u64) -> WhenFull {
    match seed % 8 {
        0 | 3 => WhenFull::Evict,
        5 => WhenFull::EvictExpiring,
        _ => WhenFull::Refuse,
    }
}
