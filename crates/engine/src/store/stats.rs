//! Statistics of an open store.

use std::sync::atomic::Ordering;

use esker_device::DeviceCounters;

use crate::base::counters::Activity;
use crate::base::latency::{Latencies, TierLatencies, Timed};
use crate::catalog::Catalog;
use crate::segments::accounting::Written;
use crate::segments::counts::{Classes, States};
use crate::segments::space::Space;
use crate::segments::tier::Tier;

/// Statistics of one tier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TierStats {
    /// `"fast"` or `"capacity"`.
    pub name: &'static str,
    /// Path of the file or device.
    pub path: String,
    /// `"io_uring"`, `"threads"` or `"memory"`.
    pub backend: &'static str,
    /// True if I/O bypasses the page cache.
    pub direct: bool,
    /// Write unit in bytes: the indirection unit on the capacity tier.
    pub unit_bytes: u64,
    /// Length of a segment, in bytes.
    pub segment_bytes: u64,
    /// Slots for segments. Of the length that a file has yet to grow, only the part for which its file system has room now
    /// is counted.
    pub segments_total: u64,
    /// Segments that can still be allocated.
    pub segments_free: u64,
    /// True if freed space is discarded.
    pub discards: bool,
    /// Free segments that are still to be discarded or checked for it.
    pub segments_to_discard: u64,
    /// Bytes written since the store was opened, by cause.
    pub written: Written,
    /// Bytes discarded since the store was opened.
    pub discarded_bytes: u64,
    /// Bytes of current records and of tombstones that are still needed. An estimate while overwrites are unverified.
    pub live_bytes: u64,
    /// Bytes of segments in use that hold nothing current: dead records, padding, summaries, and the unfilled part of
    /// open segments. `live_bytes`, `free_bytes` and this add up to the size of the tier.
    pub dead_bytes: u64,
    /// Bytes of free segments.
    pub free_bytes: u64,
    /// Segments by state.
    pub states: States,
    /// Segments that are not free, by class of their content.
    pub classes: Classes,
    /// Operations since the device was opened, and those in flight; zeros after the device is closed.
    pub operations: DeviceCounters,
}

/// Statistics of the store. They are cheap to collect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Keys of all databases.
    pub keys: u64,
    /// Bytes of current records and of tombstones that are still needed. An overwrite whose predecessor was not in
    /// memory counts as an estimate until it is verified.
    pub live_bytes: u64,
    /// Bytes of tombstones, which `live_bytes` includes.
    pub tombstone_bytes: u64,
    /// Bytes that users can fill. Lower than the configured limits allow if the file system has less room. Below this
    /// limit, a put that is no longer than the record it replaces always finds room, if no record is longer than an
    /// eighth of a segment.
    pub user_limit_bytes: u64,
    /// Bytes of the output tier that users cannot fill: the reserve, and segments that are open, spare or kept free.
    pub reserve_bytes: u64,
    /// Memory of the indexes of all databases, including side structures.
    pub index_bytes: u64,
    /// Memory for the index and the read cache. When the index uses all of it, puts of new keys fail for lack of
    /// memory.
    pub index_limit_bytes: u64,
    /// Number of times that the system refused memory for larger tables of the index, for example because of
    /// `ulimit -v`. Keys then take 52 bytes of memory each instead of about 9.
    pub index_refused: u64,
    /// Memory of the read cache.
    pub cache_bytes: u64,
    /// Memory of the latency histograms.
    pub latency_bytes: u64,
    /// Overwrites whose displaced record has not been verified yet.
    pub unverified_overwrites: u64,
    /// Progress of the current scrub pass, in thousandths.
    pub scrub_permille: u64,
    /// Segments that a backup or checkpoint has yet to read.
    pub kept_segments: u64,
    /// Milliseconds that collection has waited for one of the kept segments; 0 if it waits for none.
    pub kept_wait_ms: u64,
    /// Segments that are kept because they contain damage.
    pub damaged_segments: u64,
    /// The tiers.
    pub tiers: Vec<TierStats>,
    /// Operations since the store was opened.
    pub activity: Activity,
}

impl Stats {
    /// Returns bytes written to all tiers per byte of keys and values put by users; 0 before the first put.
    pub fn write_amplification_per_user_byte(&self) -> f64 {
        ratio(self.tiers.iter().map(|tier| tier.written.total()).sum(), self.activity.user_bytes)
    }

