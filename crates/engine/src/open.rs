//! Opening a store: devices, superblocks, recovery, and what has to be written before the first write.
//!
//! 1. Devices are opened and locked; superblocks are read, or made.
//! 2. Recovery reads everything and writes nothing. What it found is flushed: after a process died, it may still be in a
//!    device's cache, and must not be shown, nor be named in a summary, before it is durable.
//! 3. The epoch is bumped, durably, before anything else is written. Segments of copies whose relocation a crash cut off,
//!    so that older segments have everything in them, are freed.
//! 4. Staged records are written to a segment and flushed; then the old staging file is void.
//! 5. Segments without a summary are sealed.
//! 6. Background work starts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_device::{Buffer, DeviceKind, Runtime, Source, Threads, WriteMode};
use esker_gc::Placement;
use esker_index::{ClaimsLimit, Index, IndexOptions, KeyHash};
use esker_log::{
    ClosedFrame, Kind, Location, OpenSegment, RecordView, Stream, SummaryHead, Superblock, Tier as TierName,
    class_of,
};

use crate::cache::ReadCache;
use crate::clock::Clock;
use crate::devices::{
    EMPTY_INDEX_BYTES, FIXED_MEMORY_BYTES, LEAST_LANE_PIECES, RELOCATION_PIECES, check_memory, open_devices,
};
use crate::engine::{Engine, Parts, SEGMENT_STEP, SEQUENCE_EPOCH_SHIFT};
use crate::error::{Error, Result};
use crate::extent::Extents;
use crate::format::{TierPlan, load_or_format, shape_of, write_superblock};
use crate::lane::Lane;
use crate::latency::Recorder;
use crate::ledger::{Content, Origin};
use crate::memory::{Backing, MemoryPool, pointer};
use crate::options::Options;
use crate::recover::{Recovered, Scene, Unsealed};
use crate::room::spare_outputs;
use crate::slot::Contents;
use crate::staging::{self, Staged, boot_id};
use crate::stats::Recovery;
use crate::tier::{Accounts, Tier};
use crate::{commit, extent, provision, reclaim, room, staging_file, trim};

/// Pieces of memory that a lane needs to have two open segments: those, the spare one, and one that is being sealed.
const PARTED_PIECES: usize = 4;
/// Threads for background work.
const BACKGROUND_THREADS: usize = 2;

