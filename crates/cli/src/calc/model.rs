//! The formulas for the resources of a store. Each formula names its source; `tests` compares them with a
//! real store.

use esker_device::UNIT_BYTES_MAX;
use esker_engine::sizing::{self, NewStore, NewTier, frame_length, granule_for, user_limit_of};
use esker_inspect::{MemoryLimits, estimate_check};
use esker_log::{IDENTITY_BYTES, SEQUENCE_EPOCH_SHIFT, Superblock, record_header_bytes};
use serde::Serialize;

use super::rules::{index_bytes, memory_bytes, opening_seconds, slots_of_far_copies, store_share};

/// Bytes of a frame header and of the footer, and of a record's summary entry: a digest of 14 bytes and
/// about six bytes of numbers, as for relocated records (`docs/format.md`).
const FRAME_HEADER_BYTES: u64 = 64;
const FOOTER_BYTES: u64 = 64;
const SUMMARY_RECORD_BYTES: f64 = 20.0;

/// Maximum number of keys: slots in the largest tables of an index (decision 0043).
const KEYS_MAX: u64 = 1 << 35;

const WORKING_SLOTS: f64 = sizing::WORKING_SLOTS as f64;
const LEAST_WORKING_SLOTS: f64 = sizing::LEAST_WORKING_SLOTS as f64;

/// Length of a drive that is not given, for the first attempt to find the segment length, in bytes; and the number of further
/// attempts, because the length depends on the memory, and the memory on the length.
const FIRST_TIER_BYTES: u64 = 1 << 40;
const LENGTHS_TRIED: u32 = 16;

/// Planned share of the user limit. Beyond it, new keys may find no space before the limit is reached,
/// and without a warning.
const FILLED_MOST: f64 = 0.9;

/// The proposed fast tier: the bytes of all records divided by `FAST_PART`, but at least `FAST_LEAST` bytes.
const FAST_PART: u64 = 20;
const FAST_LEAST: u64 = 1 << 30;
const FAST_UNIT_BYTES: u64 = 4096;

/// Upper bound of accepted drive writes per day, more than any drive sustains.
const RATE_MOST: f64 = 1000.0;

/// Warranty period of data sheets in years.
const RATED_YEARS: f64 = 5.0;
const DAYS: f64 = 365.25;

/// The records to store, and the devices for them.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) keys: u64,
    pub(super) key_bytes: u64,
    pub(super) value_bytes: u64,
    pub(super) writes_per_day: Option<u64>,
    pub(super) drive: Drive,
    pub(super) fast_bytes: Option<u64>,
    /// Share of the capacity that users cannot fill.
    pub(super) reserve: f64,
    /// Length of a segment in bytes. `None`: the one that the engine chooses.
    pub(super) segment_bytes: Option<u64>,
}

/// The drive of the capacity tier.
#[derive(Clone, Debug)]
pub(super) struct Drive {
    pub(super) bytes: Option<u64>,
    pub(super) unit_bytes: u64,
    /// How much it may be written.
    pub(super) rated: Option<Rated>,
    /// Bytes per second of sequential reads.
    pub(super) read_bytes_per_s: u64,
}

/// The endurance that a data sheet states, for writes of whole units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rated {
    /// Drive writes per day over five years.
    PerDay(f64),
    /// Bytes in all.
    Total(u64),
}

