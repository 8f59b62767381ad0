//! Devices of a simulated world.

use std::sync::Arc;

use esker_device::{Latency, MemoryDevice, MemoryOptions, Operation, OperationKind, WriteMode};

use crate::SimRuntime;

/// What the tasks are called in which in-memory devices finish what was submitted to them.
pub const DEVICE_TASK: &str = "memory device";

/// Begins a device operation in the trace.
const OPERATION: u64 = 4;

/// An in-memory device whose operations take (virtual) time, and so complete in any order. What is submitted to it
/// becomes part of the world's trace; its observer is taken by that.
pub fn device(runtime: &SimRuntime, mut options: MemoryOptions) -> MemoryDevice {
    if options.latency.is_none() {
        options.latency = Some(Latency::flash(Arc::new(runtime.clone())));
    }
    let device = MemoryDevice::with(options);
    observe(runtime, &device);
    device
}

/// The device as a power cut now leaves it, part of the same world. The old one should be let go of.
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
