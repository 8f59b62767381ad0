//! The status document. Fields may be added but never change their meaning; missing fields have default values.

use serde::{Deserialize, Serialize};

use super::cluster::ClusterStatus;

/// Version of the document's format.
pub const FORMAT: u32 = 1;

/// Current state of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Status {
    /// Version of the document's format, [`FORMAT`].
    pub format: u32,
    /// The server's version.
    pub version: String,
    /// Identifier of this run of the server, different after every start.
    pub run_id: String,
    /// Seconds since the start.
    pub uptime_s: u64,
    /// Operations that are served.
    pub state: State,
    /// Reason why reads or writes are not served; empty if both are.
    pub reason: String,
    /// Progress of recovery while the store is opened; other fields are empty then.
    pub recovering: Option<Recovering>,
    /// Interval of the rates and latencies, in milliseconds; 0 in the first second.
    pub window_ms: u64,
    /// Events per second in the interval.
    pub rates: Rates,
    /// Fraction of lookups in the interval that were answered from memory; `None` without lookups.
    pub hit_rate: Option<f64>,
    /// Fraction of the keys requested in the interval that existed; `None` without requests.
    pub key_hit_rate: Option<f64>,
    /// Durations of calls and device operations that ended in the interval.
    pub latencies: Vec<Percentiles>,
    /// Bytes written per byte put by users.
    pub amplification: Amplification,
    /// Flash writes of the last tier's drive; `None` without the setting `drive-log`.
    pub drive: Option<Drive>,
    /// Number of keys.
    pub keys: u64,
    /// Used and available space.
    pub space: Space,
    /// Memory of the process.
    pub memory: Memory,
    /// Connections.
    pub clients: Clients,
    /// The tiers, the fast one first.
    pub tiers: Vec<Tier>,
    /// The cluster, if the server is a node of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterStatus>,
}

/// Operations that are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum State {
    /// The store is being opened.
    Recovering,
    /// Reads and writes.
    #[default]
    Serving,
    /// Reads only.
    ReadOnly,
    /// Nothing: the server stops, or the store is closed.
    Stopping,
}

/// Progress of opening the store.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Recovering {
    /// Description for humans.
    pub progress: String,
}

/// Mean number of events per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Rates {
    /// RESP commands.
    pub commands: f64,
    /// gRPC calls.
    pub grpc_calls: f64,
    /// Lookups of keys.
    pub gets: f64,
    /// Records put.
    pub puts: f64,
    /// Tombstones written.
    pub deletes: f64,
    /// Records that expired and were taken out of the index.
    pub expired: f64,
    /// Bytes received from clients.
    pub input_bytes: f64,
    /// Bytes sent to clients.
    pub output_bytes: f64,
    /// Bytes of keys and values put.
    pub user_bytes: f64,
    /// Bytes written to all tiers.
    pub written_bytes: f64,
    /// Bytes of records copied from the fast tier to the capacity tier, included in `written_bytes`.
    pub destaged_bytes: f64,
    /// Bytes of records copied within a tier, included in `written_bytes`.
    pub collected_bytes: f64,
    /// Segments freed by relocation.
    pub segments_freed: f64,
    /// Device reads for lookups.
    pub device_reads: f64,
    /// Writes that waited for free space.
    pub stalls: f64,
}

/// Latency percentiles of one kind of call or device operation, in microseconds; each at most 1/32 too high.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Percentiles {
    /// `get`, `put`, `delete`, and for each tier `fast_read`, `fast_write` and so on.
    pub name: String,
    /// Operations per second.
    pub per_s: f64,
    /// Median.
    pub p50_us: f64,
    /// 90 %.
    pub p90_us: f64,
    /// 99 %.
    pub p99_us: f64,
    /// 99.9 %.
    pub p999_us: f64,
    /// Maximum.
    pub max_us: f64,
}

/// Bytes written to all tiers per byte of keys and values that users put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Amplification {
    /// In the last second; `None` without puts.
    pub now: Option<f64>,
    /// Since the store was opened; `None` before the first put.
    pub since_open: Option<f64>,
}

/// Counters of a drive since the server's first reading. They include the writes of all users of the drive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Drive {
    /// Bytes written to its flash; `None` if not reported.
    pub flash_bytes: Option<u64>,
    /// Bytes received from hosts; `None` if not reported.
    pub host_bytes: Option<u64>,
    /// `flash_bytes` divided by `host_bytes`; `None` if no bytes were received.
    pub amplification: Option<f64>,
    /// Flash bytes per byte of keys and values that users put: the product of the write amplifications of the store and of the
    /// drive.
    pub flash_bytes_per_user_byte: Option<f64>,
    /// Error of the last reading; empty if it succeeded.
    pub error: String,
}

/// Used and available space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Space {
    /// Bytes of current records.
    pub live_bytes: u64,
    /// Bytes that users may fill.
    pub user_limit_bytes: u64,
    /// Bytes reserved, which users cannot fill.
    pub reserve_bytes: u64,
    /// Bytes that the tiers occupy on their file systems; for devices, the bytes of segments in use.
    pub disk_bytes: u64,
}

/// Memory of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Memory {
    /// Resident memory, as counted by the kernel.
    pub resident_bytes: u64,
    /// Memory of the index.
    pub index_bytes: u64,
    /// Memory of the read cache.
    pub cache_bytes: u64,
    /// Memory held by clients.
    pub client_bytes: u64,
    /// Limit of the memory held by clients.
    pub client_limit_bytes: u64,
}

/// Connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Clients {
    /// Open connections of RESP and gRPC.
    pub connected: u64,
    /// Accepted connections.
    pub accepted: u64,
    /// Connections refused because of a limit.
    pub refused: u64,
    /// Connections closed by the server.
    pub dropped: u64,
}

/// A tier.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Tier {
    /// `fast` or `capacity`.
    pub name: String,
    /// The file or device.
    pub path: String,
    /// `io_uring`, `threads` or `memory`.
    pub backend: String,
    /// Write unit in bytes.
    pub unit_bytes: u64,
    /// Length of a segment in bytes.
    pub segment_bytes: u64,
    /// Number of segments that the tier can hold.
    pub segments_total: u64,
    /// Number of free segments.
    pub segments_free: u64,
    /// Bytes of current records.
    pub live_bytes: u64,
    /// Bytes of segments in use that are not current records.
    pub dead_bytes: u64,
    /// Bytes of free segments.
    pub free_bytes: u64,
    /// Bytes occupied on the file system; for a device, the bytes of segments in use.
    pub disk_bytes: u64,
    /// Device reads per second.
    pub reads_per_s: f64,
    /// Device writes per second.
    pub writes_per_s: f64,
    /// Bytes written, by cause.
    pub written: Vec<Cause>,
    /// Map of its segments.
    pub map: Map,
}

/// Bytes written to a tier for one cause.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Cause {
    /// Name of the cause.
    pub cause: String,
    /// Since the store was opened.
    pub bytes: u64,
    /// In the last second.
    pub bytes_per_s: f64,
}

/// Segments of a tier in at most 2,048 cells, in the order of their slots on the device. Free slots after the last segment are
/// left out, except as needed to make the number of slots a power of two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Map {
    /// Number of slots in the map.
    pub segments: u64,
    /// Slots per cell; the last cell may have fewer.
    pub segments_per_cell: u64,
    /// Names of the kinds in the upper half of a cell.
    pub kinds: Vec<String>,
    /// One byte per cell, in base64: the upper four bits are the index of its kind, the lower four its live fraction, from 0 for
    /// none to 15 for all; see [`Map::decoded`].
    pub cells: String,
}
