//! Measurements per interval, and of a whole phase.

use std::time::Duration;

use serde::Serialize;

use crate::instruments::latency::Latencies;

/// Measurements of one interval.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    pub(crate) phase: &'static str,
    /// End of the interval in seconds from the start of the phase.
    pub(crate) at_s: f64,
    pub(crate) operations_per_s: f64,
    pub(crate) gets_per_s: f64,
    pub(crate) puts_per_s: f64,
    pub(crate) get_p50_us: f64,
    pub(crate) get_p99_us: f64,
    pub(crate) get_p999_us: f64,
    pub(crate) get_max_us: f64,
    pub(crate) put_p50_us: f64,
    pub(crate) put_p99_us: f64,
    pub(crate) put_p999_us: f64,
    pub(crate) put_max_us: f64,
    pub(crate) delete_max_us: f64,
    pub(crate) resident_bytes: u64,
    pub(crate) free_segments: u64,
    pub(crate) live_bytes: u64,
    pub(crate) wa_per_user_byte: f64,
    pub(crate) segments_freed: u64,
    pub(crate) stall_us: u64,
    pub(crate) refused: u64,
}

/// Measurements of a phase.
#[derive(Clone, Debug)]
pub(crate) struct Phase {
    pub(crate) keys: u64,
    pub(crate) took: Duration,
    pub(crate) operations: u64,
    pub(crate) cpu_us_per_operation: f64,
    pub(crate) samples: Vec<Sample>,
    pub(crate) latencies: [(&'static str, Latencies); 3],
    pub(crate) segments_freed: u64,
    pub(crate) refused: u64,
    pub(crate) longest_put: LongestPut,
}

/// The longest put of an interval, and the device's longest operation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LongestPut {
    pub(crate) put_ms: f64,
    /// The longest read or write of the device in this interval and in the previous one, in which the put
    /// may have started. The store measures it, so the wait in the store's I/O scheduler is included.
    pub(crate) device_ms: f64,
}

impl LongestPut {
    /// Returns the time by which the put exceeds the device operation.
    pub(crate) fn more_ms(&self) -> f64 {
        self.put_ms - self.device_ms
    }
}

/// Finds the put that exceeds its device operation by most, interval by interval.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BesideDevice {
    pub(crate) worst: LongestPut,
    /// The device's longest operation in the previous interval.
    before_ms: f64,
}

impl BesideDevice {
    /// Adds an interval's longest put and longest device operation.
    pub(crate) fn interval(&mut self, put_ms: f64, device_ms: f64) {
        let put = LongestPut { put_ms, device_ms: device_ms.max(self.before_ms) };
        let worse = self.worst.put_ms == 0.0 || put.more_ms() > self.worst.more_ms();
        if put_ms > 0.0 && worse {
            self.worst = put;
        }
        self.before_ms = device_ms;
    }
}

impl Phase {
    /// Returns the operations per second.
    pub(crate) fn rate(&self) -> f64 {
        self.operations as f64 / self.took.as_secs_f64()
    }
}
