//! Tiers of several devices in memory: the devices, a store on them, and their failures.

use std::sync::Arc;

use esker::device::{Fault, MemoryDevice, MemoryOptions, OperationKind};
use esker::{Blocking, Device, Options};
use esker_simulated::Random;
use parking_lot::Mutex;

pub(crate) const SEGMENT: u64 = 64 << 10;
pub(crate) const HEAD: u64 = 1 << 20;

pub(crate) const WRITES: &[OperationKind] = &[OperationKind::Write, OperationKind::Flush];
pub(crate) const EVERYTHING: &[OperationKind] =
    &[OperationKind::Write, OperationKind::Flush, OperationKind::Read];

/// Returns the options of a device named `name` with room for `slots` segments.
pub(crate) fn options_of(name: &str, slots: u64) -> MemoryOptions {
    MemoryOptions { path: name.to_owned(), ..MemoryOptions::new(HEAD + slots * SEGMENT) }
}

pub(crate) fn device(name: &str, slots: u64) -> MemoryDevice {
    MemoryDevice::with(options_of(name, slots))
}

pub(crate) fn shared(device: &MemoryDevice) -> Arc<dyn Device> {
    Arc::new(device.clone())
}

/// Returns the options of a store with segments of [`SEGMENT`] bytes.
pub(crate) fn short_segments(options: Options) -> Options {
    options.segment_bytes(SEGMENT).indirection_unit_bytes(4096).memory_bytes(64 << 20)
}

/// Returns the options of a store with a capacity tier on these devices.
pub(crate) fn on(devices: &[MemoryDevice]) -> Options {
    let first = Options::devices(None, Some(shared(&devices[0])));
    short_segments(
        devices[1..].iter().fold(first, |options, device| options.add_capacity_device(shared(device))),
    )
}

pub(crate) fn open(options: Options) -> Blocking {
    Blocking::open(options).expect("the store opens")
}

/// Returns the error of an opening.
pub(crate) fn refusal(options: Options) -> String {
    match Blocking::open(options) {
        Ok(_) => panic!("the store opened"),
        Err(error) => error.to_string(),
    }
}

/// Returns the value of a version of a key, of 900 to 2,700 bytes.
pub(crate) fn value(key: u64, version: u64) -> Vec<u8> {
    let mut value = vec![0; 900 + (key % 7) as usize * 300];
    let seed = (key << 32 | version).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    value.chunks_mut(8).for_each(|word| word.copy_from_slice(&seed.to_le_bytes()[..word.len()]));
    value
}

/// Makes operations of these kinds fail after `after` of them.
pub(crate) fn fail(device: &MemoryDevice, kinds: &'static [OperationKind], after: u64) {
    let left = Mutex::new(after);
    device.set_faults(Box::new(move |operation| {
        let mut left = left.lock();
        match kinds.contains(&operation.kind) {
            true if *left == 0 => Fault::Error(libc::EIO),
            true => {
                *left -= 1;
                Fault::None
            }
            false => Fault::None,
        }
    }));
}

/// Returns the devices as a power failure leaves them.
pub(crate) fn crashed(devices: &[MemoryDevice], seed: u64) -> Vec<MemoryDevice> {
    let mut random = Random::new(seed);
    devices.iter().map(|device| device.crash(&mut || random.bits())).collect()
}
