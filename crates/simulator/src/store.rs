//! A store on devices of a simulated world.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use esker_device::{
    Device as _, DeviceKind, Fault, MemoryDevice, MemoryOptions, Operation, OperationKind, Runtime,
};
use esker_engine::{Options, Store};
use esker_simulated::SimRuntime;
use futures_util::future::Either;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::config::{Config, Tiers};
use crate::plan::{Device, DeviceFault, End, FaultKind, Interruption, OpKind};

/// Devices and runtime of a store in a simulated world.
pub struct World {
    /// Clock and task scheduler.
    pub runtime: SimRuntime,
    /// Configuration of the store.
    pub config: Config,
    /// The fast device, if any.
    pub fast: Option<MemoryDevice>,
    /// The capacity device, if any.
    pub capacity: Option<MemoryDevice>,
    /// Further devices of the tier where records stay.
    pub more: Vec<MemoryDevice>,
    staging: Option<tempfile::TempDir>,
    /// Number of the current machine boot.
    pub boots: u64,
    submissions: Arc<Submissions>,
    faults: Arc<Faults>,
}

/// Counts I/Os of all devices, and notifies when a given number is reached.
#[derive(Default)]
struct Submissions {
    awaited: Mutex<Option<(u64, oneshot::Sender<()>)>>,
}

impl Submissions {
    fn one(&self) {
        let mut awaited = self.awaited.lock();
        match awaited.take() {
            Some((0, enough)) => drop(enough.send(())),
            Some((left, enough)) => *awaited = Some((left - 1, enough)),
            None => {}
        }
    }
}

/// Outcome of the faults armed last.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    struck: AtomicBool,
    /// True if a device vanished or a flush failed: the content of the device's cache is unreliable.
    cache_lost: AtomicBool,
}

impl Faults {
    /// True if any fault struck.
    pub(crate) fn struck(&self) -> bool {
        self.struck.load(Ordering::Relaxed)
    }

    fn strike(&self, of: OpKind, what: FaultKind) -> Fault {
        self.struck.store(true, Ordering::Relaxed);
        let flush_fails = of == OpKind::Flush && matches!(what, FaultKind::Fails | FaultKind::Torn);
        if flush_fails || what == FaultKind::Vanishes {
            self.cache_lost.store(true, Ordering::Relaxed);
        }
        match what {
            FaultKind::Fails => Fault::Error(libc::EIO),
            FaultKind::NoSpace => Fault::Error(libc::ENOSPC),
            FaultKind::Torn => Fault::TornThenError(libc::EIO),
            FaultKind::Late(ms) => Fault::Late(Duration::from_millis(ms)),
            FaultKind::Lost => Fault::Lost,
            FaultKind::Misdirected(by) => Fault::Misdirected(by),
            FaultKind::Vanishes => Fault::Vanish,
        }
    }
}

impl World {
    /// A world with new devices.
    pub fn new(seed: u64, config: Config) -> World {
        let runtime = SimRuntime::new(seed);
        runtime.set_steps_max(20_000_000);
        let device = |name: &str, segments| {
            let mut options = MemoryOptions::new(config.tier_bytes(segments));
            options.path = name.to_owned();
            options.discarded = config.discarded;
            if config.grows {
                options.geometry.kind = DeviceKind::File;
                options.geometry.bytes = 0;
                options.bytes_max = config.tier_bytes(segments + config.room_segments);
            }
            esker_simulated::device(&runtime, options)
        };
        let fast = (config.tiers != Tiers::Capacity).then(|| device("fast", config.fast_segments));
        let capacity = (config.tiers != Tiers::Fast).then(|| device("capacity", config.capacity_segments));
        let more = config.more_devices.iter().enumerate();
        let more = more.map(|(number, segments)| device(&format!("further {number}"), *segments)).collect();
        let staging =
            config.staging.then(|| tempfile::tempdir_in("/dev/shm").expect("a temporary directory"));
        let world = World {
            runtime,
            config,
            fast,
            capacity,
            more,
            staging,
            boots: 1,
            submissions: Arc::default(),
            faults: Arc::default(),
        };
        world.watch();
        world
    }

