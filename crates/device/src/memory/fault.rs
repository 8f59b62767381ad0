//! What an in-memory device can be told to do wrong, and what it tells of what it does.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::{Geometry, OperationKind, Runtime, WriteMode};

/// An operation, as fault plans and observers see it when it is submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    /// Read, write, flush, discard, allocate or resize.
    pub kind: OperationKind,
    /// Where on the device; 0 for a flush or a resize.
    pub offset: u64,
    /// How many bytes; 0 for a flush, the new size for a resize.
    pub bytes: u64,
    /// How a write was asked for; [`WriteMode::Plain`] for everything else.
    pub mode: WriteMode,
    /// How many operations were submitted before this one.
    pub index: u64,
}

/// What happens to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// What was asked for.
    None,
    /// It fails with this error number and changes nothing. After a failed flush, no later flush makes durable what
    /// this one should have.
    Error(i32),
    /// A write reaches the medium in part and then fails with this error number. Like `Error` for everything else.
    TornThenError(i32),
    /// It is acknowledged and nothing happens: a lost write, a flush that lies. A read returns zeros.
    Lost,
    /// A write lands this many bytes away from where it was meant to (wrapping at the end of the device), a read reads
    /// from there. Everything else happens as asked.
    Misdirected(u64),
    /// It takes so much longer than it would.
    Late(Duration),
    /// The device vanishes: this and every later operation fails with ENODEV.
    Vanish,
}

/// What a discarded range reads as. All of these are legal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discarded {
    /// Zeros.
    #[default]
    Zeros,
    /// What it held before.
    Stale,
    /// Bytes that nobody wrote.
    Noise,
}

/// How long operations take. Each takes a random time of its own from the range of its kind, so they complete in any
/// order.
#[derive(Clone)]
pub struct Latency {
    /// Where time passes and randomness comes from.
    pub runtime: Arc<dyn Runtime>,
    /// Of a read.
    pub read: Range<Duration>,
    /// Of a write, durable or not.
    pub write: Range<Duration>,
    /// Of a flush, a discard, an allocation or a resize.
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

/// What kind of in-memory device to make.
#[derive(Clone)]
pub struct MemoryOptions {
    /// Anything that a real device could have.
    pub geometry: Geometry,
    /// What to call it in messages.
    pub path: String,
    /// How large [`Device::resize`](crate::Device::resize) can make it.
    pub bytes_max: u64,
    /// Without it, operations complete while they are submitted.
    pub latency: Option<Latency>,
    /// What a discarded range reads as.
    pub discarded: Discarded,
    /// Decides how writes are torn by [`Fault::TornThenError`] and what noise looks like.
    pub seed: u64,
}

impl MemoryOptions {
    /// A device of `bytes` bytes with the geometry of [`Geometry::memory`], that can grow without limit.
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

/// SplitMix64: enough randomness for tearing writes.
pub(super) fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
