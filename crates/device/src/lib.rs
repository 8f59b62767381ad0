//! Block devices for Esker: the device trait ([`Device`], [`Geometry`]), memory that a kernel can read and write
//! ([`Buffer`], [`SegmentBuffer`]), the backends (io_uring, a thread pool, memory with injected faults), and
//! [`Runtime`], the one trait through which the engine reaches clock, randomness and task spawning.
//!
//! All I/O to a medium goes through [`Device`]. This crate knows nothing of records.
//!
//! Rules that hold for every backend:
//!
//! * An operation owns its buffer and its file until it completes; dropping a [`Pending`] frees neither.
//! * An operation succeeds as a whole or fails; the backend completes short transfers itself.
//! * A failed flush is never retried. Behind a [`FailStop`], every later flush fails as well.
//! * A device without operations in flight uses no processor time.

mod allocator;
mod array;
mod block_on;
mod buffer;
mod clock;
mod counters;
mod device;
mod error;
mod fail_stop;
mod file;
mod geometry;
mod lock;
mod memory;
mod open;
mod overlay;
mod pending;
mod private;
mod probe;
mod read_only;
mod runtime;
mod runtime_threads;
mod segment_buffer;
mod signature;
mod split_writes;
mod striped;
mod threads;
#[cfg(target_os = "linux")]
mod uring;
mod wake;

pub use allocator::give_back_freed_memory;
pub use array::{Array, ArrayUnit, Level};
pub use block_on::{block_on, outside_block_on};
pub use buffer::{BUFFER_ALIGNMENT, Buffer};
pub use clock::Clock;
pub use counters::DeviceCounters;
pub use device::{Device, PlacementHandle, Source, WriteMode};
pub use error::{DeviceError, OperationKind, Shortage};
pub use fail_stop::FailStop;
pub use geometry::{DeviceKind, Geometry};
pub use memory::{Discarded, Fault, Latency, MemoryDevice, MemoryOptions, Operation};
pub use open::{Backend, Direct, OpenOptions, open};
pub use overlay::Overlay;
pub use pending::Pending;
pub use private::{PrivateFile, make_directory};
pub use probe::{FileSystem, UNIT_BYTES_MAX, file_system, is_indirection_unit, reported_unit_bytes};
pub use read_only::{ReadAt, ReadOnlyFile};
pub use runtime::{Runtime, Task};
pub use runtime_threads::{Threads, catching};
pub use segment_buffer::{Appender, SegmentBuffer};
pub use signature::{FORMAT_MARK, RESTORE_MARK, SIGNATURE_BYTES, UNFINISHED_RESTORE, foreign_signature};
pub use striped::{SlotPlace, StripeMap, Striped, StripedReader, stripes_for};
#[cfg(target_os = "linux")]
pub use uring::try_uring;
pub use wake::wake;