/// The estimated resources.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Estimate {
    /// Length of a record with its header and padding, in bytes.
    pub(super) record_bytes: u64,
    /// The parts of a record beside its key and value: its header, and the padding to a multiple of the granule.
    pub(super) header_bytes: u64,
    pub(super) padding_bytes: u64,
    pub(super) granule_bytes: u64,
    /// Bytes of a full segment divided by its records: `record_bytes`, the entry in the summary, and the share of
    /// frames, padding to write units and unused ends.
    pub(super) medium_bytes_per_record: f64,
    pub(super) segment_bytes: u64,
    /// Bytes of all current records.
    pub(super) live_bytes: u64,
    pub(super) index_bytes: u64,
    /// Minimum for the setting `memory`, in bytes.
    pub(super) memory_bytes: u64,
    /// Time of an opening after a kill, in seconds, on two processors.
    pub(super) opening_seconds: f64,
    /// Memory of `esker check` with its default limit in bytes, its passes over the keys, and its time in seconds if the drive
    /// limits it.
    pub(super) check_memory_bytes: u64,
    pub(super) check_passes: u64,
    pub(super) check_seconds: f64,
    /// Minimum length of the capacity tier in bytes.
    pub(super) capacity_bytes: u64,
    /// Bytes that users may fill on the drive, or on a capacity tier of the minimum length.
    pub(super) user_limit_bytes: u64,
    pub(super) fast_bytes: u64,
    /// Share of the records put that are not overwritten in the fast tier.
    pub(super) destaged_share: f64,
    /// Upper bound of writes to the capacity tier per record that arrives there.
    pub(super) collection: f64,
    pub(super) capacity_bytes_per_user_byte: f64,
    pub(super) fast_bytes_per_user_byte: f64,
    pub(super) user_bytes_per_day: Option<u64>,
    pub(super) capacity_bytes_per_day: Option<u64>,
    /// Bytes that may be written to the drive, by its data sheet.
    pub(super) rated_bytes: Option<f64>,
    pub(super) years: Option<f64>,
    pub(super) warnings: Vec<String>,
}

/// Returns the resources that a plan needs, or the reason why it is impossible.
pub(super) fn estimate(plan: &Plan) -> Result<Estimate, String> {
    check(plan)?;
    let Some(segment_bytes) = plan.segment_bytes else { return estimate_default(plan) };
    estimate_with(plan, segment_bytes)
}

/// Returns the estimate with the segment length that the engine chooses for these tiers and this memory. The memory depends on the
/// length too.
fn estimate_default(plan: &Plan) -> Result<Estimate, String> {
    let first_bytes = plan.drive.bytes.unwrap_or(FIRST_TIER_BYTES);
    let mut segment_bytes = default_segment_bytes(plan, 0, first_bytes, 0);
    let mut estimated = estimate_with(plan, segment_bytes)?;
    for _ in 0..LENGTHS_TRIED {
        let tier_bytes = plan.drive.bytes.unwrap_or(estimated.capacity_bytes);
        let memory_bytes = store_share(estimated.memory_bytes);
        let next = default_segment_bytes(plan, memory_bytes, tier_bytes, estimated.fast_bytes);
        if next == segment_bytes {
            break;
        }
        segment_bytes = next;
        estimated = estimate_with(plan, segment_bytes)?;
    }
    Ok(estimated)
}

/// Returns the segment length that the engine chooses, in bytes.
fn default_segment_bytes(plan: &Plan, memory_bytes: u64, tier_bytes: u64, fast_bytes: u64) -> u64 {
    let tier = |bytes, unit_bytes, in_front| NewTier { sizes: Some((bytes, bytes)), unit_bytes, in_front };
    let fast = (fast_bytes > 0).then(|| tier(fast_bytes, FAST_UNIT_BYTES, true));
    let tiers = fast.into_iter().chain([tier(tier_bytes, plan.drive.unit_bytes, false)]).collect();
    NewStore { memory_bytes, coalesces: false, tiers }.default_segment_bytes()
}

/// Refuses a plan that no store can hold: its write unit, its number of keys or the length of its keys is out of range.
fn check(plan: &Plan) -> Result<(), String> {
    let unit = plan.drive.unit_bytes;
    if !unit.is_power_of_two() || !(4096..=UNIT_BYTES_MAX).contains(&unit) {
        return Err(format!("--iu is {unit}; it must be a power of two from 4k to 4m"));
    }
    if plan.keys > KEYS_MAX {
        return Err(format!("no store holds that many keys: --keys can be {KEYS_MAX} at most"));
    }
    if plan.keys == 0 || plan.key_bytes == 0 || plan.key_bytes > 1 << 16 {
        return Err("there must be at least one key, of 1 to 65536 bytes".to_owned());
    }
    Ok(())
}

