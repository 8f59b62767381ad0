//! Opening a store: devices, superblocks, recovery, and the writes that precede the first user write.
//!
//! 1. Devices are opened and locked; superblocks are read, or created.
//! 2. Recovery reads everything and writes nothing. Meanwhile the devices are flushed, because records that the last
//!    process wrote may still be in a device's volatile cache, and must be durable before they are shown or named in a
//!    summary.
//! 3. The epoch is raised, durably, before anything else is written. Then segments of copies are freed if a crash
//!    interrupted their relocation, so that the original segments still have every record.
//! 4. Staged records are written to a segment and flushed; then the old staging file is voided.
//! 5. Segments without a summary are sealed.
//! 6. Background work starts.

use std::sync::Arc;

use esker_device::{Runtime, Threads};
use esker_gc::Placement;
use esker_index::{IndexOptions, Indexes, UnverifiedLimit};
use esker_log::{EntryList, Stream, SummaryHead, Tier as TierName};
use esker_seeded_bugs::{Bug, planted};
use futures_util::future::BoxFuture;

use crate::background::pause::Pauses;
use crate::background::{clear_ahead, coalesce, discard, file_system, reclaim, reported, scrub, watermarks};
use crate::base::error::{Error, Result};
use crate::base::health::Health;
use crate::base::option_name::OptionName;
use crate::base::requests::Requests;
use crate::base::tasks::Tasks;
use crate::catalog::clock::Clock;
use crate::catalog::expansions::Expansions;
use crate::catalog::recency::Recency;
use crate::catalog::{Catalog, CatalogParts};
use crate::open::devices::Access;
use crate::open::medium::Medium;
use crate::open::options::Options;
use crate::open::progress::Recovery;
use crate::open::recover::{Recovered, Unmarked, Unsealed};
use crate::open::staged;
use crate::segments::accounting::Origin;
use crate::segments::buffers::{Backing, MemoryPool};
use crate::segments::limit::spare_outputs;
use crate::segments::space::{KEEP_FOR_RELOCATION, Space, SpaceParts};
use crate::segments::staging::{self, StagingFile};
use crate::segments::tier::Tier;
use crate::segments::writer::{SegmentWriter, Summary};
use crate::write::coalescing::CoalescingPlan;
use crate::write::group_log::recovered::{LogSegment, contents_of};
use crate::write::group_log::{self, LEAST_LOG_SLOTS, LogLane};
use crate::write::lane::Lane;
use crate::write::live_options::Changeable;
use crate::write::{Writer, WriterParts, committer, preallocate};

/// Segment buffers that a lane needs to have two open segments: two open ones, a spare, and one that is being sealed.
const TWO_SEGMENTS_PIECES: usize = 4;
/// Minimum number of threads for recovery and background work.
const LEAST_THREADS: usize = 2;
/// Divisor: part of the tier that is written first that the log of replicated groups may take.
const LOG_DIVISOR: u32 = 4;
/// Maximum bytes of that log, because an opening reads it whole, and segments that it may have although they are longer together.
const LOG_BYTES: u64 = 4 << 30;
const LOG_SLOTS: u32 = 16;

/// Returns the number of threads for recovery and background work: one per processor, because loading the index is the
/// work of an opening.
fn background_threads() -> usize {
    std::thread::available_parallelism().map_or(LEAST_THREADS, |count| count.get().max(LEAST_THREADS))
}

/// An opened store.
pub(crate) struct Opened {
    pub(crate) writer: Arc<Writer>,
    /// Queue of compaction requests.
    pub(crate) compactions: Arc<Requests>,
    /// Requests for the reclaimer to pause.
    pub(crate) pauses: Arc<Pauses>,
    pub(crate) recovery: Recovery,
    /// The way in which devices that are added are opened.
    pub(crate) access: Access,
}

/// Opens or creates a store.
///
/// The future is boxed to hide its type, because an awaited future is compiled into each codegen unit of the calling
/// crate, and this one is large.
#[inline(never)]
pub(crate) fn open(options: Options) -> BoxFuture<'static, Result<Opened>> {
    Box::pin(open_all(options))
}