/// Opens or makes a store.
pub(crate) async fn open(options: Options) -> Result<(Arc<Engine>, Recovery)> {
    let runtime: Arc<dyn Runtime> = match &options.runtime {
        Some(runtime) => runtime.clone(),
        None => Threads::new(BACKGROUND_THREADS)
            .map_err(|e| Error::invalid(format!("no threads for background work: {e}")))?,
    };
    let began = runtime.now();
    // 1.
    let (plans, store_plan) = open_devices(&options).await?;
    let superblocks = load_or_format(&plans, &store_plan, &runtime).await?;
    check_against(&options, &superblocks)?;
    let memory = MemoryPlan::of(&options, &superblocks)?;
    let first = &superblocks[0];
    let Extents { slots, packing } = Extents::of(&plans, &superblocks, options.accept_loss)?;
    let recorder = Arc::new(Recorder::new());
    let tiers: Vec<Arc<Tier>> = plans
        .iter()
        .zip(&superblocks)
        .zip(slots)
        .map(|((plan, s), slots)| make_tier(plan, s, slots, &recorder, &runtime))
        .collect();
    let secret = first.secret();
    let lane_shape = tiers[0].shape();
    let staging = staging_file::open(&options, first, lane_shape, boot_id())?;
    let staged: Vec<Staged> = match &staging {
        Some(file) => staging_file::read(file, first, lane_shape, options.accept_loss)?,
        None => Vec::new(),
    };
    // 2.
    let claims_limit = ClaimsLimit { at_least: memory.claims_bytes, ..ClaimsLimit::default() };
    let index = Arc::new(Index::new(IndexOptions { hash_bits: options.index_hash_bits, claims_limit }));
    let scene = Scene {
        runtime: &runtime,
        tiers: tiers.iter().zip(&superblocks).collect(),
        secret,
        packing,
        index: &index,
        staged: &staged,
        accept_loss: options.accept_loss,
        progress: options.progress.clone(),
        memory_bytes: memory.recovery_bytes,
    };
    let recovered = scene.recover().await?;
    for tier in &tiers {
        tier.device()?.flush().await.map_err(Error::from)?;
        tier.look_at_room();
    }
    // 3.
    let mut superblocks = superblocks;
    for (tier, superblock) in tiers.iter().zip(&mut superblocks) {
        extent::make_whole(tier, superblock).await?;
    }
    let epoch = superblocks.iter().map(|s| s.epoch).max().unwrap_or(0) + 1;
    let clock = Clock::new(&superblocks, runtime.wall_clock_ms(), runtime.now());
    rewrite(&tiers, &mut superblocks, |s| {
        s.epoch = epoch;
        s.census = None;
    })
    .await?;
    let find = |name: TierName| tiers.iter().find(|t| t.name() == name).cloned();
    let two_tiers = tiers.len() > 1;
    let outlives_process = staging.is_some();
    let backing = staging.as_ref().map_or(Backing::Anonymous, |file| Backing::Staging(file.clone()));
    let pool = |backing| MemoryPool::new(backing, lane_shape.segment_bytes as usize, memory.lane_pieces);
    let lane = Arc::new(Lane::new(
        Stream::LANE,
        lane_shape,
        pool(backing),
        !two_tiers && memory.lane_pieces >= PARTED_PIECES,
    ));
    let large = two_tiers
        .then(|| Arc::new(Lane::new(Stream::LARGE, tiers[1].shape(), pool(Backing::Anonymous), false)));
    let bulk = tiers.last().expect("a store has a tier");
    let reserve_share = f64::from(options.reserve_percent) / 100.0;
    let engine = Engine::new(Parts {
        secret,
        packing,
        index,
        fast: find(TierName::Fast),
        capacity: find(TierName::Capacity),
        lane,
        large,
        shaping_threshold_bytes: options
            .shaping_threshold_bytes
            .unwrap_or(u64::from(bulk.shape().unit_bytes)),
        durability: options.durability,
        outlives_process,
        reserve_share,
        placement: Placement::new(spare_outputs(bulk, reserve_share)),
        clock,
        background_bytes_per_s: options.background_bytes_per_s.unwrap_or(0),
        cleared_through: AtomicU64::new(superblocks.iter().map(|s| s.cleared_through).max().unwrap_or(0)),
        memory_bytes: memory.cache_bytes,
        cache: ReadCache::new(memory.cache_bytes),
        epoch,
        superblocks: tokio::sync::Mutex::new(superblocks),
        // Numbers that an earlier process gave out are not given out again, though nothing of what had them may be left.
        sequence: AtomicU64::new(recovered.max_sequence.max(epoch << SEQUENCE_EPOCH_SHIFT)),
        segments: AtomicU64::new(recovered.max_segment / SEGMENT_STEP * SEGMENT_STEP + epoch % SEGMENT_STEP),
        runtime,
    });
    // What a crash cut off gives its slots back before anybody needs one.
    for &(tier, slot) in &recovered.redundant {
        engine.tier(tier).free_slot(slot, &engine.secret, engine.runtime.now()).await?;
    }
    // Before anybody else takes what room the file system has.
    for tier in engine.tiers().filter(|tier| tier.allocation(|slots| slots.in_use()) > 0) {
        tier.secure_or_find(provision::KEEP_FOR_RELOCATION + 1).await?;
    }
    engine.note_limit();
    // 4.
    write_staged(&engine, &staged, &recovered).await?;
    let (mut staging_boot, mut staging_bytes) = (0, 0);
    if let Some(file) = &staging {
        staging_bytes = staging::clear(file, memory.lane_pieces, &secret, lane_shape)?;
        file.covered_bytes.store(staging_bytes, Ordering::Release);
        staging_boot = file.boot.number();
    }
    {
        let mut superblocks = engine.superblocks.lock().await;
        rewrite(&tiers, &mut superblocks, |s| {
            (s.staging_epoch, s.staging_boot, s.staging_bytes) = (epoch, staging_boot, staging_bytes);
        })
        .await?;
    }
    // 5.
    let Recovered { unsealed, segments, metadata_bytes, .. } = recovered;
    // Of sealed segments only the footers were kept.
    for slot in engine.tiers().flat_map(|tier| tier.slots().all()) {
        slot.set_tombstones_through(slot.tombstones_through().min(recovered.max_sequence));
    }
    for segment in unsealed {
        seal(&engine, segment).await?;
    }
    engine.balance_memory();
    // 6.
    for lane in engine.lanes() {
        let device = engine.tier(lane.shape.tier).device()?;
        engine.spawn_at(&*device, "commit", commit::run(engine.clone(), lane.clone()));
        engine.spawn("provision", provision::run(engine.clone(), lane.clone()));
    }
    engine.spawn("reclaim", reclaim::run(engine.clone()));
    for tier in engine.tiers().filter(|tier| options.discard && trim::can_discard(tier)) {
        tier.allocation(|slots| slots.begin_discards());
        engine.spawn("trim", trim::run(engine.clone(), tier.name(), options.discard_after));
    }
    for tier in engine.tiers().filter(|tier| tier.room.is_some()) {
        engine.spawn("room", room::run(engine.clone(), tier.name()));
    }
    tracing::info!(
        user_limit_bytes = engine.user_limit_bytes(),
        capacity_bytes = u64::from(bulk.slots_in_reach()) * u64::from(bulk.shape().segment_bytes),
        longest_value_bytes = engine.max_value_bytes(0, true),
        "the store is open; user_limit_bytes is what users may fill"
    );
    let recovery = Recovery {
        keys: engine.index.len(),
        segments,
        metadata_bytes,
        duration: engine.runtime.now().saturating_sub(began),
    };
    Ok((engine, recovery))
}

