//! A store on devices whose counters the measurement can read.

use std::path::PathBuf;
use std::sync::Arc;

use esker_device::{Device, OpenOptions, Runtime, Threads};
use esker_engine::{Options, Store};
use esker_log::Superblock;

use super::account::Account;
use super::failure::{Failure, Result};
use super::ram::RamDevice;

/// Write unit of the fast tier in bytes.
const PAGE_BYTES: u64 = 4096;
/// Number of threads for the store's background work: the store's own default.
const BACKGROUND_THREADS: usize = 2;

/// Names of the files of a store in a directory.
const FILES: [&str; 3] = ["fast", "capacity", "staging"];

/// The place and the sizes of a store's tiers.
#[derive(Clone, Debug)]
pub(crate) struct Tiers {
    /// Directory of the files; `None` for memory.
    pub(crate) dir: Option<PathBuf>,
    /// Bytes of segments of the fast tier; `None` without this tier.
    pub(crate) fast_bytes: Option<u64>,
    /// Bytes of segments of the capacity tier.
    pub(crate) capacity_bytes: u64,
    /// Indirection unit of the capacity tier in bytes.
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
    /// Opens a new store on new devices; `configure` sets the options other than the tiers.
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

    /// Returns the bytes written so far, by cause.
    pub(crate) fn account(&self) -> Account {
        Account::of(&self.store.stats(), self.fast.as_deref(), &*self.capacity)
    }
}

impl Tiers {
    /// Removes the files of a closed store.
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
                "{} already exists; give a directory without a store, so that the measurements are of this run only",
                path.display()
            )));
        }
        let (device, warnings) = esker_device::open(OpenOptions::new(&path).create(true))?;
        warnings.iter().for_each(|warning| eprintln!("{warning}"));
        Ok(device)
    }
}
