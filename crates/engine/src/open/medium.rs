//! Steps 1 to 3 of an opening: finds the devices of a store, recovers the index from them, and raises the epoch.
//! See [`opening`](super::opening).

use std::sync::Arc;

use esker_device::{DeviceKind, Runtime};
use esker_index::Indexes;
use esker_log::{Cleared, Databases, Packing, SegmentShape, Superblock};
use esker_seeded_bugs::{Bug, planted};
use futures_util::future::{try_join, try_join_all};

use crate::base::error::{Error, Result};
use crate::base::latency::Recorder;
use crate::base::on_device_loss::OnDeviceLoss;
use crate::base::option_name::OptionName;
use crate::catalog::clock::Clock;
use crate::catalog::expansions::Expansions;
use crate::open::changes::Changes;
use crate::open::devices::open_devices;
use crate::open::extent::{self, Extents};
use crate::open::format::{TierPlan, load_or_format};
use crate::open::memory_plan::MemoryPlan;
use crate::open::options::Options;
use crate::open::recover::{Recovered, RecoveryContext};
use crate::open::{several, staging_file};
use crate::segments::staging::{BootId, Staged, StagingFile, boot_id};
use crate::segments::superblocks::Superblocks;
use crate::segments::tier::{Accounts, Tier};

/// The devices of a store, with the content of their superblocks and of the staging file.
pub(super) struct Medium {
    pub(super) tiers: Vec<Arc<Tier>>,
    pub(super) superblocks: Vec<Superblock>,
    pub(super) packing: Packing,
    pub(super) memory: MemoryPlan,
    pub(super) staging: Option<Arc<StagingFile>>,
    pub(super) staged: Vec<Staged>,
    /// Devices of each tier to be written to before the epoch is raised.
    changes: Vec<Changes>,
}

impl Medium {
    /// Step 1. Finds a store, or creates one.
    pub(super) async fn find(options: &Options, runtime: &Arc<dyn Runtime>) -> Result<Medium> {
        let (plans, store_plan) = open_devices(options, runtime).await?;
        let mut superblocks = load_or_format(&plans, &store_plan, options, runtime).await?;
        for (plan, superblock) in plans.iter().zip(&mut superblocks).filter(|(plan, _)| plan.joined.is_none())
        {
            extent::place_far_copies(&plan.device, superblock);
        }
        check_against(options, &superblocks)?;
        let Extents { slots, packing } = Extents::of(&plans, &superblocks, options.accept_loss)?;
        let memory = MemoryPlan::of(options, &superblocks, &slots)?;
        let recorder = Arc::new(Recorder::new());
        let tiers: Vec<Arc<Tier>> = plans
            .iter()
            .zip(&superblocks)
            .zip(slots)
            .map(|((plan, s), slots)| make_tier(options, plan, s, slots, &recorder, runtime))
            .collect();
        let (first, lane_shape) = (&superblocks[0], tiers[0].shape());
        let boot = options.boot.map(BootId::from).or_else(boot_id);
        let staging = staging_file::open(options, first, lane_shape, boot)?;
        let joined = plans.into_iter().map(|plan| plan.joined);
        let changes = joined.map(|joined| joined.map_or_else(Changes::default, |it| it.changes)).collect();
        Ok(Medium { tiers, superblocks, packing, memory, staging, staged: Vec::new(), changes })
    }

    /// Step 2. Fills the index, and collects the work to be done before the first write. The devices are flushed
    /// meanwhile.
    pub(super) async fn recover(
        &mut self,
        options: &Options,
        runtime: &Arc<dyn Runtime>,
        index: &Arc<Indexes>,
        expansions: &Arc<Expansions>,
    ) -> Result<Recovered> {
        let flush = |tier: Arc<Tier>| async move { tier.device()?.flush().await.map_err(Error::from) };
        let flushed = self.tiers.iter().filter(|_| !planted(Bug::RecoveredNotFlushed)).cloned().map(flush);
        let found = self.find_records(options, runtime, index, expansions);
        let (_, (staged, recovered)) = try_join(try_join_all(flushed), found).await?;
        self.tiers.iter().for_each(|tier| tier.look_at_room());
        self.staged = staged;
        Ok(recovered)
    }

