//! Counters of the store's operations.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

macro_rules! counters {
    ($($name:ident: $meaning:literal,)*) => {
        /// Counters of an open store, since it was opened.
        #[derive(Default)]
        pub(crate) struct Counters { $($name: AtomicU64,)* }

        /// Operations since the store was opened.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Activity { $(#[doc = $meaning] pub $name: u64,)* }

        impl Activity {
            /// Returns each counter with its name, its description and its value.
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
    puts: "Records put, on each node of a cluster that has a copy.",
    deletes: "Tombstones written, on each node of a cluster that has a copy.",
    user_bytes: "Bytes of keys and values put, before compression, on each node of a cluster that has a copy.",
    values_compressed: "Values that were put and are stored compressed.",
    compressed_raw_bytes: "Their length before.",
    compressed_stored_bytes: "Their length as they are stored.",
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
    records_evicted: "Records that were current and dropped to make room, where a full store evicts.",
    segments_freed: "Segments freed by relocation.",
    records_moved: "Records that relocation kept.",
    records_freed: "Records that had been written to the segments that were freed, moved or dead.",
    overwrites_verified: "Unverified overwrites that were verified.",
    hidden_found: "Keys that had been displaced by another key and were found again.",
    records_coalesced: "Records that were overwritten in memory, and so never written.",
    refused_writes: "Writes refused because the store was full or the index had no memory left.",
    stalls: "Writes that had to wait for room.",
    stall_us: "How long they waited in all, in microseconds.",
    checkpoints_cancelled: "Backups that were cancelled because they did not read segments whose room was wanted.",
    scrubbed_bytes: "Bytes that the scrub read and compared with their checksums.",
    scrub_passes: "Times that the scrub came to its end.",
    scrub_damages: "Damages that the scrub met, in each pass anew: records, summaries, copies of superblocks.",
}

impl Counters {
    fn add(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::Relaxed);
    }

    pub(crate) fn count_put(&self, bytes: usize) {
        Counters::add(&self.puts, 1);
        Counters::add(&self.user_bytes, bytes as u64);
    }

    pub(crate) fn count_compressed(&self, raw_bytes: usize, stored_bytes: usize) {
        Counters::add(&self.values_compressed, 1);
        Counters::add(&self.compressed_raw_bytes, raw_bytes as u64);
        Counters::add(&self.compressed_stored_bytes, stored_bytes as u64);
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

    pub(crate) fn count_evicted(&self) {
        Counters::add(&self.records_evicted, 1);
    }

    pub(crate) fn count_flush(&self) {
        Counters::add(&self.flushes, 1);
    }

    pub(crate) fn count_moved(&self, records: u64) {
        Counters::add(&self.records_moved, records);
    }

    /// Counts a freed segment, to which `records` records had been written.
    pub(crate) fn count_freed(&self, records: u64) {
        Counters::add(&self.segments_freed, 1);
        Counters::add(&self.records_freed, records);
    }

    pub(crate) fn count_verified(&self, unverified: u64, hidden: u64) {
        Counters::add(&self.overwrites_verified, unverified);
        Counters::add(&self.hidden_found, hidden);
    }

    pub(crate) fn count_coalesced(&self, records: u64) {
        Counters::add(&self.records_coalesced, records);
    }

    pub(crate) fn overwrites_verified(&self) -> u64 {
        self.overwrites_verified.load(Ordering::Relaxed)
    }

    pub(crate) fn count_scrubbed(&self, bytes: u64, damages: u64) {
        Counters::add(&self.scrubbed_bytes, bytes);
        Counters::add(&self.scrub_damages, damages);
    }

    pub(crate) fn count_checkpoint_cancelled(&self) {
        Counters::add(&self.checkpoints_cancelled, 1);
    }

    pub(crate) fn count_scrub_pass(&self) {
        Counters::add(&self.scrub_passes, 1);
    }

    /// Counts a refused write. Returns the number of refused writes, this one included.
    pub(crate) fn count_refused(&self) -> u64 {
        self.refused_writes.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn count_stall(&self, waited: Duration) {
        Counters::add(&self.stalls, 1);
        Counters::add(&self.stall_us, waited.as_micros() as u64);
    }
}