    /// Counts I/Os and records them in the trace. Asserts that every write to the capacity tier consists of whole,
    /// aligned indirection units, from the first on.
    fn watch(&self) {
        let units = [(&self.fast, 1), (&self.capacity, self.config.unit_bytes)];
        let units = units.into_iter().filter_map(|(device, unit)| Some((device.as_ref()?, unit)));
        let unit_of_more = if self.capacity.is_some() { self.config.unit_bytes } else { 1 };
        for (device, unit) in units.chain(self.more.iter().map(|device| (device, unit_of_more))) {
            let (runtime, submissions) = (self.runtime.clone(), self.submissions.clone());
            device.set_observer(Box::new(move |operation: &Operation| {
                runtime.record(&[5, operation.kind as u64, operation.offset, operation.bytes]);
                submissions.one();
                if operation.kind == OperationKind::Write {
                    assert!(
                        operation.offset.is_multiple_of(unit) && operation.bytes.is_multiple_of(unit),
                        "a write of {} bytes at {} is not whole units of {unit}",
                        operation.bytes,
                        operation.offset
                    );
                }
            }));
        }
    }

    /// Arms these faults, and disarms all earlier ones.
    pub(crate) fn arm(&mut self, faults: &[DeviceFault]) {
        self.faults = Arc::default();
        for device in [&self.fast, &self.capacity].into_iter().flatten() {
            device.clear_faults();
        }
        for (name, device) in [(Device::Fast, &self.fast), (Device::Capacity, &self.capacity)] {
            let Some(device) = device else { continue };
            let mut armed: Vec<_> =
                faults.iter().filter(|fault| self.resolved(fault.device) == name).copied().collect();
            if armed.is_empty() {
                continue;
            }
            let outcome = self.faults.clone();
            device.set_faults(Box::new(move |operation| decide(&mut armed, operation, &outcome)));
        }
    }

    /// Returns the device for a name; the only device if there is just one.
    fn resolved(&self, name: Device) -> Device {
        match name {
            Device::Fast if self.fast.is_none() => Device::Capacity,
            Device::Capacity if self.capacity.is_none() => Device::Fast,
            name => name,
        }
    }

    /// Returns the outcome of the faults armed last.
    pub(crate) fn faults(&self) -> Arc<Faults> {
        self.faults.clone()
    }

    /// Returns a future that completes at the given time or I/O count, measured from now.
    pub(crate) fn interruption(&self, at: Interruption) -> impl Future<Output = ()> + use<> {
        let cut = match at {
            Interruption::At(us) => Either::Left(self.runtime.sleep(Duration::from_micros(us))),
            Interruption::Io(count) => {
                let (enough, reached) = oneshot::channel();
                *self.submissions.awaited.lock() = Some((count, enough));
                Either::Right(reached)
            }
        };
        async move {
            match cut {
                Either::Left(pause) => pause.await,
                Either::Right(reached) => drop(reached.await),
            }
        }
    }

    /// Flips a bit of a device, at a position in millionths of its size.
    pub(crate) fn rot(&self, device: Device, millionths: u64) {
        let device = match self.resolved(device) {
            Device::Fast => &self.fast,
            Device::Capacity => &self.capacity,
        };
        let Some(device) = device else { return };
        let bytes = device.geometry().bytes;
        if bytes > 0 {
            device.corrupt(u64::min(bytes / 1_000_000 * millionths, bytes - 1), 1 << (millionths % 8));
        }
    }

    /// Returns the path of the staging file, if any.
    pub fn staging_path(&self) -> Option<PathBuf> {
        self.staging.as_ref().map(|dir| dir.path().join("staging"))
    }

