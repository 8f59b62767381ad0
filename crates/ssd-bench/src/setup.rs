//! The drives and the configuration of the store.

use std::sync::Arc;

use esker_device::{Device, Runtime};
use esker_engine::{Compression, Durability, Options, Store};
use esker_log::TYPICAL_ENTRY_BYTES;
use esker_simulated::SimRuntime;
use esker_ssd_model::{Profile, Shape};

use crate::device::ModelDevice;
use crate::error::Error;
use crate::load::{KEY_BYTES, Load};

/// A drive profile and its scaled-down shape.
#[derive(Clone, Debug)]
pub struct ScaledDrive {
    /// The profile.
    pub profile: Profile,
    /// The scaled-down drive.
    pub shape: Shape,
    /// Number of placement handles; 0: none.
    pub handles: u8,
}

impl ScaledDrive {
    /// Returns a drive with `flash_bytes` of flash and the ratios of the profile.
    pub fn new(
        profile: Profile,
        flash_bytes: u64,
        superblock_bytes: u64,
        handles: u8,
    ) -> Result<ScaledDrive, Error> {
        let iu = u64::from(profile.iu_bytes);
        let namespace = (flash_bytes as f64 / (1.0 + profile.over_provisioning)) as u64 / iu * iu;
        let shape = Shape { superblock_bytes, ..Shape::with_raw(profile.iu_bytes, namespace, flash_bytes) };
        esker_ssd_model::Drive::new(&shape)?;
        Ok(ScaledDrive { profile, shape, handles })
    }

    /// Returns the capacity visible to the host.
    pub fn namespace_bytes(&self) -> u64 {
        self.shape.namespace_bytes
    }

    /// Returns the drive as a device, preconditioned like a used drive.
    pub(crate) fn device(&self, runtime: &SimRuntime, seed: u64) -> Result<ModelDevice, Error> {
        ModelDevice::used(runtime, &self.profile, &self.shape, self.handles, seed)
    }
}

/// Configuration of the store.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Length of a segment in bytes.
    pub segment_bytes: u64,
    /// Write unit of the capacity tier; `None`: the drive's IU.
    pub unit_bytes: Option<u64>,
    /// True if the store knows the drive's erase unit.
    pub tells_reclaim_unit: bool,
    /// Share of the capacity that users cannot fill, in percent.
    pub reserve_percent: u8,
    /// Share of the last tier's namespace that the records occupy.
    pub fill: f64,
    /// Durability of puts.
    pub durability: Durability,
    /// Memory of the store in bytes.
    pub memory_bytes: u64,
    /// Seed of all random choices.
    pub seed: u64,
}

impl Setup {
    /// Returns the number of keys with values of `value_bytes` bytes that fill the last tier.
    pub(crate) fn keys(&self, shape: &Shape, value_bytes: u64) -> u64 {
        (shape.namespace_bytes as f64 * self.fill) as u64 / record_bytes(value_bytes)
    }

    /// Opens a new store on the devices.
    pub(crate) async fn open(
        &self,
        runtime: &SimRuntime,
        fast: Option<&ModelDevice>,
        capacity: Option<(&ModelDevice, &Shape)>,
    ) -> Result<Store, Error> {
        let device = |device: &ModelDevice| -> Arc<dyn Device> { Arc::new(device.clone()) };
        let clock: Arc<dyn Runtime> = Arc::new(runtime.clone());
        let mut options = Options::devices(fast.map(device), capacity.map(|(below, _)| device(below)))
            .runtime(clock)
            .segment_bytes(self.segment_bytes)
            .reserve_percent(self.reserve_percent)
            .memory_bytes(self.memory_bytes)
            .durability(self.durability)
            .compression(Compression::Off)
            .force_format(true);
        if let Some((_, shape)) = capacity {
            options = options.indirection_unit_bytes(self.unit_bytes.unwrap_or(shape.iu_bytes.into()));
            if self.tells_reclaim_unit {
                options = options.reclaim_unit_bytes(shape.superblock_bytes);
            }
        }
        Ok(Store::open(options).await?)
    }

    /// Puts all keys, or fails if there is no room for them.
    pub(crate) async fn fill(&self, store: &Store, load: &Load<'_>, namespace: u64) -> Result<(), Error> {
        let record = record_bytes(load.value_bytes()) + TYPICAL_ENTRY_BYTES;
        let (wanted, limit) = (load.keys() * record, store.stats().user_limit_bytes);
        if wanted > limit {
            return Err(Error::TooFull { wanted, limit, namespace });
        }
        load.fill().await
    }
}

/// Returns the bytes of a record on the medium.
fn record_bytes(value_bytes: u64) -> u64 {
    (esker_log::record_bytes_max(KEY_BYTES, value_bytes as usize, false) as u64).next_multiple_of(16)
}

/// Returns a world without a step limit.
pub(crate) fn world(seed: u64) -> SimRuntime {
    let runtime = SimRuntime::new(seed);
    runtime.set_steps_max(u64::MAX);
    runtime
}
