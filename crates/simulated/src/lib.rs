//! A deterministic world for Esker: the engine's own code on a virtual clock, with a task order drawn from a seed and
//! devices that are slow, fail and lose power.
//!
//! * [`SimRuntime`] implements the engine's [`Runtime`](esker_device::Runtime) on one thread.
//! * [`SimNode`] is one of several machines in a world; it crashes by itself.
//! * [`device`] makes in-memory devices that use its clock.
//! * [`SimRuntime::trace`] is a hash of all decisions: two runs of one seed must agree on it.
//!
//! Nothing here reads the real clock, the process or another source of randomness.

mod device;
mod node;
mod random;
mod runtime;
mod trace;

pub use device::{DEVICE_TASK, device, power_cut};
pub use node::SimNode;
pub use random::Random;
pub use runtime::SimRuntime;
