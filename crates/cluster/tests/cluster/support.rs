//! Stores on devices of a simulated world.

use std::sync::Arc;

use esker_device::{Device, MemoryDevice, MemoryOptions, Runtime};
use esker_engine::{GroupLog, Options, Store};
use esker_simulated::SimRuntime;

pub(crate) const SEGMENT_BYTES: u64 = 64 << 10;
/// Segments of each tier.
const SEGMENTS: u64 = 48;

/// The tiers of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tiers {
    Fast,
    Both,
}

/// The devices of a store.
#[derive(Clone)]
pub(crate) struct Devices {
    pub(crate) fast: MemoryDevice,
    pub(crate) capacity: Option<MemoryDevice>,
    log_segments: u32,
}

impl Devices {
    pub(crate) fn new(world: &SimRuntime, tiers: Tiers, log_segments: u32) -> Devices {
        let device = |name: &str| {
            let mut options = MemoryOptions::new((2 << 20) + SEGMENTS * SEGMENT_BYTES);
            options.path = name.to_owned();
            esker_simulated::device(world, options)
        };
        let capacity = (tiers == Tiers::Both).then(|| device("capacity"));
        Devices { fast: device("fast"), capacity, log_segments }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &MemoryDevice> {
        std::iter::once(&self.fast).chain(&self.capacity)
    }

    /// Returns the devices as found after a power failure now.
    pub(crate) fn power_cut(&self, world: &SimRuntime) -> Devices {
        let cut = |device: &MemoryDevice| esker_simulated::power_cut(world, device);
        Devices {
            fast: cut(&self.fast),
            capacity: self.capacity.as_ref().map(cut),
            log_segments: self.log_segments,
        }
    }

    /// Returns the options of a store on these devices that is no member of a cluster.
    pub(crate) fn options_alone(&self, runtime: Arc<dyn Runtime>) -> Options {
        let shared = |device: &MemoryDevice| Arc::new(device.clone()) as Arc<dyn Device>;
        let options = Options::devices(Some(shared(&self.fast)), self.capacity.as_ref().map(shared))
            .runtime(runtime)
            .segment_bytes(SEGMENT_BYTES)
            .memory_bytes(40 << 20)
            .scrub_bytes_per_s(0)
            .discard(false);
        if self.capacity.is_some() { options.indirection_unit_bytes(4096) } else { options }
    }

    pub(crate) fn options(&self, runtime: Arc<dyn Runtime>) -> Options {
        self.options_alone(runtime).group_log_segments(self.log_segments)
    }

    /// Opens the store. Panics if that fails.
    pub(crate) async fn open(&self, runtime: Arc<dyn Runtime>) -> (Store, GroupLog) {
        let store = Store::open(self.options(runtime)).await.expect("the store opens");
        let log = store.group_log().expect("it has a log");
        (store, log)
    }
}

/// Damages the record with a value in a sealed segment of a store. The same bytes are in the log of the group, where damage is not
/// meant.
pub(crate) async fn damage_value(store: &Store, devices: &Devices, value: &[u8]) {
    let before = store.verify().await.expect("it is open").damages;
    for device in devices.all() {
        let bytes = device.snapshot();
        let places = bytes.windows(64).enumerate().filter(|(_, window)| *window == &value[..64]);
        for (at, _) in places {
            device.corrupt(at as u64, 0x55);
            if store.verify().await.expect("it is open").damages > before {
                return;
            }
            device.corrupt(at as u64, 0x55);
        }
    }
    panic!("no sealed segment has the record");
}
