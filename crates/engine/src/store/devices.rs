//! Devices of a store whose tiers have several.

use std::path::Path;
use std::sync::Arc;

use esker_device::Device;
use esker_log::Tier as TierName;

use crate::base::error::{Error, Result};
use crate::open::adding;
use crate::open::devices::open_path;
use crate::segments::tier::Tier;
use crate::store::handle::Store;

/// A device of a tier of several devices.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
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
    /// The write or flush that failed and ended all writing to it, if one has.
    pub failure: Option<String>,
}

impl TierDevice {
    /// Returns `in use`, `draining` or `failed`.
    pub fn state(&self) -> &'static str {
        match (&self.failure, self.draining) {
            (Some(_), _) => "failed",
            (None, true) => "draining",
            (None, false) => "in use",
        }
    }
}

impl Store {
    /// Returns the devices of tiers of several devices.
    pub fn devices(&self) -> Vec<TierDevice> {
        self.space.tiers().flat_map(devices_of).collect()
    }

    /// Adds a block device, or a file of its full length, to a tier of several devices. It must be blank: its start must be
    /// zeros. Segments are written to it from then on, and later openings need it.
    ///
    /// # Errors
    /// `Invalid` if the tier has only one device, or if the device is not blank, too short, or one too many. `Io` if it cannot be
    /// written to; then the store is as before, unless a device that it had failed meanwhile. `Closed` after a close or a failed write.
    pub async fn add_device(&self, tier: TierName, path: impl AsRef<Path>) -> Result<()> {
        let (access, path) = (self.access, path.as_ref().to_owned());
        let slots_max = self.slots_max();
        self.finish("add device", move |writer| async move {
            if std::fs::metadata(&path).is_err() {
                let path = path.display();
                return Err(Error::invalid(format!("{path} cannot be added: no device or file is there")));
            }
            let device = open_path(access, &path, false)?;
            adding::add_device(&writer.space, tier, device, slots_max).await
        })
        .await
    }

    /// As [`add_device`](Self::add_device), with a device that the caller opened.
    ///
    /// # Errors
    /// As there.
    pub async fn add_opened_device(&self, tier: TierName, device: Arc<dyn Device>) -> Result<()> {
        let slots_max = self.slots_max();
        self.finish("add device", move |writer| async move {
            adding::add_device(&writer.space, tier, device, slots_max).await
        })
        .await
    }

    fn slots_max(&self) -> u32 {
        u32::try_from(self.catalog.packing.slots_max()).unwrap_or(u32::MAX)
    }

    /// Begins to drain a device of a tier of several devices: it gets no new segments, its records are moved to the other
    /// devices, and when it is empty it is removed from the store. Until then later openings need it, and go on draining it.
    ///
    /// # Errors
    /// `Invalid` if it is no device of a tier of several, or the only one left, or if the others have no room for the records.
    /// `Closed` after a close or a failed write.
    pub async fn drain_device(&self, path: &str) -> Result<()> {
        let path = path.to_owned();
        self.finish("drain device", |writer| async move {
            writer.space.drain_device(&path, writer.used_bytes()).await
        })
        .await
    }
}

fn devices_of(tier: &Tier) -> Vec<TierDevice> {
    let Some(members) = tier.members() else { return Vec::new() };
    let Ok(striped) = members.striped() else { return Vec::new() };
    let device = |(position, path): (usize, String)| {
        let (total, used) = tier.allocation(|slots| (slots.total_of(position), slots.in_use(position)));
        TierDevice {
            tier: tier.name().name(),
            path,
            segments_total: total.into(),
            segments_used: used.into(),
            draining: members.is_draining(position),
            failure: striped.failure(position).map(|error| error.to_string()),
        }
    };
    striped.devices().into_iter().map(|(position, device)| (position, device.path())).map(device).collect()
}