/// What was asked for has to agree with what the store was formatted with.
fn check_against(options: &Options, superblocks: &[Superblock]) -> Result<()> {
    let bulk = superblocks.last().expect("a store has a tier");
    let fixed = [
        ("segment_bytes", options.segment_bytes, bulk.segment_bytes),
        ("indirection_unit_bytes", options.indirection_unit_bytes, bulk.unit_bytes),
    ];
    for (name, asked, formatted) in fixed {
        if asked.is_some_and(|asked| asked != formatted) {
            return Err(Error::invalid(format!(
                "{name} is {}, but the store was formatted with {formatted}; it cannot be changed",
                asked.unwrap_or(0)
            )));
        }
    }
    Ok(())
}

/// How the memory budget is divided.
struct MemoryPlan {
    lane_pieces: usize,
    /// For the index, which grows with the keys, and the read cache.
    cache_bytes: u64,
    /// What of it claims may take however few keys there are.
    claims_bytes: u64,
    recovery_bytes: u64,
}

impl MemoryPlan {
    fn of(options: &Options, superblocks: &[Superblock]) -> Result<MemoryPlan> {
        let segment_bytes = superblocks[0].segment_bytes;
        let lanes = superblocks.len() as u64;
        check_memory(options, segment_bytes, lanes)?;
        let pieces = (options.memory_bytes / 8 / segment_bytes / lanes).clamp(LEAST_LANE_PIECES, 8);
        let segments = (lanes * pieces + RELOCATION_PIECES) * segment_bytes;
        let left = options.memory_bytes.saturating_sub(FIXED_MEMORY_BYTES + segments);
        Ok(MemoryPlan {
            lane_pieces: pieces as usize,
            cache_bytes: left + EMPTY_INDEX_BYTES,
            claims_bytes: (left / 8).clamp(64 << 10, 64 << 20),
            // The lanes have no segments in memory yet.
            recovery_bytes: options.memory_bytes.saturating_sub(FIXED_MEMORY_BYTES).max(16 << 20),
        })
    }
}

fn make_tier(
    plan: &TierPlan,
    superblock: &Superblock,
    slots: u32,
    recorder: &Arc<Recorder>,
    clock: &Arc<dyn Runtime>,
) -> Arc<Tier> {
    let accounts = Accounts { ledger: plan.ledger.clone(), recorder: recorder.clone(), clock: clock.clone() };
    let grows = plan.device.geometry().kind == DeviceKind::File;
    Arc::new(Tier::new(
        plan.device.clone(),
        shape_of(superblock),
        superblock.data_offset,
        slots,
        grows,
        accounts,
    ))
}

/// Rewrites the superblocks, those first that are behind: or else two crashes could leave epochs that are two apart.
async fn rewrite(
    tiers: &[Arc<Tier>],
    superblocks: &mut [Superblock],
    change: impl Fn(&mut Superblock),
) -> Result<()> {
    let mut both: Vec<_> = tiers.iter().zip(superblocks).collect();
    both.sort_by_key(|(_, superblock)| superblock.epoch);
    for (tier, superblock) in both {
        change(superblock);
        superblock.generation += 1;
        write_superblock(&tier.device()?, tier.ledger(), superblock).await?;
    }
    Ok(())
}