fn estimate_with(plan: &Plan, segment_bytes: u64) -> Result<Estimate, String> {
    let unit = plan.drive.unit_bytes;
    let rated_bytes = rated_bytes(&plan.drive)?;
    let user_bytes = plan.key_bytes.saturating_add(plan.value_bytes);
    if user_bytes > segment_bytes / 2 {
        return Err(format!("no record is longer than half a segment, {} bytes", segment_bytes / 2));
    }
    let (tier, fast_bytes, all_bytes) = capacity(plan, segment_bytes)?;
    let live_bytes = plan.keys * tier.record_bytes;
    let index_bytes = index_bytes(plan.keys);
    // Share of records that leave the fast tier current: puts are spread evenly over all keys, so of the
    // records put before the last `fast` bytes a share of e^(-fast/live) is still current.
    let destaged_share = (-(fast_bytes as f64) / live_bytes as f64).exp();
    let slots = plan.drive.bytes.map_or(tier.slots_least, |bytes| {
        let metadata_bytes = Superblock::data_offset_for(unit);
        let slots = (bytes.saturating_sub(metadata_bytes) as f64 / tier.segment_bytes).floor();
        slots - slots_of_far_copies(slots)
    });
    // Garbage stays until free slots run low, so the whole drive is used (decision 0005).
    let there = tier.spare_factor(slots);
    let collection = collection(there);
    let per_user_byte = |tier: &Tier| tier.written_bytes() / (tier.records * user_bytes as f64);
    let capacity_bytes_per_user_byte = destaged_share * collection * per_user_byte(&tier);
    let fast = Tier::of(plan, segment_bytes, FAST_UNIT_BYTES, all_bytes);
    let fast_bytes_per_user_byte = if fast_bytes > 0 { per_user_byte(&fast) } else { 0.0 };
    let user_bytes_per_day = plan.writes_per_day.map(|writes| writes.saturating_mul(user_bytes));
    let capacity_bytes_per_day = user_bytes_per_day.map(|bytes| bytes as f64 * capacity_bytes_per_user_byte);
    // Until garbage is collected it fills the segments that the collector may use.
    let used_segments = tier.live_segments * there;
    let records_there = (used_segments * tier.records).max(plan.keys as f64);
    let fast_slots = (fast_bytes / segment_bytes) as u32;
    let all_slots = [slots as u32, fast_slots];
    let lanes = if fast_bytes > 0 { 2 } else { 1 };
    let check = estimate_check(plan.keys, segment_bytes, MemoryLimits::DEFAULT.bytes);
    let check_bytes =
        used_segments * tier.segment_bytes + (check.passes - 1) as f64 * records_there * SUMMARY_RECORD_BYTES;
    Ok(Estimate {
        record_bytes: tier.record_bytes,
        header_bytes: tier.header_bytes,
        padding_bytes: tier.record_bytes - tier.header_bytes - user_bytes,
        granule_bytes: tier.granule_bytes,
        medium_bytes_per_record: short(tier.segment_bytes / tier.records),
        segment_bytes,
        live_bytes,
        index_bytes,
        memory_bytes: memory_bytes(index_bytes, segment_bytes, &all_slots[..lanes]),
        opening_seconds: short(opening_seconds(plan.keys)),
        check_memory_bytes: check.memory_bytes,
        check_passes: check.passes,
        check_seconds: short(check_bytes / plan.drive.read_bytes_per_s as f64),
        capacity_bytes: tier.bytes_least(),
        user_limit_bytes: tier.user_limit_bytes(slots, plan.reserve),
        fast_bytes,
        destaged_share: short(destaged_share),
        collection: short(collection),
        capacity_bytes_per_user_byte: short(capacity_bytes_per_user_byte),
        fast_bytes_per_user_byte: short(fast_bytes_per_user_byte),
        user_bytes_per_day,
        capacity_bytes_per_day: capacity_bytes_per_day.map(|bytes| bytes as u64),
        rated_bytes,
        years: rated_bytes
            .zip(capacity_bytes_per_day)
            .filter(|(_, per_day)| *per_day > 0.0)
            .map(|(rated, per_day)| short(rated / per_day / DAYS)),
        warnings: Vec::new(),
    })
}

