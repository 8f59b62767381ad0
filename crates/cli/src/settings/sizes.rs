//! Sizes that no store can be made or opened with: they are refused before it is tried, by the names of the settings.

use super::layers::{Given, Settings};

/// Bytes of a segment of every store that is made here.
const SEGMENT_BYTES: u64 = 16 << 20;

/// Segments that a tier has at least.
const SEGMENTS_LEAST: u64 = 8;

/// Memory of a store beside its segments in memory.
const FIXED_MEMORY_BYTES: u64 = 24 << 20;

/// The smallest and the largest indirection unit.
const UNITS: (u64, u64) = (4096, 1 << 20);

impl Settings {
    /// Refuses sizes of tiers and units that do not work.
    pub(super) fn check_sizes(&self) -> Result<(), String> {
        let (least, most) = UNITS;
        let unit = self.bytes("iu").unwrap_or(least);
        if !unit.is_power_of_two() || !(least..=most).contains(&unit) {
            let given = self.get("iu").expect("it is not the default");
            return Err(format!("{given} is {}; it must be a power of two from 4k to 1m", given.text));
        }
        for (name, unit) in [("fast-limit", least), ("capacity-limit", unit)] {
            let Some(given) = self.get(name) else { continue };
            // Four copies of the first block, whose end is on a whole MiB.
            let least = (4 * unit).next_multiple_of(1 << 20) + SEGMENTS_LEAST * SEGMENT_BYTES;
            if self.bytes(name).is_some_and(|bytes| bytes < least) {
                return Err(too_little(given, least, "what the smallest tier takes"));
            }
        }
        Ok(())
    }

    /// Refuses less memory than the store takes beside the part that is kept for clients and for logins.
    pub(super) fn check_memory(&self, server_bytes: u64, login_bytes: u64) -> Result<(), String> {
        let tiers = if self.get("fast").is_some() && self.get("capacity").is_some() { 2 } else { 1 };
        // Two segments of each tier, and two that move.
        let store = FIXED_MEMORY_BYTES + (2 * tiers + 2) * SEGMENT_BYTES;
        let given = self.get("memory").expect("memory has a default");
        if self.bytes("memory").is_some_and(|memory| memory >= store + server_bytes) {
            return Ok(());
        }
        let (least, clients) = match self.explicit("client-memory") {
            Some(clients) => (store + server_bytes, clients.to_string()),
            // All but an eighth is what the store and logins take.
            None => ((store + login_bytes).div_ceil(7) * 8, "client-memory".to_owned()),
        };
        Err(too_little(given, least, &format!("what the store takes beside {clients}")))
    }
}

fn too_little(given: &Given, least: u64, what: &str) -> String {
    format!("{given} is {}; it must be at least {}m, {what}", given.text, least.div_ceil(1 << 20))
}
