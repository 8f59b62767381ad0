//! Operation counters of a device, with relaxed atomics: each figure is exact, but several figures are not from one
//! instant.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Totals since the device was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Reads submitted.
    pub reads: u64,
    /// Bytes of those reads.
    pub read_bytes: u64,
    /// Writes submitted.
    pub writes: u64,
    /// Bytes of those writes.
    pub write_bytes: u64,
    /// Flushes submitted. A durable write does not count as one.
    pub flushes: u64,
    /// Discards submitted.
    pub discards: u64,
    /// Bytes of those discards.
    pub discard_bytes: u64,
    /// Operations submitted and not yet completed.
    pub in_flight: u64,
    /// System calls that submitted or waited (io_uring), or operations handed to a thread.
    pub submit_calls: u64,
}

impl DeviceCounters {
    /// Operations submitted: reads, writes, flushes and discards.
    pub fn submitted(&self) -> u64 {
        self.reads + self.writes + self.flushes + self.discards
    }

    /// Returns how many of them have completed, provided that no other operation (a resize) is in flight.
    pub fn completed(&self) -> u64 {
        self.submitted().saturating_sub(self.in_flight)
    }

    /// Returns the sums of the counters of two devices.
    pub(crate) fn plus(self, other: DeviceCounters) -> DeviceCounters {
        DeviceCounters {
            reads: self.reads + other.reads,
            read_bytes: self.read_bytes + other.read_bytes,
            writes: self.writes + other.writes,
            write_bytes: self.write_bytes + other.write_bytes,
            flushes: self.flushes + other.flushes,
            discards: self.discards + other.discards,
            discard_bytes: self.discard_bytes + other.discard_bytes,
            in_flight: self.in_flight + other.in_flight,
            submit_calls: self.submit_calls + other.submit_calls,
        }
    }
}

#[derive(Default)]
pub(crate) struct Counters {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    write_bytes: AtomicU64,
    flushes: AtomicU64,
    discards: AtomicU64,
    discard_bytes: AtomicU64,
    in_flight: AtomicU64,
    submit_calls: AtomicU64,
}

impl Counters {
    pub(crate) fn read(&self, bytes: usize) {
        self.reads.fetch_add(1, Relaxed);
        self.read_bytes.fetch_add(bytes as u64, Relaxed);
        self.in_flight.fetch_add(1, Relaxed);
    }

    pub(crate) fn write(&self, bytes: usize) {
        self.writes.fetch_add(1, Relaxed);
        self.write_bytes.fetch_add(bytes as u64, Relaxed);
        self.in_flight.fetch_add(1, Relaxed);
    }

    pub(crate) fn flush(&self) {
        self.flushes.fetch_add(1, Relaxed);
        self.in_flight.fetch_add(1, Relaxed);
    }

    pub(crate) fn discard(&self, bytes: u64) {
        self.discards.fetch_add(1, Relaxed);
        self.discard_bytes.fetch_add(bytes, Relaxed);
        self.in_flight.fetch_add(1, Relaxed);
    }

    /// Counts a resize or an allocation as in flight.
    pub(crate) fn resize(&self) {
        self.in_flight.fetch_add(1, Relaxed);
    }

    pub(crate) fn completed(&self) {
        let before = self.in_flight.fetch_sub(1, Relaxed);
        assert!(before > 0, "more operations completed than were submitted");
    }

    pub(crate) fn submit_call(&self) {
        self.submit_calls.fetch_add(1, Relaxed);
    }

    pub(crate) fn snapshot(&self) -> DeviceCounters {
        DeviceCounters {
            reads: self.reads.load(Relaxed),
            read_bytes: self.read_bytes.load(Relaxed),
            writes: self.writes.load(Relaxed),
            write_bytes: self.write_bytes.load(Relaxed),
            flushes: self.flushes.load(Relaxed),
            discards: self.discards.load(Relaxed),
            discard_bytes: self.discard_bytes.load(Relaxed),
            in_flight: self.in_flight.load(Relaxed),
            submit_calls: self.submit_calls.load(Relaxed),
        }
    }
}
