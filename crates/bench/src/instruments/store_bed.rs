//! A store on devices that the measurement also sees from below.

use std::path::PathBuf;
use std::sync::Arc;

use esker_device::{Device, OpenOptions, Runtime, Threads};
use esker_engine::{Options, Store};
use esker_log::Superblock;

use super::account::Account;
use super::failure::{Failure, Result};
use super::ram::RamDevice;

/// Write unit of the fast tier.
const PAGE_BYTES: u64 = 4096;
/// Threads for the store's background work, as many as it would make itself.
const BACKGROUND_THREADS: usize = 2;

/// What files a store in a directory has.
const FILES: [&str; 3] = ["fast", "capacity", "staging"];

/// Where the tiers of a store lie, and how large they are.
#[derive(Clone, Debug)]
pub(crate) struct Tiers {
    /// A directory for files; memory if there is none.
    pub(crate) dir: Option<PathBuf>,
    /// Bytes of segments of the fast tier; none without it.
    pub(crate) fast_bytes: Option<u64>,
    /// Bytes of segments of the capacity tier.
    pub(crate) capacity_bytes: u64,
    /// Its indirection unit.
    pub(crate) unit_bytes: u64,
}

/// An open store with its devices and its runtime.
pub(crate) struct Bed {
    pub(crate) store: Store,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) fast: Option<Arc<dyn Device>>,
    pub(crate) capacity: Arc<dyn Device>,
}

impl Bed {
    /// Opens a new store on new devices; `configure` sets what is not about tiers.
    pub(crate) async fn make(tiers: &Tiers, configure: impl FnOnce(Options) -> Options) -> Result<Bed> {
        let runtime: Arc<dyn Runtime> = Threads::new(BACKGROUND_THREADS)
            .map_err(|error| Failure::failed("threads for background work", error))?;
        // Superblocks lie before the segments.
        let fast_bytes = tiers.fast_bytes.map(|bytes| bytes + Superblock::data_offset_for(PAGE_BYTES));
        let capacity_bytes = tiers.capacity_bytes + Superblock::data_offset_for(tiers.unit_bytes);
        let fast = fast_bytes.map(|bytes| tiers.device("fast", bytes)).transpose()?;
        let capacity = tiers.device("capacity", capacity_bytes)?;
        let mut options = Options::devices(fast.clone(), Some(capacity.clone()))
            .runtime(runtime.clone())
            .indirection_unit_bytes(tiers.unit_bytes)
            .capacity_limit_bytes(capacity_bytes);
        if let Some(bytes) = fast_bytes {
            options = options.fast_limit_bytes(bytes);
        }
        if let Some(dir) = &tiers.dir {
            options = options.staging(dir.join("staging.esker"));
        }
        let store = Store::open(configure(options)).await?;
        Ok(Bed { store, runtime, fast, capacity })
    }

    /// What was written so far, and what for.
    pub(crate) fn account(&self) -> Account {
        Account::of(&self.store.stats(), self.fast.as_deref(), &*self.capacity)
    }
}

impl Tiers {
    /// Removes the files that a closed store was kept in.
    pub(crate) fn remove_files(&self) -> Result<()> {
        let Some(dir) = &self.dir else { return Ok(()) };
        for name in FILES.map(|name| dir.join(format!("{name}.esker"))).iter().filter(|path| path.exists()) {
            std::fs::remove_file(name)
                .map_err(|error| Failure::failed(&format!("removing {}", name.display()), error))?;
        }
        Ok(())
    }

    fn device(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>> {
        let Some(dir) = &self.dir else {
            return Ok(Arc::new(RamDevice::new(name, bytes)));
        };
        let path = dir.join(format!("{name}.esker"));
        if path.exists() {
            return Err(Failure::usage(format!(
                "{} is there already; give a directory without a store, so that the figures are of this run alone",
                path.display()
            )));
        }
        let (device, warnings) = esker_device::open(OpenOptions::new(&path).create(true))?;
        warnings.iter().for_each(|warning| eprintln!("{warning}"));
        Ok(device)
    }
}
