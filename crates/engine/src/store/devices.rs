//! Devices of a store whose tiers have several.

use crate::base::error::Result;
use crate::segments::tier::Tier;
use crate::store::handle::Store;

/// A device of a tier of several devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierDevice {
    /// `fast` or `capacity`.
    pub tier: &'static str,
    /// The file or device.
    pub path: String,
    /// Number of segments that it has room for.
    pub segments_total: u64,
    /// Number of segments on it.
    pub segments_used: u64,
    /// True if it gets no new segments, and its records are moved to other devices.
    pub draining: bool,
    /// True if a write to it has failed.
    pub failed: bool,
}

impl Store {
    /// Returns the devices of tiers of several devices. Takes time proportional to the number of segments.
    pub fn devices(&self) -> Vec<TierDevice> {
        self.space.tiers().flat_map(devices_of).collect()
    }

    /// Begins to drain a device of a tier of several devices: it gets no new segments, its records are moved to the other
    /// devices, and when it is empty it is removed from the store. Until then later openings need it, and go on draining it.
    ///
    /// # Errors
    /// `Invalid` if it is no device of a tier of several, or the only one left, or if the others have no room for the records.
    /// `Closed` after a close or a failed write.
    pub async fn drain_device(&self, path: &str) -> Result<()> {
        self.space.health.check_writable()?;
        self.space.drain_device(path, self.writer.used_bytes()).await
    }
}

fn devices_of(tier: &Tier) -> Vec<TierDevice> {
    let Some(members) = tier.members() else { return Vec::new() };
    let Ok(striped) = members.striped() else { return Vec::new() };
    let mut used = vec![0; striped.positions()];
    for (slot, _) in tier.slots().in_use() {
        members.place(slot).into_iter().for_each(|place| used[place.member] += 1);
    }
    let device = |(position, path): (usize, String)| TierDevice {
        tier: tier.name().name(),
        path,
        segments_total: striped.map().slots_of(position).into(),
        segments_used: used[position],
        draining: members.is_draining(position),
        failed: striped.failure(position).is_some(),
    };
    striped.devices().into_iter().map(|(position, device)| (position, device.path())).map(device).collect()
}