async fn open_all(options: Options) -> Result<Opened> {
    let runtime: Arc<dyn Runtime> = match &options.runtime {
        Some(runtime) => runtime.clone(),
        None => Threads::new(background_threads())
            .map_err(|e| Error::invalid(format!("no threads for background work: {e}")))?,
    };
    let began = runtime.now();
    // 1.
    let mut medium = Medium::find(&options, &runtime).await?;
    // 2.
    let index = Arc::new(Indexes::new(IndexOptions {
        hash_bits: options.index_hash_bits,
        unverified_limit: UnverifiedLimit {
            at_least: medium.memory.unverified_bytes,
            ..UnverifiedLimit::default()
        },
        ..IndexOptions::default()
    }));
    let expansions = Arc::new(Expansions::default());
    let recovered = medium.recover(&options, &runtime, &index, &expansions).await?;
    // 3.
    medium.begin_epoch().await?;
    let staged = std::mem::take(&mut medium.staged);
    let staging = medium.staging.clone();
    let lane_buffers = medium.memory.lane_buffers + medium.memory.coalescing_segments;
    let mut recovered = recovered;
    let log_slots = log_slots(&options, &medium.tiers[0], &recovered)?;
    let writer = build(&options, medium, runtime, (index, expansions), (&mut recovered, log_slots)).await?;
    let space = &writer.space;
    find_room(space, &recovered).await?;
    if planted(Bug::StagingVoidedEarly) {
        void_staging(space, staging.as_deref(), lane_buffers).await?;
    }
    // 4.
    staged::write(&writer.catalog, writer.lane.published_through(), &staged, &recovered.staged).await?;
    void_staging(space, staging.as_deref(), lane_buffers).await?;
    // 5.
    let Recovered { unsealed, logs, segments, metadata_bytes, max_sequence, .. } = recovered;
    // A footer does not name the newest tombstone of its segment, so the bound of a sealed segment is still `u64::MAX`:
    // lower it to the highest sequence number found.
    space.tiers().for_each(|tier| tier.slots().bound_tombstones(max_sequence));
    for segment in unsealed {
        seal(space, segment).await?;
    }
    for segment in logs.iter().filter(|log| !log.is_sealed) {
        seal_log(space, segment).await?;
    }
    writer.catalog.balance_memory();
    // 6.
    let (compactions, pauses) = start(&options, &writer)?;
    for path in &options.drain {
        let path = path.display().to_string();
        if let Err(error) = space.drain_device(&path, writer.used_bytes()).await {
            tracing::warn!(%error, "a device is not drained");
        }
    }
    let bulk = space.output_tier();
    tracing::info!(
        user_limit_bytes = space.user_limit_bytes(),
        capacity_bytes = u64::from(bulk.slots_in_reach()) * u64::from(bulk.shape().segment_bytes),
        longest_value_bytes = writer.max_value_bytes(0, true),
        "the store is open; users can fill user_limit_bytes"
    );
    let duration = space.runtime.now().saturating_sub(began);
    let (keys, accepts_loss) = (writer.catalog.index.len(), options.accept_loss);
    let recovery = Recovery { keys, segments, metadata_bytes, duration, accepts_loss };
    Ok(Opened { writer, compactions, pauses, recovery, access: Access::of(&options) })
}