    /// Returns bytes written to the output tier per byte of records that arrived there: destaged records, recovered
    /// records, and user records written to it directly (with one tier, or if they are large). 0 before the first.
    pub fn write_amplification_per_destaged_byte(&self) -> f64 {
        let Some(tier) = self.tiers.last() else { return 0.0 };
        let Written { user_bytes, destaged_bytes, recovered_bytes, .. } = tier.written;
        ratio(tier.written.total(), user_bytes + destaged_bytes + recovered_bytes)
    }
}

fn ratio(bytes: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { bytes as f64 / of as f64 }
}

impl Stats {
    /// Collects the statistics of an open store.
    pub(super) fn of(catalog: &Catalog) -> Stats {
        let space = &catalog.space;
        space.look_at_room();
        let output = space.output_tier();
        let output_bytes = u64::from(output.slots_in_reach()) * u64::from(output.shape().segment_bytes);
        Stats {
            keys: catalog.index.len(),
            live_bytes: space.live_bytes(),
            tombstone_bytes: space.tombstone_bytes(),
            user_limit_bytes: space.user_limit_bytes(),
            reserve_bytes: output_bytes.saturating_sub(space.user_limit_bytes()),
            index_bytes: catalog.index.memory_bytes(),
            index_limit_bytes: catalog.memory_for_index(),
            index_refused: catalog.index.refused_slabs(),
            cache_bytes: catalog.cache.bytes(),
            latency_bytes: space.recorder().memory_bytes(),
            unverified_overwrites: catalog.index.unverified_len() as u64,
            scrub_permille: space.scrubbed.permille(),
            kept_segments: space.kept.len() as u64,
            kept_wait_ms: space
                .kept
                .wanted()
                .map_or(0, |(_, since)| space.runtime.now().saturating_sub(since).as_millis().max(1) as u64),
            damaged_segments: space.damaged.len() as u64,
            tiers: space.tiers().map(TierStats::of).collect(),
            activity: space.counters.activity(),
        }
    }
}

impl TierStats {
    fn of(tier: &Tier) -> TierStats {
        let device = tier.device().ok();
        let geometry = device.as_ref().map(|device| device.geometry());
        let (mut states, live_bytes) = (tier.slots().states(), tier.live_bytes());
        let segment_bytes = u64::from(tier.shape().segment_bytes);
        // Counts change while they are read, and relocation may use a slot that was out of reach before. The free count
        // is therefore computed as the remainder.
        let used = states.all().map(|(_, count)| count).sum::<u64>() - states.free;
        let segments_total = u64::from(tier.slots_in_reach()).max(used);
        states.free = segments_total - used;
        let free_bytes = states.free * segment_bytes;
        TierStats {
            name: tier.name().name(),
            path: tier.device_name().to_string(),
            backend: geometry.as_ref().map_or("closed", |g| g.backend),
            direct: geometry.is_some_and(|g| g.direct),
            unit_bytes: tier.shape().unit_bytes.into(),
            segment_bytes,
            segments_total,
            segments_free: tier.free_slots().into(),
            discards: tier.allocation(|slots| slots.discards()),
            segments_to_discard: tier.allocation(|slots| slots.to_discard()).into(),
            written: tier.accounting().written(),
            discarded_bytes: tier.discards().bytes.load(Ordering::Relaxed),
            live_bytes,
            dead_bytes: (segments_total * segment_bytes).saturating_sub(free_bytes + live_bytes),
            free_bytes,
            states,
            classes: tier.slots().classes(),
            operations: device.map(|device| device.counters()).unwrap_or_default(),
        }
    }
}

impl Latencies {
    /// Collects the latencies of an open store.
    pub(super) fn of(space: &Space) -> Latencies {
        let of = |what| space.recorder().snapshot(what);
        let tier = |tier: &Tier| TierLatencies {
            name: tier.name().name(),
            read: of(Timed::Read(tier.name())),
            write: of(Timed::Write(tier.name())),
        };
        Latencies {
            get: of(Timed::Get),
            put: of(Timed::Put),
            delete: of(Timed::Delete),
            tiers: space.tiers().map(tier).collect(),
        }
    }
}
