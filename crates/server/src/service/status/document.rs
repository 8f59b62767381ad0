//! The document. Fields are added and never change their meaning; one that is not there is its default.

use serde::{Deserialize, Serialize};

/// The form of the document.
pub const FORMAT: u32 = 1;

/// What a server does right now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Status {
    /// The form of the document, [`FORMAT`].
    pub format: u32,
    /// The server's version.
    pub version: String,
    /// Differs from start to start.
    pub run_id: String,
    /// Since the start.
    pub uptime_s: u64,
    /// What is served.
    pub state: State,
    /// Why reads or writes are not served; empty if both are.
    pub reason: String,
    /// How far recovery is, while the store is being opened; there is nothing else then.
    pub recovering: Option<Recovering>,
    /// Length of the time that the rates and latencies are of; 0 in the first second.
    pub window_ms: u64,
    /// What happened in that time.
    pub rates: Rates,
    /// Share of the look-ups in that time that were answered from memory; none if there were none.
    pub hit_rate: Option<f64>,
    /// Share of the keys that clients asked for in that time that were there; none if they asked for none.
    pub key_hit_rate: Option<f64>,
    /// How long calls and device operations took that ended in that time.
    pub latencies: Vec<Percentiles>,
    /// Bytes written for each byte that users put.
    pub amplification: Amplification,
    /// What the drive of the last tier wrote to its flash; none unless one is named (the setting `drive-log`).
    pub drive: Option<Drive>,
    /// Keys.
    pub keys: u64,
    /// What is stored, and what could be.
    pub space: Space,
    /// Memory of the process.
    pub memory: Memory,
    /// Who is connected.
    pub clients: Clients,
    /// The tiers, the fast one first.
    pub tiers: Vec<Tier>,
}

/// What is served.
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

/// How far the opening of the store is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Recovering {
    /// In words.
    pub progress: String,
}

/// What happened in a second, in the mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Rates {
    /// Commands of RESP.
    pub commands: f64,
    /// Calls of gRPC.
    pub grpc_calls: f64,
    /// Keys that were looked up.
    pub gets: f64,
    /// Records put.
    pub puts: f64,
    /// Tombstones written.
    pub deletes: f64,
    /// Records that expired and were taken out of the index.
    pub expired: f64,
    /// Bytes that clients sent.
    pub input_bytes: f64,
    /// Bytes that were sent to clients.
    pub output_bytes: f64,
    /// Bytes of keys and values put.
    pub user_bytes: f64,
    /// Bytes written to all tiers.
    pub written_bytes: f64,
    /// Of these, records copied from the fast tier to the capacity tier.
    pub destaged_bytes: f64,
    /// Of these, records copied within a tier.
    pub collected_bytes: f64,
    /// Segments freed by relocation.
    pub segments_freed: f64,
    /// Reads of the devices for look-ups.
    pub device_reads: f64,
    /// Writes that had to wait for room.
    pub stalls: f64,
}

/// Percentiles of one kind of call or device operation, in microseconds; each is a thirty-second too much at most.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Percentiles {
    /// `get`, `put`, `delete`, and for each tier `fast_read`, `fast_write` and so on.
    pub name: String,
    /// How many there were a second.
    pub per_s: f64,
    /// Half of them took this long or less.
    pub p50_us: f64,
    /// 90 %.
    pub p90_us: f64,
    /// 99 %.
    pub p99_us: f64,
    /// 99.9 %.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// Bytes written to all tiers for each byte of keys and values that users put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Amplification {
    /// In the last second; none if nobody put anything.
    pub now: Option<f64>,
    /// Since the store was opened; none before the first put.
    pub since_open: Option<f64>,
}

/// What a drive tells of itself, since the server first asked it. It counts for everybody who writes to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Drive {
    /// Bytes that it wrote to its flash; none if it does not tell.
    pub flash_bytes: Option<u64>,
    /// Bytes that it was given; none if it does not tell.
    pub host_bytes: Option<u64>,
    /// The first for each of the second; none while it was given nothing.
    pub amplification: Option<f64>,
    /// Bytes that it wrote to its flash for each byte of keys and values that users put: what the store wrote to its tier for
    /// each of these, times what the drive made of it.
    pub flash_bytes_per_user_byte: Option<f64>,
    /// Why it did not answer the last time; empty if it did.
    pub error: String,
}

/// What is stored, and what could be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Space {
    /// Bytes of current records.
    pub live_bytes: u64,
    /// Bytes that users may fill.
    pub user_limit_bytes: u64,
    /// Bytes that they may not.
    pub reserve_bytes: u64,
    /// Bytes that the tiers take of their file systems; of devices, those of segments in use.
    pub disk_bytes: u64,
}

/// Memory of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Memory {
    /// What the kernel counts.
    pub resident_bytes: u64,
    /// The index of keys.
    pub index_bytes: u64,
    /// The read cache.
    pub cache_bytes: u64,
    /// What clients hold.
    pub client_bytes: u64,
    /// What they may hold.
    pub client_limit_bytes: u64,
}

/// Who is connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Clients {
    /// Connections of RESP and gRPC that are open.
    pub connected: u64,
    /// That were accepted.
    pub accepted: u64,
    /// That were one too many.
    pub refused: u64,
    /// That the server ended.
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
    /// Write unit.
    pub unit_bytes: u64,
    /// Length of a segment.
    pub segment_bytes: u64,
    /// Segments that fit.
    pub segments_total: u64,
    /// Segments that can still be taken.
    pub segments_free: u64,
    /// Bytes of current records.
    pub live_bytes: u64,
    /// Bytes of segments in use that hold nothing current.
    pub dead_bytes: u64,
    /// Bytes of free segments.
    pub free_bytes: u64,
    /// Bytes that it takes of its file system; of a device, those of segments in use.
    pub disk_bytes: u64,
    /// Reads of the device a second.
    pub reads_per_s: f64,
    /// Writes to the device a second.
    pub writes_per_s: f64,
    /// What was written, by cause.
    pub written: Vec<Cause>,
    /// Its segments.
    pub map: Map,
}

/// Bytes that were written to a tier for one reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Cause {
    /// Why.
    pub cause: String,
    /// Since the store was opened.
    pub bytes: u64,
    /// In the last second.
    pub bytes_per_s: f64,
}

/// The segments of a tier in at most 2,048 cells, in the order of their places on the device. Free places behind the last
/// segment are left out, but for so many that the number of places is a power of two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Map {
    /// Places that the cells stand for.
    pub segments: u64,
    /// Places that one cell stands for; fewer in the last.
    pub segments_per_cell: u64,
    /// What the upper half of a cell means.
    pub kinds: Vec<String>,
    /// A byte a cell, in base64: the upper four bits are the position of its kind, the lower four how much of it is live,
    /// from 0 for nothing to 15 for all; see [`Map::decoded`].
    pub cells: String,
}