/// Creates the parts of an open store.
async fn build(
    options: &Options,
    medium: Medium,
    runtime: Arc<dyn Runtime>,
    (index, expansions): (Arc<Indexes>, Arc<Expansions>),
    (recovered, log_slots): (&mut Recovered, u32),
) -> Result<Arc<Writer>> {
    let Medium { tiers, superblocks, packing, memory, staging, .. } = medium;
    let two_tiers = tiers.len() > 1;
    let (lane_shape, bulk) = (tiers[0].shape(), tiers[tiers.len() - 1].clone());
    let reserve_share = f64::from(options.reserve_percent) / 100.0;
    tiers.iter().for_each(|tier| tier.slots().regroup());
    let coalescing = Some(memory.coalescing_segments).filter(|&segments| segments > 0);
    let coalescing = coalescing.map(|segments| CoalescingPlan { wait: options.coalesce_for, segments });
    let health = Arc::new(Health::default());
    let tasks = Tasks::new(runtime.clone(), health.clone());
    let (wall_ms, now) = (runtime.wall_clock_ms(), runtime.now());
    let clock = Clock::new(&superblocks, wall_ms, now, recovered.next_expiry_ms);
    let clock = if log_slots > 0 { clock.of_member() } else { clock };
    let (cleared, databases) = (superblocks[0].cleared, superblocks[0].databases);
    let space = Space::new(SpaceParts {
        runtime,
        health,
        secret: superblocks[0].secret(),
        epoch: superblocks[0].epoch,
        tiers,
        superblocks,
        reserve_share,
        max_garbage_share: options.max_garbage.share(is_shared_file(options, &bulk), reserve_share),
        coalescing_slots: coalescing.map_or(0, |plan| plan.segments as u32 + 1),
        log_slots: (log_slots, recovered.logs.len() as u32),
        outlives_process: staging.is_some(),
        max_sequence: recovered.max_sequence,
        max_segment: recovered.max_segment,
    });
    let group_log = match log_slots {
        0 => None,
        _ => {
            let (contents, next_number) = contents_of(&mut recovered.logs)?;
            Some(LogLane::new(space.clone(), log_slots, contents, next_number))
        }
    };
    let catalog = Catalog::new(CatalogParts {
        space,
        index,
        packing,
        placement: Placement::new(spare_outputs(&bulk, reserve_share)),
        clock,
        expansions,
        recency: Recency::new(options.when_full, memory.cache_bytes),
        memory_bytes: memory.cache_bytes,
        cleared,
        databases,
    });
    let backing = staging.map_or(Backing::Anonymous, Backing::Staging);
    let pool = |backing, beside| {
        MemoryPool::new(backing, lane_shape.segment_bytes as usize, memory.lane_buffers + beside)
    };
    let may_part = !two_tiers && memory.lane_buffers >= TWO_SEGMENTS_PIECES;
    let pool_of_lane = pool(backing, memory.coalescing_segments);
    let lane = Lane::new(catalog.clone(), Stream::LANE, lane_shape, pool_of_lane, may_part, coalescing);
    let pool_of_large = two_tiers.then(|| pool(Backing::Anonymous, 0));
    let large =
        pool_of_large.map(|pool| Lane::new(catalog.clone(), Stream::LARGE, bulk.shape(), pool, false, None));
    let unit_bytes = u64::from(bulk.shape().unit_bytes);
    Ok(Writer::new(WriterParts {
        catalog,
        tasks,
        lane,
        large,
        group_log,
        shaping_threshold_bytes: options.shaping_threshold_bytes.unwrap_or(unit_bytes),
        changeable: Changeable::new(
            options.durability,
            options.compression,
            options.background_bytes_per_s,
            options.scrub_bytes_per_s,
        ),
    }))
}

/// Returns true if a tier is a file without a limit of its own: its file system is for others too.
fn is_shared_file(options: &Options, tier: &Tier) -> bool {
    let limit = match tier.name() {
        TierName::Fast => options.fast_limit_bytes,
        TierName::Capacity => options.capacity_limit_bytes,
    };
    tier.grows() && limit.is_none()
}

/// Writes missing free markers, frees the segments of interrupted copies before their slots are needed, and reserves
/// file blocks for deletes and relocation before other writes can use up the file system.
async fn find_room(space: &Space, recovered: &Recovered) -> Result<()> {
    for &Unmarked { tier, slot, segment } in &recovered.unmarked {
        space.tier(tier).mark_again(slot, segment, &space.secret).await?;
    }
    for &(tier, slot) in &recovered.redundant {
        space.tier(tier).free_slot(slot, &space.secret, space.runtime.now()).await?;
    }
    // Staged records are written before anything is freed, so their room is reserved too.
    let staged_bytes: u64 = recovered.staged.iter().map(|record| u64::from(record.entry.bytes)).sum();
    let staged = staged_bytes.div_ceil(u64::from(space.first_tier().shape().segment_bytes)) as u32;
    for tier in space.tiers().filter(|tier| !tier.holds_nothing()) {
        let staged = if tier.name() == space.first_tier().name() { staged } else { 0 };
        tier.secure_or_find(KEEP_FOR_RELOCATION + 1 + staged).await?;
    }
    space.note_limit();
    Ok(())
}

/// Step 4. Voids the staging file: from now on it belongs to this opening.
async fn void_staging(space: &Space, staging: Option<&StagingFile>, lane_buffers: usize) -> Result<()> {
    let (mut boot, mut bytes) = (0, 0);
    let epoch = space.epoch;
    if let Some(file) = staging {
        bytes = staging::clear(file, lane_buffers, &space.secret, space.first_tier().shape(), epoch)?;
        file.set_covered_bytes(bytes);
        boot = file.boot.number();
    }
    space
        .update_superblocks(|_, s| {
            (s.staging_epoch, s.staging_boot, s.staging_bytes) = (epoch, boot, bytes);
        })
        .await
}