    /// Reads everything and writes nothing.
    async fn find_records(
        &self,
        options: &Options,
        runtime: &Arc<dyn Runtime>,
        index: &Arc<Indexes>,
        expansions: &Arc<Expansions>,
    ) -> Result<(Vec<Staged>, Recovered)> {
        let (first, lane_shape) = (&self.superblocks[0], self.tiers[0].shape());
        let reading = async {
            match &self.staging {
                Some(file) => staging_file::read(runtime, file, first, lane_shape, options.accept_loss).await,
                None => Ok(Vec::new()),
            }
        };
        let context = RecoveryContext {
            runtime,
            tiers: self.tiers.iter().zip(&self.superblocks).collect(),
            secret: first.secret(),
            packing: self.packing,
            index,
            expansions,
            cleared: Cleared::of(&self.superblocks),
            known_ms: Clock::known_ms(&self.superblocks),
            accept_loss: options.accept_loss,
            progress: options.progress.clone(),
            memory_bytes: self.memory.recovery_bytes,
        };
        context.recover(reading).await
    }

    /// Step 3. Raises the epoch, durably.
    pub(super) async fn begin_epoch(&mut self) -> Result<()> {
        for (tier, superblock) in self.tiers.iter().zip(&mut self.superblocks) {
            extent::make_whole(tier, superblock).await?;
        }
        for ((tier, superblock), changes) in self.tiers.iter().zip(&self.superblocks).zip(&self.changes) {
            changes.prepare(tier, superblock).await?;
        }
        let epoch = self.superblocks.iter().map(|s| s.epoch).max().unwrap_or(0)
            + u64::from(!planted(Bug::EpochNotRaised));
        // A crash between the writes of two tiers leaves different superblocks: merge them.
        let (cleared, databases) = (Cleared::of(&self.superblocks), Databases::of(&self.superblocks));
        // No staging file is expected until step 4 if the store was closed or the file was missing, because a crash may
        // truncate the newly created file at any byte.
        let is_missing = self.staging.as_ref().is_some_and(|file| file.is_empty());
        let is_expected = self.superblocks[0].census.is_none() && !is_missing;
        let superblocks = Superblocks::new(std::mem::take(&mut self.superblocks));
        superblocks
            .update(&self.tiers, |_, s| {
                s.epoch = epoch;
                if !s.devices.is_empty() {
                    s.far_copies.clear();
                }
                s.census = None;
                if !is_expected {
                    (s.staging_boot, s.staging_bytes) = (0, 0);
                }
                (s.cleared, s.databases) = (cleared, databases);
            })
            .await?;
        self.superblocks = superblocks.into_inner();
        // A device that did not get the epoch would be from another time, and never be used again.
        let failure = self.tiers.iter().find_map(|tier| tier.members()?.failure());
        match failure.filter(|_| !planted(Bug::EpochMissedByDevice)) {
            Some(failure) => Err(failure.into()),
            None => Ok(()),
        }
    }
}

/// Checks that fixed options agree with the store's format.
fn check_against(options: &Options, superblocks: &[Superblock]) -> Result<()> {
    let bulk = superblocks.last().expect("a store has a tier");
    let fixed = [
        (OptionName::Segment, options.segment_bytes, bulk.segment_bytes),
        (OptionName::IndirectionUnit, options.indirection_unit_bytes, bulk.unit_bytes),
    ];
    for (option, asked, formatted) in fixed {
        if asked.is_some_and(|asked| asked != formatted) {
            let asked = asked.unwrap_or(0);
            let what =
                format!("is {asked}, but the store was formatted with {formatted}; it cannot be changed");
            return Err(Error::option(option, what));
        }
    }
    Ok(())
}

fn make_tier(
    options: &Options,
    plan: &TierPlan,
    superblock: &Superblock,
    slots: u32,
    recorder: &Arc<Recorder>,
    clock: &Arc<dyn Runtime>,
) -> Arc<Tier> {
    // Applies only to the tier where records stay, because only that tier is collected.
    let asked =
        options.reclaim_unit_bytes.filter(|_| plan.tier == esker_log::Tier::Capacity || !superblock.has_peer);
    let accounts = Accounts {
        accounting: plan.accounting.clone(),
        recorder: recorder.clone(),
        clock: clock.clone(),
        reclaim_unit_bytes: asked.or(plan.device.geometry().reclaim_unit_bytes),
        evicts: options.when_full.evicts(),
    };
    let grows = plan.device.geometry().kind == DeviceKind::File;
    let (device, shape) = (plan.device.clone(), SegmentShape::of(superblock));
    let tier = Tier::new(device, shape, superblock.data_offset, slots, grows, accounts);
    let mut tier = match &plan.joined {
        Some(joined) => {
            let serves = options.on_device_loss == OnDeviceLoss::Serve;
            let draining = superblock.devices.iter().enumerate().filter(|(_, member)| member.draining);
            let draining = draining.map(|(position, _)| position).collect();
            let slots = several::slots_within(superblock, slots);
            tier.with_members(joined.striped.clone(), serves, draining, &slots)
        }
        None => tier,
    };
    tier.take_out_of_use(superblock.slots_out_of_use(slots).collect());
    Arc::new(tier)
}
