//! What was measured: interval by interval, and of a whole phase.

use std::time::Duration;

use serde::Serialize;

use crate::instruments::latency::Latencies;

/// One interval.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    pub(crate) phase: &'static str,
    /// When it ended, from the start of the phase.
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

/// A phase that is over.
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
    /// What the device took at most for a read or a write since the load began.
    pub(crate) longest_of_device: Duration,
}

impl Phase {
    /// Operations a second.
    pub(crate) fn rate(&self) -> f64 {
        self.operations as f64 / self.took.as_secs_f64()
    }
}