/// Returns the bytes that may be written to a drive, by its data sheet.
fn rated_bytes(drive: &Drive) -> Result<Option<f64>, String> {
    match drive.rated {
        Some(Rated::PerDay(rate)) if !(f64::MIN_POSITIVE..=RATE_MOST).contains(&rate) => {
            Err(format!("--dwpd is {rate}; it must be more than 0, and {RATE_MOST} at most"))
        }
        Some(Rated::Total(0)) => Err("--pbw is 0; it must be more than 0".to_owned()),
        Some(Rated::PerDay(rate)) => Ok(drive.bytes.map(|bytes| bytes as f64 * rate * DAYS * RATED_YEARS)),
        Some(Rated::Total(bytes)) => Ok(Some(bytes as f64)),
        None => Ok(None),
    }
}

/// Returns the capacity tier, the bytes of the fast tier, and the bytes of both. The padding of records
/// depends on the total size.
fn capacity(plan: &Plan, segment_bytes: u64) -> Result<(Tier, u64, u64), String> {
    let most = u64::from(u32::MAX) * segment_bytes;
    let fits = |bytes: u64| match bytes <= most {
        true => Ok(bytes),
        false => Err(format!(
            "no store is that large: with segments of {segment_bytes} bytes it has {most} bytes at most"
        )),
    };
    let mut all = fits(plan.drive.bytes.unwrap_or(0))?;
    loop {
        let tier = Tier::of(plan, segment_bytes, plan.drive.unit_bytes, all).with_least_slots(plan);
        let proposed = (plan.keys * tier.record_bytes / FAST_PART).max(FAST_LEAST);
        let fast_bytes = plan.fast_bytes.unwrap_or(proposed);
        let least = tier.bytes_least();
        if let Some(drive) = plan.drive.bytes.filter(|drive| *drive < least) {
            return Err(format!(
                "it does not fit: a drive of at least {least} bytes is needed, and --drive is {drive}; take a larger one, fewer keys, or a smaller --reserve"
            ));
        }
        let found = fits(plan.drive.bytes.unwrap_or(least).saturating_add(fast_bytes))?;
        if granule_for(found, segment_bytes) == granule_for(all, segment_bytes) {
            return Ok((tier, fast_bytes, found));
        }
        all = found;
    }
}

/// The content of a tier's segments.
#[derive(Clone, Debug)]
struct Tier {
    record_bytes: u64,
    header_bytes: u64,
    granule_bytes: u64,
    segment_bytes: f64,
    unit_bytes: f64,
    /// Records in a full segment.
    records: f64,
    /// Number of segments that all current records fill.
    live_segments: f64,
    slots_least: f64,
}

impl Tier {
    /// A tier in a store of `all_bytes` bytes.
    fn of(plan: &Plan, segment_bytes: u64, unit_bytes: u64, all_bytes: u64) -> Tier {
        let (granule, segment) = (granule_for(all_bytes, segment_bytes), segment_bytes as f64);
        // A sequence number is encoded with the length that the last put of the first epoch needs.
        let sequence = 1 << SEQUENCE_EPOCH_SHIFT | plan.keys;
        let (key, value) = (plan.key_bytes as usize, plan.value_bytes as usize);
        let header = record_header_bytes(key, value, sequence, None) as u64;
        let record_bytes = (header + plan.key_bytes + plan.value_bytes).next_multiple_of(granule);
        let frames =
            (segment_bytes / u64::from(frame_length(segment_bytes as u32, unit_bytes as u32))) as f64;
        let unit = unit_bytes as f64;
        // A frame is closed before it extends into another unit, so half a record is lost. The last unit of the summary is
        // half empty on average.
        let lost = unit.min(record_bytes as f64) / 2.0;
        let beside = frames * (FRAME_HEADER_BYTES.next_multiple_of(granule) as f64 + lost)
            + (IDENTITY_BYTES as u64 + FOOTER_BYTES) as f64
            + unit / 2.0;
        let records = ((segment - beside) / (record_bytes as f64 + SUMMARY_RECORD_BYTES)).floor().max(1.0);
        Tier {
            record_bytes,
            header_bytes: header,
            granule_bytes: granule,
            segment_bytes: segment,
            unit_bytes: unit,
            records,
            live_segments: plan.keys as f64 / records,
            slots_least: 0.0,
        }
    }

