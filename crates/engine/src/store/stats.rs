//! Numbers about an open store.

use std::sync::atomic::Ordering;

use esker_device::DeviceCounters;

use crate::base::counters::Activity;
use crate::base::latency::{Latencies, TierLatencies, Timed};
use crate::catalog::Catalog;
use crate::segments::accounting::Written;
use crate::segments::counts::{Classes, States};
use crate::segments::space::Space;
use crate::segments::tier::Tier;

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
    /// Keys of all databases.
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
    /// Memory of the indexes of all databases, everything counted.
    pub index_bytes: u64,
    /// Memory for the index and the read cache: an index that takes all of it has no memory for more keys.
    pub index_limit_bytes: u64,
    /// Memory of the read cache.
    pub cache_bytes: u64,
    /// Memory of the latency histograms.
    pub latency_bytes: u64,
    /// Overwrites of which it is not verified yet what they displaced.
    pub unverified_overwrites: u64,
    /// How much of its pass the scrub has behind it, in thousandths.
    pub scrub_permille: u64,
    /// Segments that a backup or checkpoint has still to read.
    pub kept_segments: u64,
    /// For how many milliseconds collection has wanted one of them; 0 if it wants none.
    pub kept_wait_ms: u64,
    /// Segments that are kept because something in them is damaged.
    pub damaged_segments: u64,
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

impl Stats {
    /// Of an open store.
    pub(super) fn of(catalog: &Catalog) -> Stats {
        let space = &catalog.space;
        space.look_at_room();
        let output = space.output_tier();
        let output_bytes = u64::from(output.slots_in_reach()) * u64::from(output.shape().segment_bytes);
        Stats {
            keys: catalog.index.len(),
            live_bytes: space.live_bytes(),
            user_limit_bytes: space.user_limit_bytes(),
            reserve_bytes: output_bytes.saturating_sub(space.user_limit_bytes()),
            index_bytes: catalog.index.memory_bytes(),
            index_limit_bytes: catalog.memory_for_index(),
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
        // Counts change while they are read, and relocation may use a slot that was not in reach before. So what is free is what
        // the others leave.
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
    /// Of an open store.
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
