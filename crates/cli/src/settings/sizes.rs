//! Refuses sizes with which no store can be made or opened, by the names of the settings, before the
//! store is opened. The store itself checks the size of a tier, because it knows the device.

use esker_engine::sizing::{NewStore, NewTier};

use super::layers::{Given, Settings};

/// The shortest and the longest segment in bytes.
const SEGMENTS_BYTES: (u64, u64) = (64 << 10, 512 << 20);

/// The smallest and the largest indirection unit in bytes.
const UNITS: (u64, u64) = (4096, esker_device::UNIT_BYTES_MAX);

impl Settings {
    /// Refuses an invalid indirection unit or segment length.
    pub(super) fn check_sizes(&self) -> Result<(), String> {
        let (least, most) = SEGMENTS_BYTES;
        if let Some(bytes) = self.bytes("segment-size")
            && !(bytes.is_power_of_two() && (least..=most).contains(&bytes))
        {
            let given = self.get("segment-size").expect("it has a value");
            return Err(format!("{given} is {}; it must be a power of two from 64k to 512m", given.text));
        }
        let (least, most) = UNITS;
        let unit = self.bytes("iu").unwrap_or(least);
        if !unit.is_power_of_two() || !(least..=most).contains(&unit) {
            let given = self.get("iu").expect("it is not the default");
            return Err(format!("{given} is {}; it must be a power of two from 4k to 4m", given.text));
        }
        Ok(())
    }

    /// Returns a new store of these settings, as far as they determine it.
    fn new_store(&self, server_bytes: u64) -> NewStore {
        let is_given = |tier: &str| self.get(tier).is_some();
        let has_two = is_given("fast") && is_given("capacity");
        let tier = |limit: &str, unit_bytes, in_front| {
            let sizes = self.bytes(limit).map(|limit| (limit, limit));
            NewTier { sizes, unit_bytes, in_front }
        };
        let unit = self.bytes("iu").unwrap_or(UNITS.0);
        let tiers = match (has_two, is_given("fast")) {
            (true, _) => vec![tier("fast-limit", UNITS.0, true), tier("capacity-limit", unit, false)],
            (false, true) => vec![tier("fast-limit", unit, false)],
            (false, false) => vec![tier("capacity-limit", unit, false)],
        };
        let memory_bytes = self.bytes("memory").unwrap_or(0).saturating_sub(server_bytes);
        NewStore { memory_bytes, coalesces: self.time("coalesce-for").is_some(), tiers }
    }

    /// Refuses less memory than the store needs beside the clients' part and logins.
    pub(super) fn check_memory(&self, server_bytes: u64, login_bytes: u64) -> Result<(), String> {
        let new = self.new_store(server_bytes);
        let segment_bytes = self.bytes("segment-size").unwrap_or_else(|| new.default_segment_bytes());
        let store = new.needs(segment_bytes).bytes();
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
