//! The drives, and the store on them.

use std::sync::Arc;

use esker_device::{Device, Runtime};
use esker_engine::{Compression, Durability, Options, Store};
use esker_log::TYPICAL_ENTRY_BYTES;
use esker_simulated::SimRuntime;
use esker_ssd_model::{Profile, Shape};

use crate::device::ModelDevice;
use crate::error::Error;
use crate::load::{KEY_BYTES, Load};

/// A drive: its profile, and what it is scaled down to.
#[derive(Clone, Debug)]
pub struct ScaledDrive {
    /// Its profile.
    pub profile: Profile,
    /// The drive, scaled down.
    pub shape: Shape,
    /// Placement handles that it has; 0: none.
    pub handles: u8,
}

impl ScaledDrive {
    /// A drive of a profile with so much flash, and the ratios of the profile.
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

    /// What the host sees.
    pub fn namespace_bytes(&self) -> u64 {
        self.shape.namespace_bytes
    }

    /// The drive as a device, after it has been in use.
    pub(crate) fn device(&self, runtime: &SimRuntime, seed: u64) -> Result<ModelDevice, Error> {
        ModelDevice::used(runtime, &self.profile, &self.shape, self.handles, seed)
    }
}

/// How the store is made.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Length of a segment.
    pub segment_bytes: u64,
    /// Write unit of the capacity tier; `None`: the drive's IU.
    pub unit_bytes: Option<u64>,
    /// Whether the store is told what the drive erases together.
    pub tells_reclaim_unit: bool,
    /// Share of the capacity that users cannot fill, in percent.
    pub reserve_percent: u8,
    /// Share of the namespace of the drive where records stay that they take.
    pub fill: f64,
    /// When a put is acknowledged.
    pub durability: Durability,
    /// Memory of the store.
    pub memory_bytes: u64,
    /// What random choices are made from.
    pub seed: u64,
}

impl Setup {
    /// How many keys fill the drive where records stay, with values of so many bytes.
    pub(crate) fn keys(&self, shape: &Shape, value_bytes: u64) -> u64 {
        (shape.namespace_bytes as f64 * self.fill) as u64 / record_bytes(value_bytes)
    }

    /// A new store on devices, of which the last is where records stay.
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

    /// Puts all keys, if there is room for them.
    pub(crate) async fn fill(&self, store: &Store, load: &Load<'_>, namespace: u64) -> Result<(), Error> {
        let record = record_bytes(load.value_bytes()) + TYPICAL_ENTRY_BYTES;
        let (wanted, limit) = (load.keys() * record, store.stats().user_limit_bytes);
        if wanted > limit {
            return Err(Error::TooFull { wanted, limit, namespace });
        }
        load.fill().await
    }
}

/// What a record takes.
fn record_bytes(value_bytes: u64) -> u64 {
    (esker_log::record_bytes_max(KEY_BYTES, value_bytes as usize, false) as u64).next_multiple_of(16)
}

/// A world in which so much may happen as there is to do.
pub(crate) fn world(seed: u64) -> SimRuntime {
    let runtime = SimRuntime::new(seed);
    runtime.set_steps_max(u64::MAX);
    runtime
}