    /// Returns the options for opening the store.
    pub fn options(&self) -> Options {
        let config = &self.config;
        let shared = |device: &MemoryDevice| Arc::new(device.clone()) as Arc<dyn esker_device::Device>;
        let mut options =
            Options::devices(self.fast.as_ref().map(shared), self.capacity.as_ref().map(shared))
                .runtime(Arc::new(self.runtime.clone()))
                .segment_bytes(config.segment_bytes)
                .memory_bytes(config.least_memory_bytes() + config.more_memory_bytes)
                .reserve_percent(config.reserve_percent)
                .max_garbage(config.max_garbage)
                .scrub_bytes_per_s(config.scrub_bytes_per_s)
                .when_full(config.when_full)
                .durability(config.durability)
                .coalesce_for(config.coalesce_for)
                .compression(config.compression);
        let add = match config.tiers {
            Tiers::Fast => Options::add_fast_device,
            Tiers::Capacity | Tiers::Both => Options::add_capacity_device,
        };
        options = self.more.iter().map(shared).fold(options, add);
        if config.tiers != Tiers::Fast {
            options = options.indirection_unit_bytes(config.unit_bytes);
        }
        if config.grows && config.tiers != Tiers::Capacity {
            options = options.fast_limit_bytes(config.tier_bytes(config.fast_segments));
        }
        if config.grows && config.tiers != Tiers::Fast {
            options = options.capacity_limit_bytes(config.tier_bytes(config.capacity_segments));
        }
        if let Some(bits) = config.hash_bits {
            options = options.index_hash_bits(bits);
        }
        if let Some(bytes) = config.shaping_threshold_bytes {
            options = options.shaping_threshold_bytes(bytes);
        }
        if let Some(path) = self.staging_path() {
            options = options.staging(path).boot_number(self.boots);
        }
        match config.discard_after {
            Some(rest) => options.discard_after(rest),
            None => options.discard(false),
        }
    }

    /// Opens the store. Panics if that fails.
    pub fn open(&self) -> Store {
        self.runtime.run(Store::open(self.options())).expect("the store opens")
    }

    /// Simulates a power failure: drops all tasks; devices keep durable data and any part of the rest.
    pub fn power_cut(&mut self) {
        for device in [&mut self.fast, &mut self.capacity].into_iter().flatten().chain(&mut self.more) {
            *device = esker_simulated::power_cut(&self.runtime, device);
        }
        self.runtime.crash();
        self.start_machine();
        self.watch();
    }

    /// Simulates a boot of the machine: memory is lost, and with it the staging file.
    pub fn start_machine(&mut self) {
        self.boots += 1;
        if let Some(path) = self.staging_path() {
            let _ = std::fs::remove_file(path);
        }
    }

    /// Kills the process: drops its tasks; devices keep their caches. Of each submitted write any subset of its blocks
    /// is written.
    pub fn kill(&mut self) {
        for device in [&self.fast, &self.capacity].into_iter().flatten().chain(&self.more) {
            let mut random = self.runtime.fork_random();
            device.kill(&mut || random.bits());
        }
        self.kill_when_written();
    }

    /// Kills the process after everything that it had submitted is written.
    pub fn kill_when_written(&mut self) {
        self.runtime.crash_except(esker_simulated::DEVICE_TASK);
        self.runtime.run_until_idle();
    }

    /// Ends the process. Returns how it really ended: a device that had vanished or failed to flush recovers as after a
    /// power failure. After a close nothing is left to do.
    pub(crate) fn stop(&mut self, how: End) -> End {
        match how {
            End::Close => End::Close,
            End::Kill if !self.faults.cache_lost.load(Ordering::Relaxed) => {
                self.kill();
                End::Kill
            }
            End::Kill | End::PowerCut => {
                self.power_cut();
                End::PowerCut
            }
        }
    }

    /// Ends the world, including the devices' tasks.
    pub fn end(self) {
        self.runtime.crash();
    }
}

/// Returns the fault of an operation.
fn decide(armed: &mut [DeviceFault], operation: &Operation, outcome: &Faults) -> Fault {
    let of = match operation.kind {
        OperationKind::Read => OpKind::Read,
        OperationKind::Write => OpKind::Write,
        OperationKind::Flush => OpKind::Flush,
        _ => OpKind::Other,
    };
    let mut decided = Fault::None;
    for fault in armed.iter_mut().filter(|fault| fault.of == of) {
        if fault.after > 0 {
            fault.after -= 1;
        } else {
            decided = outcome.strike(of, fault.what);
            fault.after = if fault.for_ever { 0 } else { u64::MAX };
        }
    }
    decided
}
