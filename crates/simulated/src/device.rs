//! Devices of a simulated world.

use std::sync::Arc;

use esker_device::{Latency, MemoryDevice, MemoryOptions, Operation, OperationKind, WriteMode};

use crate::SimRuntime;

/// Name of the tasks in which in-memory devices complete submitted operations.
pub const DEVICE_TASK: &str = "memory device";

/// Trace event type of a device operation.
const OPERATION: u64 = 4;

/// Returns an in-memory device whose operations take (virtual) time, and so complete in any order. Its operations are
/// recorded in the world's trace, which occupies its observer.
pub fn device(runtime: &SimRuntime, mut options: MemoryOptions) -> MemoryDevice {
    if options.latency.is_none() {
        options.latency = Some(Latency::flash(Arc::new(runtime.clone())));
    }
    let device = MemoryDevice::with(options);
    observe(runtime, &device);
    device
}

/// Returns the device as found after a power failure now, in the same world. Drop the old one.
pub fn power_cut(runtime: &SimRuntime, device: &MemoryDevice) -> MemoryDevice {
    let mut random = runtime.fork_random();
    let device = device.crash(&mut || random.bits());
    observe(runtime, &device);
    device
}

fn observe(runtime: &SimRuntime, device: &MemoryDevice) {
    let runtime = runtime.clone();
    device.set_observer(Box::new(move |operation: &Operation| {
        let kind = match operation.kind {
            OperationKind::Open => 0,
            OperationKind::Read => 1,
            OperationKind::Write => 2,
            OperationKind::Flush => 3,
            OperationKind::Discard => 4,
            OperationKind::Resize => 5,
            OperationKind::Allocate => 6,
        };
        let durable = u64::from(operation.mode == WriteMode::Durable);
        runtime.record(&[OPERATION, kind << 1 | durable, operation.offset, operation.bytes]);
    }));
}

#[cfg(test)]
#[path = "device_tests.rs"]
mod tests;