    /// Sets the smallest number of slots in which users can store the plan's records, without the
    /// summaries reducing the reserve.
    fn with_least_slots(mut self, plan: &Plan) -> Tier {
        let live = plan.keys as f64 * self.record_bytes as f64;
        let beside_reserve = self.live_segments / (1.0 - plan.reserve) + WORKING_SLOTS;
        let fits = |slots: f64| self.user_limit_bytes(slots, plan.reserve) as f64 * FILLED_MOST >= live;
        let (mut least, mut most) = (LEAST_WORKING_SLOTS, 64.0);
        while !fits(most) {
            most *= 2.0;
        }
        while most - least > 1.0 {
            let middle = ((least + most) / 2.0).floor();
            if fits(middle) { most = middle } else { least = middle }
        }
        let small = WORKING_SLOTS.min(self.live_segments / 4.0);
        self.slots_least = most.max((beside_reserve - WORKING_SLOTS + small).ceil());
        self
    }

    /// Returns the length of a device with the smallest number of slots, in bytes.
    fn bytes_least(&self) -> u64 {
        let slots = self.slots_least + slots_of_far_copies(self.slots_least);
        (slots * self.segment_bytes) as u64 + Superblock::data_offset_for(self.unit_bytes as u64)
    }

    /// Returns the bytes that users may fill in a number of slots.
    fn user_limit_bytes(&self, slots: f64, reserve: f64) -> u64 {
        let (segment_bytes, unit_bytes) = (self.segment_bytes as u32, self.unit_bytes as u32);
        let beside = u64::from(unit_bytes) + FRAME_HEADER_BYTES + IDENTITY_BYTES as u64;
        user_limit_of(slots as u32, reserve, segment_bytes, unit_bytes, u64::from(segment_bytes) - beside)
    }

    /// Returns the number of usable segments per segment of current records. Garbage stays until free slots run low, so all
    /// slots beyond the working ones are usable, whatever the reserve (decision 0005).
    fn spare_factor(&self, slots: f64) -> f64 {
        let there = (slots - (slots / 16.0).min(WORKING_SLOTS)) / self.live_segments;
        there.max(1.0 + 1e-6)
    }

    /// Returns the bytes written per segment: the segment, and the markers at its ends when it is freed.
    fn written_bytes(&self) -> f64 {
        self.segment_bytes + 2.0 * self.unit_bytes
    }
}

/// Returns the number of writes per arriving record, if overwrites are spread evenly over all keys and
/// `spare` segments exist per segment of current records: `WA = 1 / (1 - e^(-spare/WA))`, which no victim
/// selection improves (decision 0005; P. Desnoyers, "Analytic Modeling of SSD Write Performance", SYSTOR
/// 2012). 2.69 at a reserve of 20 %.
fn collection(spare: f64) -> f64 {
    let (mut low, mut high) = (1.0, 1e7);
    for _ in 0..200 {
        let middle: f64 = f64::midpoint(low, high);
        if middle < 1.0 / (1.0 - (-spare / middle).exp()) { low = middle } else { high = middle }
    }
    low
}

/// Rounds to four decimal places.
fn short(number: f64) -> f64 {
    (number * 1e4).round() / 1e4
}
