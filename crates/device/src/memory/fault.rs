//! Faults to inject into an in-memory device, and the operations that it reports to observers.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::{Geometry, OperationKind, Runtime, WriteMode};

/// An operation at submission, as fault plans and observers see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    /// Read, write, flush, discard, allocate or resize.
    pub kind: OperationKind,
    /// Byte offset on the device; 0 for a flush or a resize.
    pub offset: u64,
    /// Length in bytes; 0 for a flush, the new size for a resize.
    pub bytes: u64,
    /// Mode of a write; [`WriteMode::Plain`] for everything else.
    pub mode: WriteMode,
    /// Number of operations submitted before this one.
    pub index: u64,
}

/// The fault that an operation suffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No fault.
    None,
    /// The operation fails with this error number and changes nothing. After a failed flush, no later flush makes the
    /// writes durable that it should have covered.
    Error(i32),
    /// A write reaches the medium in part and then fails with this error number. Like `Error` for everything else.
    TornThenError(i32),
    /// The operation is acknowledged without effect: a lost write, or a flush that lies. A read returns zeros.
    Lost,
    /// A write lands this many bytes beyond its offset (wrapping at the end of the device), and a read reads from
    /// there. Other operations are unaffected.
    Misdirected(u64),
    /// The operation takes this much longer. Only for devices with [`MemoryOptions::latency`].
    Late(Duration),
    /// The device vanishes: this and every later operation fails with ENODEV.
    Vanish,
}

/// Content of a discarded range. All of these are legal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discarded {
    /// Zeros.
    #[default]
    Zeros,
    /// The previous content.
    Stale,
    /// Random bytes.
    Noise,
}

/// Duration of operations. Each operation draws its own from the range of its kind, so operations complete in any
/// order.
#[derive(Clone)]
pub struct Latency {
    /// The source of time and randomness.
    pub runtime: Arc<dyn Runtime>,
    /// Range for reads.
    pub read: Range<Duration>,
    /// Range for writes, durable or not.
    pub write: Range<Duration>,
    /// Range for flushes, discards, allocations and resizes.
    pub flush: Range<Duration>,
}

impl Latency {
    /// Reads of 60 to 120 µs, writes of 10 to 40 µs, flushes of 50 to 500 µs.
    pub fn flash(runtime: Arc<dyn Runtime>) -> Latency {
        let range = |from, to| Duration::from_micros(from)..Duration::from_micros(to);
        Latency { runtime, read: range(60, 120), write: range(10, 40), flush: range(50, 500) }
    }

    pub(super) fn draw(&self, kind: OperationKind) -> Duration {
        let range = match kind {
            OperationKind::Read => &self.read,
            OperationKind::Write => &self.write,
            _ => &self.flush,
        };
        let width = range.end.saturating_sub(range.start).as_nanos() as u64;
        range.start + Duration::from_nanos(if width == 0 { 0 } else { self.runtime.random() % width })
    }
}

/// Options of an in-memory device.
#[derive(Clone)]
pub struct MemoryOptions {
    /// Any geometry that a real device could have.
    pub geometry: Geometry,
    /// Name for messages.
    pub path: String,
    /// Maximum size in bytes for [`Device::resize`](crate::Device::resize).
    pub bytes_max: u64,
    /// Latencies. `None`: operations complete during submission.
    pub latency: Option<Latency>,
    /// Content of a discarded range.
    pub discarded: Discarded,
    /// Seed for torn writes ([`Fault::TornThenError`]) and noise.
    pub seed: u64,
}

impl MemoryOptions {
    /// Returns the options of a device of `bytes` bytes with the geometry of [`Geometry::memory`] that can grow without
    /// limit.
    pub fn new(bytes: u64) -> MemoryOptions {
        MemoryOptions {
            geometry: Geometry::memory(bytes),
            path: "memory".to_owned(),
            bytes_max: u64::MAX,
            latency: None,
            discarded: Discarded::Zeros,
            seed: 0,
        }
    }
}

/// SplitMix64: good enough for tearing writes.
pub(super) fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
