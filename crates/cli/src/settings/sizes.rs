//! Refuses sizes with which no store can be made or opened, by the names of the settings, before the
//! store is opened. The store itself checks the size of a tier, because it knows the device.

use super::layers::{Given, Settings};

/// Longest segment of a new store in bytes, unless its write units require longer ones.
const SEGMENT_BYTES_MOST: u64 = 16 << 20;

/// Number of segments for which a small tier shortens its segments; the second constant is for a fast
/// tier in front of another.
const SEGMENTS: u64 = 64;
const FAST_SEGMENTS: u64 = 16;

/// Smallest number of units in a segment.
const SEGMENT_UNITS_LEAST: u64 = 16;

/// Memory of a store beside its segment buffers, in bytes.
const FIXED_MEMORY_BYTES: u64 = 24 << 20;

/// The smallest and the largest indirection unit in bytes.
const UNITS: (u64, u64) = (4096, esker_device::UNIT_BYTES_MAX);

impl Settings {
    /// Refuses an invalid indirection unit.
    pub(super) fn check_sizes(&self) -> Result<(), String> {
        let (least, most) = UNITS;
        let unit = self.bytes("iu").unwrap_or(least);
        if !unit.is_power_of_two() || !(least..=most).contains(&unit) {
            let given = self.get("iu").expect("it is not the default");
            return Err(format!("{given} is {}; it must be a power of two from 4k to 4m", given.text));
        }
        Ok(())
    }

    /// Returns the segment length of a new store in bytes, as far as the limits of its tiers determine
    /// it.
    fn segment_bytes(&self, tiers: u64) -> u64 {
        let fast_segments = if tiers == 2 { FAST_SEGMENTS } else { SEGMENTS };
        let limits = [(self.bytes("fast-limit"), fast_segments), (self.bytes("capacity-limit"), SEGMENTS)];
        let shares = limits.into_iter().filter_map(|(limit, segments)| limit.map(|limit| limit / segments));
        let shortest = shares.map(|share| 1 << share.max(1).ilog2()).min();
        let least = SEGMENT_UNITS_LEAST * self.bytes("iu").unwrap_or(UNITS.0);
        shortest.unwrap_or(SEGMENT_BYTES_MOST).min(SEGMENT_BYTES_MOST).max(least)
    }

    /// Refuses less memory than the store needs beside the clients' part and logins.
    pub(super) fn check_memory(&self, server_bytes: u64, login_bytes: u64) -> Result<(), String> {
        let tiers = if self.get("fast").is_some() && self.get("capacity").is_some() { 2 } else { 1 };
        // Two segments: one is filled while the other is written. With two tiers, the fast one coalesces
        // instead.
        let coalescing = if tiers == 1 && self.time("coalesce-for").is_some() { 2 } else { 0 };
        // Two segments per tier, and two for relocation.
        let store = FIXED_MEMORY_BYTES + (2 * tiers + 2 + coalescing) * self.segment_bytes(tiers);
        let given = self.get("memory").expect("memory has a default");
        if self.bytes("memory").is_some_and(|memory| memory >= store + server_bytes) {
            return Ok(());
        }
        let (least, clients) = match self.explicit("client-memory") {
            Some(clients) => (store + server_bytes, clients.to_string()),
            // The store and logins take seven eighths.
            None => ((store + login_bytes).div_ceil(7) * 8, "client-memory".to_owned()),
        };
        Err(too_little(given, least, &format!("which the store needs in addition to {clients}")))
    }
}

fn too_little(given: &Given, least: u64, what: &str) -> String {
    format!("{given} is {}; it must be at least {}m, {what}", given.text, least.div_ceil(1 << 20))
}
