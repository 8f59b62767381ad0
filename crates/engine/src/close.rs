//! Flushing, clearing, closing, and telling how things are.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_log::Tier as TierName;

use crate::engine::Engine;
use crate::error::Result;
use crate::latency::{Latencies, Recorder, TierLatencies, Timed};
use crate::stats::{Stats, TierStats};
use crate::tier::Tier;

/// Lets background work end by itself, without waiting for it.
pub(crate) fn begin(engine: &Arc<Engine>) {
    for lane in engine.lanes() {
        lane.stop();
    }
    engine.closed.store(true, Ordering::Release);
    engine.reclaim.notify_one();
    engine.tiers().for_each(Tier::wake_tasks);
    engine.announce_free_slot();
}

/// Flushes, ends background work and lets the devices go.
pub(crate) async fn close(engine: &Arc<Engine>) -> Result<()> {
    let flushed = if engine.closed.load(Ordering::Acquire) { Ok(()) } else { engine.flush().await };
    begin(engine);
    engine.tasks_ended().await;
    let flushed = match engine.check_latch() {
        // By whoever closes it first.
        Ok(()) if engine.tiers().any(|tier| tier.device().is_err()) => flushed,
        Ok(()) => flushed.and(engine.write_census().await),
        // What was acknowledged after that flush may be lost.
        Err(latched) => flushed.and(Err(latched)),
    };
    // Before the devices, so that whoever gets those gets it too.
    if let Some(file) = engine.lane.pool.staging() {
        file.file.unlock();
    }
    for tier in engine.tiers() {
        tier.release_device();
    }
    flushed
}

impl Engine {
    /// Makes everything durable that was acknowledged before.
    pub(crate) async fn flush(&self) -> Result<()> {
        let flushed: Vec<_> = self.lanes().map(|lane| lane.flush()).collect();
        for lane in flushed {
            lane.wait().await?;
        }
        Ok(())
    }

    /// Says in the superblocks what the store holds, and what has expired for good, once nothing writes any more.
    async fn write_census(&self) -> Result<()> {
        let mut superblocks = self.superblocks.lock().await;
        for superblock in superblocks.iter_mut() {
            let tier = self.tier(superblock.tier());
            superblock.census = Some(tier.slots().census(&self.secret));
            self.note_clock(superblock);
            superblock.generation += 1;
            crate::format::write_superblock(&tier.device()?, tier.ledger(), superblock).await?;
        }
        Ok(())
    }

    /// Deletes every key: what was written up to now is void, and the superblock says so.
    pub(crate) async fn clear(&self) -> Result<()> {
        self.check_writable()?;
        let _all = self.lane.reserve_all(self).await?;
        // Nobody writes now, and everything that was appended is published.
        self.flush().await?;
        let through = self.sequence.load(Ordering::Acquire);
        let mut superblocks = self.superblocks.lock().await;
        for superblock in superblocks.iter_mut() {
            superblock.cleared_through = through;
            superblock.generation += 1;
            let tier = self.tier(superblock.tier());
            if let Err(error) =
                crate::format::write_superblock(&tier.device()?, tier.ledger(), superblock).await
            {
                // Nobody knows whether the next opening finds the keys or not.
                self.latch(&error);
                return Err(error);
            }
        }
        self.cleared_through.store(through, Ordering::Release);
        self.index.clear();
        for tier in self.tiers() {
            tier.forget_live();
        }
        self.is_no_longer_full();
        self.reclaim.notify_one();
        Ok(())
    }

    pub(crate) fn recorder(&self) -> &Recorder {
        self.output_tier().recorder()
    }

    /// Something that succeeded was begun then.
    pub(crate) fn took(&self, what: Timed, began: Duration) {
        self.recorder().record(what, self.runtime.now().saturating_sub(began));
    }

    pub(crate) fn latencies(&self) -> Latencies {
        let of = |what| self.recorder().snapshot(what);
        let tier = |tier: &Tier| TierLatencies {
            name: tier.name().name(),
            read: of(Timed::Read(tier.name())),
            write: of(Timed::Write(tier.name())),
        };
        Latencies {
            get: of(Timed::Get),
            put: of(Timed::Put),
            delete: of(Timed::Delete),
            tiers: self.tiers().map(tier).collect(),
        }
    }

    /// Numbers about the store.
    pub(crate) fn stats(&self) -> Stats {
        self.look_at_room();
        let tier_stats = |name: TierName| {
            let tier = self.tier(name);
            let device = tier.device().ok();
            let geometry = device.as_ref().map(|device| device.geometry());
            let (mut states, live_bytes) = (tier.slots().states(), tier.live_bytes());
            let segment_bytes = u64::from(tier.shape().segment_bytes);
            let segments_total = u64::from(tier.slots_in_reach());
            states.free = states.free.saturating_sub(u64::from(tier.slots_total()) - segments_total);
            let free_bytes = states.free * segment_bytes;
            TierStats {
                name: name.name(),
                path: tier.device_name().to_string(),
                backend: geometry.as_ref().map_or("closed", |g| g.backend),
                direct: geometry.is_some_and(|g| g.direct),
                unit_bytes: tier.shape().unit_bytes.into(),
                segment_bytes,
                segments_total,
                segments_free: tier.free_slots().into(),
                discards: tier.allocation(|slots| slots.discards()),
                segments_to_discard: tier.allocation(|slots| slots.to_discard()).into(),
                written: tier.ledger().written(),
                discarded_bytes: tier.discards().bytes.load(Ordering::Relaxed),
                live_bytes,
                dead_bytes: (segments_total * segment_bytes).saturating_sub(free_bytes + live_bytes),
                free_bytes,
                states,
                classes: tier.slots().classes(),
                operations: device.map(|device| device.counters()).unwrap_or_default(),
            }
        };
        let output = self.output_tier();
        let output_bytes = u64::from(output.slots_in_reach()) * u64::from(output.shape().segment_bytes);
        Stats {
            keys: self.index.len(),
            live_bytes: self.live_bytes(),
            user_limit_bytes: self.user_limit_bytes(),
            reserve_bytes: output_bytes.saturating_sub(self.user_limit_bytes()),
            index_bytes: self.index.memory_bytes(),
            cache_bytes: self.cache.bytes(),
            latency_bytes: self.recorder().memory_bytes(),
            claims: self.index.claims_len() as u64,
            tiers: self.tiers().map(|tier| tier_stats(tier.name())).collect(),
            activity: self.counters.activity(),
        }
    }
}
