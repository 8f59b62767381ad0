//! Bytes written per tier: by cause from the store, and in total from the devices.

use esker_device::Device;
use esker_engine::Stats;
use serde::Serialize;

/// Bytes and records since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Account {
    /// Bytes of keys and values put by users.
    pub(crate) user_bytes: u64,
    /// Records put, and tombstones.
    pub(crate) user_records: u64,
    /// Frames of the lanes, without padding.
    pub(crate) lane_bytes: u64,
    /// Frames of destaging and collecting, without padding.
    pub(crate) relocated_bytes: u64,
    /// Relocated records.
    pub(crate) relocated_records: u64,
    /// Padding of frames to whole write units.
    pub(crate) padding_bytes: u64,
    /// Bytes of records written to the output tier: by users, by destaging, or from a staging file.
    pub(crate) destaged_bytes: u64,
    /// Bytes of all writes, counted by the store by cause.
    pub(crate) named_bytes: u64,
    /// Bytes of summaries.
    pub(crate) summary_bytes: u64,
    /// Bytes of all writes, counted by the fast tier's device.
    pub(crate) fast_device_bytes: u64,
    /// Bytes of all writes, counted by the capacity tier's device.
    pub(crate) capacity_device_bytes: u64,
    /// Writes that waited for free space.
    pub(crate) stalls: u64,
    /// Total time of these waits in microseconds.
    pub(crate) stall_us: u64,
    /// Freed segments.
    pub(crate) segments_freed: u64,
}

impl Account {
    pub(crate) fn of(stats: &Stats, fast: Option<&dyn Device>, capacity: &dyn Device) -> Account {
        let did = &stats.activity;
        let came = stats.tiers.last().map(|tier| tier.written);
        let came = came.map_or(0, |w| w.user_bytes + w.destaged_bytes + w.recovered_bytes);
        Account {
            user_bytes: did.user_bytes,
            user_records: did.puts + did.deletes,
            lane_bytes: did.lane_bytes,
            relocated_bytes: did.relocated_bytes,
            relocated_records: did.records_moved,
            padding_bytes: did.padding_bytes,
            destaged_bytes: came,
            named_bytes: stats.tiers.iter().map(|tier| tier.written.total()).sum(),
            summary_bytes: did.summary_bytes,
            fast_device_bytes: fast.map_or(0, |device| device.counters().write_bytes),
            capacity_device_bytes: capacity.counters().write_bytes,
            stalls: did.stalls,
            stall_us: did.stall_us,
            segments_freed: did.segments_freed,
        }
    }

    /// Returns the difference from `earlier`.
    pub(crate) fn since(&self, earlier: &Account) -> Account {
        Account {
            user_bytes: self.user_bytes - earlier.user_bytes,
            user_records: self.user_records - earlier.user_records,
            lane_bytes: self.lane_bytes - earlier.lane_bytes,
            relocated_bytes: self.relocated_bytes - earlier.relocated_bytes,
            relocated_records: self.relocated_records - earlier.relocated_records,
            padding_bytes: self.padding_bytes - earlier.padding_bytes,
            destaged_bytes: self.destaged_bytes - earlier.destaged_bytes,
            named_bytes: self.named_bytes - earlier.named_bytes,
            summary_bytes: self.summary_bytes - earlier.summary_bytes,
            fast_device_bytes: self.fast_device_bytes - earlier.fast_device_bytes,
            capacity_device_bytes: self.capacity_device_bytes - earlier.capacity_device_bytes,
            stalls: self.stalls - earlier.stalls,
            stall_us: self.stall_us - earlier.stall_us,
            segments_freed: self.segments_freed - earlier.segments_freed,
        }
    }

    /// Returns the bytes written to all devices.
    pub(crate) fn device_bytes(&self) -> u64 {
        self.fast_device_bytes + self.capacity_device_bytes
    }

    /// Returns the device bytes without a cause in the store's statistics; negative if the store claims
    /// more bytes than the devices received.
    pub(crate) fn unnamed_bytes(&self) -> i64 {
        self.device_bytes() as i64 - self.named_bytes as i64
    }

    /// Returns the bytes of markers of freed segments, superblocks, and all other writes that are neither
    /// records nor padding nor summaries.
    pub(crate) fn other_bytes(&self) -> i64 {
        let known = self.lane_bytes + self.relocated_bytes + self.padding_bytes + self.summary_bytes;
        self.device_bytes() as i64 - known as i64
    }
}
