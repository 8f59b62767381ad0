//! Counting what the store does.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker_device::DeviceCounters;

use crate::ledger::Written;

macro_rules! counters {
    ($($name:ident: $meaning:literal,)*) => {
        /// Counters of an open store, since it was opened.
        #[derive(Default)]
        pub(crate) struct Counters { $($name: AtomicU64,)* }

        /// What the store did since it was opened.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Activity { $(#[doc = $meaning] pub $name: u64,)* }

        impl Activity {
            /// Every counter with its name and what it counts, for those that print all of them.
            pub fn counters(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                [$((stringify!($name), $meaning, self.$name),)*].into_iter()
            }
        }

        impl Counters {
            pub(crate) fn activity(&self) -> Activity {
                Activity { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    puts: "Records put.",
    deletes: "Tombstones written.",
    user_bytes: "Bytes of keys and values put.",
    memory_hits: "Look-ups answered from a segment's memory.",
    cache_hits: "Look-ups answered from the read cache.",
    device_reads: "Device reads made for look-ups.",
    lane_bytes: "Bytes of frames written by the lanes, without padding.",
    padding_bytes: "Bytes of padding to whole write units, in frames of all kinds.",
    relocated_bytes: "Bytes of frames written by relocation, without padding.",
    summary_bytes: "Bytes of summaries.",
    frames: "Frames written.",
    flushes: "Flushes of a lane's device.",
    records_expired: "Records that expired and were taken out of the index.",
    segments_freed: "Segments freed by relocation.",
    records_moved: "Records that relocation kept.",
    records_freed: "Records that had been written to the segments that were freed, moved or dead.",
    claims_settled: "Claims verified.",
    hidden_found: "Keys that had been displaced by another key and were found again.",
    stalls: "Writes that had to wait for room.",
    stall_us: "How long they waited in all, in microseconds.",
}

impl Counters {
    fn add(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::Relaxed);
    }

    pub(crate) fn count_put(&self, bytes: usize) {
        Counters::add(&self.puts, 1);
        Counters::add(&self.user_bytes, bytes as u64);
    }

    pub(crate) fn count_delete(&self) {
        Counters::add(&self.deletes, 1);
    }

    pub(crate) fn memory_hit(&self) {
        Counters::add(&self.memory_hits, 1);
    }

    pub(crate) fn cache_hit(&self) {
        Counters::add(&self.cache_hits, 1);
    }

    pub(crate) fn device_read(&self) {
        Counters::add(&self.device_reads, 1);
    }

    pub(crate) fn count_frame(&self, relocated: bool, payload_bytes: u64, padding_bytes: u64) {
        Counters::add(if relocated { &self.relocated_bytes } else { &self.lane_bytes }, payload_bytes);
        Counters::add(&self.padding_bytes, padding_bytes);
        Counters::add(&self.frames, 1);
    }

    pub(crate) fn count_summary(&self, bytes: u64) {
        Counters::add(&self.summary_bytes, bytes);
    }

    pub(crate) fn count_expired(&self) {
        Counters::add(&self.records_expired, 1);
    }

    pub(crate) fn count_flush(&self) {
        Counters::add(&self.flushes, 1);
    }

    pub(crate) fn count_moved(&self, records: u64) {
        Counters::add(&self.records_moved, records);
    }

    /// A segment was freed that so many records had been written to.
    pub(crate) fn count_freed(&self, records: u64) {
        Counters::add(&self.segments_freed, 1);
        Counters::add(&self.records_freed, records);
    }

    pub(crate) fn count_settled(&self, claims: u64, hidden: u64) {
        Counters::add(&self.claims_settled, claims);
        Counters::add(&self.hidden_found, hidden);
    }

    pub(crate) fn count_stall(&self, waited: Duration) {
        Counters::add(&self.stalls, 1);
        Counters::add(&self.stall_us, waited.as_micros() as u64);
    }
}

macro_rules! counts {
    ($(#[$about:meta])* $type:ident { $($name:ident: $meaning:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct $type { $(#[doc = $meaning] pub $name: u64,)* }

        impl $type {
            /// Every count with its name.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counts! {
    /// How many segments of a tier are in which state.
    States {
        free: "Empty, whether they can be taken at once or are being prepared or discarded.",
        open: "Being written, or ready to be.",
        sealed: "Written, with a summary.",
        relocating: "Being emptied.",
        damaged: "Kept as they are, because something in them cannot be read.",
    }
}

counts! {
    /// How many segments of a tier hold which flow of records.
    Classes {
        lane: "Puts as they come; where they are told apart, those that are expected to live briefly.",
        large: "Large values that went straight to the capacity tier.",
        lasting: "Puts that are expected to last.",
        destaged: "Destaged records that are expected to live briefly.",
        collected_brief: "Collected out of segments of brief records.",
        collected_young: "Collected records, the youngest.",
        collected_middle: "Collected records of middle age.",
        collected_old: "Collected records, the oldest.",
        other: "Of a flow that this version does not know.",
    }
}

impl Classes {
    /// The counts by stream, and of all others.
    pub(crate) fn of(counts: [u64; 9]) -> Classes {
        let [lane, large, lasting, destaged, brief, young, middle, old, other] = counts;
        Classes {
            lane,
            large,
            lasting,
            destaged,
            collected_brief: brief,
            collected_young: young,
            collected_middle: middle,
            collected_old: old,
            other,
        }
    }
}

/// What a tier holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TierStats {
    /// `"fast"` or `"capacity"`.
    pub name: &'static str,
    /// The file or device.
    pub path: String,
    /// `"io_uring"`, `"threads"` or `"memory"`.
    pub backend: &'static str,
    /// Whether I/O bypasses the page cache.
    pub direct: bool,
    /// Write unit: the indirection unit on the capacity tier.
    pub unit_bytes: u64,
    /// Length of a segment.
    pub segment_bytes: u64,
    /// Segments that fit; of those that a file is still to grow by, as many as its file system has room for now.
    pub segments_total: u64,
    /// Segments that can still be taken.
    pub segments_free: u64,
    /// Whether freed space is discarded.
    pub discards: bool,
    /// Free segments whose space is still to be discarded, or looked at.
    pub segments_to_discard: u64,
    /// Bytes written since the store was opened, by cause.
    pub written: Written,
    /// Bytes discarded since the store was opened.
    pub discarded_bytes: u64,
    /// Bytes of current records, as far as known.
    pub live_bytes: u64,
    /// Bytes of segments in use that hold nothing current: dead records, padding, summaries, and what is still to be
    /// filled of open ones. With `live_bytes` and `free_bytes` it makes up the tier.
    pub dead_bytes: u64,
    /// Bytes of free segments.
    pub free_bytes: u64,
    /// Segments by state.
    pub states: States,
    /// Segments that are not free, by what they hold.
    pub classes: Classes,
    /// What the device was asked to do since it was opened, and how much of that is in flight; zeros once it is closed.
    pub operations: DeviceCounters,
}

/// Numbers about the store, cheap to ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Keys.
    pub keys: u64,
    /// Bytes of current records, as far as known: overwrites of records that were not at hand are estimates until
    /// verified.
    pub live_bytes: u64,
    /// What users may fill of the room that there is; less where the file system has no room for all that the limits allow.
    /// Up to here puts that take no more than what they displace find room, if no record is longer than an
    /// eighth of a segment.
    pub user_limit_bytes: u64,
    /// What users may not fill of the tier where records stay: the reserve, and what is open, spare or kept free.
    pub reserve_bytes: u64,
    /// Memory of the index, everything counted.
    pub index_bytes: u64,
    /// Memory of the read cache.
    pub cache_bytes: u64,
    /// Memory of the latency histograms.
    pub latency_bytes: u64,
    /// Claims that are not verified yet.
    pub claims: u64,
    /// The tiers.
    pub tiers: Vec<TierStats>,
    /// What was done since the store was opened.
    pub activity: Activity,
}

impl Stats {
    /// Bytes written to all tiers for each byte of keys and values that users put; 0 before the first.
    pub fn write_amplification_per_user_byte(&self) -> f64 {
        ratio(self.tiers.iter().map(|tier| tier.written.total()).sum(), self.activity.user_bytes)
    }

    /// Bytes written to the tier where records stay for each byte of records that came to it, by destaging or, where
    /// there is no other tier or they are large, from users; 0 before the first.
    pub fn write_amplification_per_destaged_byte(&self) -> f64 {
        let Some(tier) = self.tiers.last() else { return 0.0 };
        let Written { user_bytes, destaged_bytes, recovered_bytes, .. } = tier.written;
        ratio(tier.written.total(), user_bytes + destaged_bytes + recovered_bytes)
    }
}

fn ratio(bytes: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { bytes as f64 / of as f64 }
}

/// What was found when the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// Keys found.
    pub keys: u64,
    /// Segments found.
    pub segments: u64,
    /// Bytes of segment starts, summaries and unsealed segments that had to be read.
    pub metadata_bytes: u64,
    /// How long opening took.
    pub duration: Duration,
}