/// Step 6. Starts the background tasks.
fn start(options: &Options, writer: &Arc<Writer>) -> Result<(Arc<Requests>, Arc<Pauses>)> {
    let (space, catalog, tasks) = (&writer.space, &writer.catalog, &writer.tasks);
    for lane in writer.lanes() {
        let device = space.tier(lane.shape.tier).device()?;
        tasks.spawn_at(&*device, "commit", committer::run(catalog.clone(), tasks.clone(), lane.clone()));
        let order = writer.lane.clone();
        tasks.spawn("preallocate", preallocate::run(catalog.clone(), lane.clone(), order));
    }
    if let Some(log) = &writer.group_log {
        let device = space.tier(log.shape.tier).device()?;
        tasks.spawn_at(&*device, "commit group log", group_log::commit::run(log.clone()));
        tasks.spawn("group log segments", group_log::slots::run(log.clone()));
    }
    if writer.lane.wants_coalescing_spare() {
        tasks.spawn("coalesce", coalesce::run(writer.clone()));
        tasks.spawn("coalescing segments", coalesce::provide(writer.clone()));
    }
    let compactions = Requests::following(&space.health);
    let pauses = Pauses::following(&space.health);
    tasks.spawn("reclaim", reclaim::run(writer.clone(), compactions.clone(), pauses.clone()));
    if space.tiers().any(|tier| !tier.grows()) {
        tasks.spawn("clear slots", clear_ahead::run(space.clone()));
    }
    tasks.spawn("scrub", scrub::run(writer.clone()));
    tasks.spawn("watermarks", watermarks::run(writer.clone()));
    tasks.spawn("expired keys", reported::run(writer.clone()));
    for tier in space.tiers().filter(|tier| options.discard && discard::can_discard(tier)) {
        tier.begin_discards()?;
        tasks.spawn("discard", discard::run(space.clone(), tier.name(), options.discard_after));
    }
    for tier in space.tiers().filter(|tier| tier.grows()) {
        tasks.spawn("file system", file_system::run(space.clone(), tier.name()));
    }
    Ok((compactions, pauses))
}

/// Returns the number of slots of the log of replicated groups; 0 without one.
fn log_slots(options: &Options, tier: &Tier, recovered: &Recovered) -> Result<u32> {
    let found = recovered.logs.len() as u32;
    let Some(asked) = options.group_log_segments else {
        if found > 0 && !planted(Bug::LogMemberOpenedAlone) {
            let what = format!(
                "is not set, but the store has the log of a replica in {found} segments: open it as a member of its cluster"
            );
            return Err(Error::option(OptionName::GroupLog, what));
        }
        return Ok(0);
    };
    if asked < LEAST_LOG_SLOTS {
        let what = format!("is {asked}, but must be at least {LEAST_LOG_SLOTS}");
        return Err(Error::option(OptionName::GroupLog, what));
    }
    let (usable, most) = (tier.slots_usable(), tier.slots_usable() / LOG_DIVISOR);
    if most < LEAST_LOG_SLOTS {
        let least = LEAST_LOG_SLOTS * LOG_DIVISOR;
        let what = format!(
            "needs at least {least} segments in the tier that is written first, which has {usable}: make the tier larger, \
             or segment_bytes smaller"
        );
        return Err(Error::option(OptionName::GroupLog, what));
    }
    Ok(asked.min(most).min(longest_log(tier.shape().segment_bytes)))
}

/// Returns the maximum number of segments of the log, by their length.
fn longest_log(segment_bytes: u32) -> u32 {
    ((LOG_BYTES / u64::from(segment_bytes)) as u32).max(LOG_SLOTS)
}

/// Step 5. Writes the footer of a segment of the log that was found without one. The next opening takes records that are missing
/// before its end for damage, and nothing behind it for records.
async fn seal_log(space: &Space, log: &LogSegment) -> Result<()> {
    let LogSegment { tier, slot, segment, tail, .. } = *log;
    let tier = space.tier(tier);
    let head = SummaryHead { segment, epoch: space.epoch, stream: Stream::GROUP_LOG, tail };
    let summary = Summary::of_found(space, tier, slot, head, &EntryList::new());
    SegmentWriter::new(space, tier, Origin::Recovered).write_summary(&summary).await
}

/// Step 5. Writes the summary of a segment that was found without one.
async fn seal(space: &Space, unsealed: Unsealed) -> Result<()> {
    let Unsealed { slot, segment, stream, tail, entries, .. } = unsealed;
    let tier = space.tier(unsealed.tier);
    let head = SummaryHead { segment, epoch: space.epoch, stream, tail };
    let summary = Summary::of_found(space, tier, slot, head, &entries.into_iter().collect());
    // The segment's age follows from its number.
    SegmentWriter::new(space, tier, Origin::Recovered).seal(summary, || segment).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_of_long_segments_is_bounded_by_its_bytes() {
        let slots = [16, 64, 256, 512].map(|mib| longest_log(mib << 20));
        assert_eq!(slots, [256, 64, 16, 16]);
    }
}