/// 4. Writes what the last process left in memory, and takes it into the index.
async fn write_staged(engine: &Arc<Engine>, staged: &[Staged], recovered: &Recovered) -> Result<()> {
    if recovered.staged.is_empty() {
        return Ok(());
    }
    let tier = engine.tier(engine.lane.shape.tier);
    let device = tier.device()?;
    // Its pieces are dropped when they are written, so it needs no limit.
    let pool = MemoryPool::new(Backing::Anonymous, engine.lane.shape.segment_bytes as usize, usize::MAX);
    let mut output: Option<OpenSegment> = None;
    let write = |slot: u32, memory: Arc<esker_device::SegmentBuffer>, frame: ClosedFrame| {
        let source = Source::Shared { buffer: memory, range: frame.memory };
        let content = Content::Frame { origin: Origin::Recovered, payload_bytes: frame.payload_bytes };
        tier.start_write(&device, slot, frame.offset, source, WriteMode::Plain, content)
    };
    let mut loaded = Vec::new();
    let opened_at = engine.lane.published_through(engine);
    for winner in &recovered.staged {
        let from = &staged[winner.piece];
        let entry = winner.entry;
        let bytes = &from.bytes[entry.offset as usize..(entry.offset + entry.bytes) as usize];
        let record = RecordView::parse(bytes, &engine.secret.identity(from.segment, entry.offset))
            .expect("it verified when the staging file was read")
            .to_record();
        let padded = tier.shape().padded(record.bytes());
        if let Some(open) = &mut output
            && !open.has_room(1, padded)
        {
            finish(engine, output.take().expect("it is open")).await?;
        }
        if output.is_none() {
            let opened = engine.open_segment(tier.name(), Stream::RELOCATED[0], &pool, 0, opened_at).await?;
            let (open, _) = opened.ok_or_else(|| engine.full_error())?;
            output = Some(open);
        }
        let open = output.as_mut().expect("it was opened above");
        let offset = open.append(&record, entry.digest);
        let location = Location {
            tier: tier.name(),
            slot: open.name().slot,
            offset,
            class: class_of(u64::from(entry.bytes)),
        };
        loaded.push((entry, location));
        if open.open_frame_bytes() >= 1 << 20
            && let Some(frame) = open.close_frame(0)
        {
            write(open.name().slot, open.memory().buffer(), frame).await.map_err(Error::from)?;
        }
    }
    if let Some(open) = output {
        finish(engine, open).await?;
    }
    for (entry, location) in loaded {
        let padded = engine.lane.shape.padded(entry.bytes as usize) as i64;
        if entry.kind == Kind::Tombstone {
            engine.tier(location.tier).add_tombstones(location.slot, padded);
        } else {
            engine.add_live(location, padded);
            let hash = KeyHash { slot: entry.digest.slot, check: entry.digest.check };
            engine.index.load(hash, pointer(&engine.packing, location));
        }
    }
    tracing::info!(records = recovered.staged.len(), "recovered records from the staging file");
    Ok(())
}

/// Writes the last frame and the summary of a segment, durably.
async fn finish(engine: &Arc<Engine>, mut open: OpenSegment) -> Result<()> {
    let tier = engine.tier(open.shape().tier);
    let device = tier.device()?;
    let name = open.name();
    if let Some(frame) = open.close_frame(0) {
        let source = Source::Shared { buffer: open.memory().buffer(), range: frame.memory };
        let content = Content::Frame { origin: Origin::Recovered, payload_bytes: frame.payload_bytes };
        tier.write(&device, name.slot, frame.offset, source, WriteMode::Plain, content).await?;
    }
    device.flush().await.map_err(Error::from)?;
    let tail = open.tail();
    let (_, entries) = open.into_parts();
    let unsealed = Unsealed {
        tier: tier.name(),
        slot: name.slot,
        segment: name.segment,
        stream: name.stream,
        entries,
        tail,
    };
    seal(engine, unsealed).await
}

/// 5. Writes the summary of a segment that was found without one.
async fn seal(engine: &Arc<Engine>, unsealed: Unsealed) -> Result<()> {
    let tier = engine.tier(unsealed.tier);
    let head = SummaryHead {
        segment: unsealed.segment,
        epoch: engine.epoch,
        stream: unsealed.stream,
        tail: unsealed.tail,
    };
    let (start, bytes) = esker_log::seal(&unsealed.entries, &engine.secret, head, tier.shape());
    engine.counters.count_summary(bytes.len() as u64);
    let source = Source::Owned(Buffer::copy_from(&bytes));
    tier.write(&tier.device()?, unsealed.slot, start, source, WriteMode::Durable, Content::Summary).await?;
    let contents = Contents::of(&unsealed.entries);
    tier.slots().seal(unsealed.slot, unsealed.stream, head.tail, unsealed.segment, &contents);
    Ok(())
}
