//! Keeping the next segment ready, so that writers do not wait for one.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_device::Appender;
use esker_log::{OpenSegment, SegmentName, Stream, Tier as TierName};

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::lane::Lane;
use crate::memory::{MemoryPool, Piece, Resident};
use crate::slot::SlotState;
use crate::staging::{self, StagingFile};
use crate::tier::Tier;

/// Free slots that lanes leave to others: one that may be lent to deletes, two for outputs of relocation, of which the second
/// is for the time after a crash that ended what the first was for, and one for records that an opening finds staged.
pub(crate) const KEEP_FOR_RELOCATION: u32 = 4;

/// A lane that waits for memory looks so often at least.
const LONGEST_PAUSE: Duration = Duration::from_millis(16);

/// Provides a lane with segments, until it stops.
pub(crate) async fn run(engine: Arc<Engine>, lane: Arc<Lane>) {
    let mut refused = false;
    loop {
        lane.spare_taken.notified().await;
        loop {
            // Whether the store is full is asked after it too.
            let (goes_on, freed) =
                engine.slot_freed.ask(|| lane.wants_spare() && engine.check_writable().is_ok());
            if !goes_on {
                break;
            }
            // Deletes must go on when puts no longer can: then one slot of relocation's is lent to them. A second one where what a
            // crash left made it the first: without deletes there may be nothing to relocate.
            let (full, stuck) = (engine.full.load(Ordering::Acquire), engine.stuck.load(Ordering::Acquire));
            let keep =
                engine.kept_slots(engine.tier(lane.shape.tier)) - u32::from(full) - u32::from(full && stuck);
            let opened_at = engine.lane.published_through(&engine);
            match engine.next_segment_of(&lane, keep, opened_at).await {
                Ok(Some((segment, piece))) => {
                    refused = false;
                    engine.residents.add(Resident {
                        tier: lane.shape.tier,
                        slot: segment.name().slot,
                        segment: segment.name().segment,
                        buffer: segment.memory().buffer(),
                    });
                    lane.put_spare(segment, piece);
                    engine.balance_memory();
                }
                Ok(None) => {
                    engine.reclaim.notify_one();
                    // The gate opens when a slot is freed, or when it is found that none can be.
                    let _ = freed.wait().await;
                }
                Err(Error::Io(error @ esker_device::DeviceError::Full { .. })) => {
                    // A drive, or the staging file's file system, has no room for another segment; nothing was harmed.
                    if !std::mem::replace(&mut refused, true) {
                        tracing::warn!(%error, "no room for another segment");
                    }
                    lane.refuse_waiting(Error::Io(error));
                    engine.runtime.sleep(Duration::from_millis(100)).await;
                }
                Err(Error::Closed { .. }) => return,
                Err(error) => engine.latch(&error),
            }
        }
        if lane.is_stopping() || engine.check_writable().is_err() {
            return;
        }
    }
}

impl Engine {
    /// Free slots of a tier that lanes leave to others: the one for staged records only where there may be any.
    pub(crate) fn kept_slots(&self, tier: &Tier) -> u32 {
        let may_be_staged = self.outlives_process && tier.name() == self.lane.shape.tier;
        KEEP_FOR_RELOCATION - u32::from(!may_be_staged)
    }

    /// Takes a slot if more than `keep` are free, and makes it fit to be written to.
    pub(crate) async fn take_slot(&self, tier: &Tier, keep: u32) -> Result<Option<u32>> {
        let Some(slot) = tier.take_slot(keep).await? else { return Ok(None) };
        // Whatever it was: one that was taken and given back may never have been covered.
        if let Err(error) = self.note_used_slot(tier.name(), slot).await {
            tier.give_back_with_blocks(slot);
            return Err(error);
        }
        Ok(Some(slot))
    }

    /// Opens the next segment of a lane, if more than `keep` slots are free beside. In a file those have their blocks first:
    /// whoever they are kept for may need them when the file system is full.
    async fn next_segment_of(
        &self,
        lane: &Lane,
        keep: u32,
        opened_at: u64,
    ) -> Result<Option<(OpenSegment, usize)>> {
        let tier = self.tier(lane.shape.tier);
        // As long as there is nothing to delete or to relocate, a file is to be short.
        let is_first = tier.allocation(|slots| slots.in_use()) == 0;
        tier.secure(if is_first { 1 } else { keep + 1 }).await?;
        self.note_limit();
        let opened = self.open_segment(tier.name(), lane.stream, &lane.pool, keep, opened_at).await;
        lane.has_begun.fetch_or(matches!(opened, Ok(Some(_))), Ordering::AcqRel);
        opened
    }

    /// Begins a segment in a slot that was taken. No delete that was published up to `opened_at` concerns what will be in
    /// it.
    pub(crate) fn begin_segment(
        &self,
        tier: &Tier,
        slot: u32,
        stream: Stream,
        memory: Appender,
        opened_at: u64,
    ) -> OpenSegment {
        let name = SegmentName { segment: self.next_segment(), slot, epoch: self.epoch, stream, opened_at };
        tier.occupy(slot, name.segment, SlotState::Open, opened_at);
        tier.slots().begin(slot, stream, self.sequence.load(Ordering::Relaxed));
        OpenSegment::new(tier.shape(), name, self.secret, memory)
    }

    /// Opens a segment in memory of a pool, if more than `keep` slots are free; the second part says which piece it got.
    pub(crate) async fn open_segment(
        &self,
        tier: TierName,
        stream: Stream,
        pool: &MemoryPool,
        keep: u32,
        opened_at: u64,
    ) -> Result<Option<(OpenSegment, usize)>> {
        let tier = self.tier(tier);
        let Some(slot) = self.take_slot(tier, keep).await? else { return Ok(None) };
        let Piece { memory, index } = match self.wait_for_memory(pool).await {
            Ok(piece) => piece,
            Err(error) => {
                tier.give_back_with_blocks(slot);
                return Err(error);
            }
        };
        let open = self.begin_segment(tier, slot, stream, memory, opened_at);
        if let Some(file) = pool.staging() {
            staging::write_header(file, index, &self.secret, tier.shape(), open.name())?;
            self.cover_staging(file, staging::end_of(index, tier.shape())).await?;
        }
        Ok(Some((open, index)))
    }

    /// Memory of a pool for a segment. It comes back when a segment is sealed, and in a store that has stopped none will be.
    async fn wait_for_memory(&self, pool: &MemoryPool) -> Result<Piece> {
        let mut pause = Duration::from_millis(1);
        loop {
            if let Some(piece) = pool.take(&self.residents)? {
                return Ok(piece);
            }
            self.runtime.sleep(pause).await;
            self.check_writable()?;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Sees to it that the superblocks tell of a piece of the staging file before anything in it is acknowledged: there may
    /// have been no room for it when the store was opened.
    async fn cover_staging(&self, file: &StagingFile, bytes: u64) -> Result<()> {
        if bytes <= file.covered_bytes.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut superblocks = self.superblocks.lock().await;
        for superblock in superblocks.iter_mut() {
            superblock.staging_bytes = bytes;
            superblock.generation += 1;
            let tier = self.tier(superblock.tier());
            crate::format::write_superblock(&tier.device()?, tier.ledger(), superblock).await?;
        }
        file.covered_bytes.store(bytes, Ordering::Release);
        Ok(())
    }

    /// Sees to it that the superblock covers a slot before it is used for the first time.
    async fn note_used_slot(&self, tier: TierName, slot: u32) -> Result<()> {
        let mut superblocks = self.superblocks.lock().await;
        let position = superblocks.iter().position(|s| s.tier() == tier).expect("each tier has a superblock");
        if slot < superblocks[position].used_slots {
            return Ok(());
        }
        let mut next = superblocks[position].clone();
        let grows = self.tier(tier).grows();
        next.used_slots = crate::format::used_slots_for(slot + 1, self.tier(tier).slots_total(), grows);
        next.generation += 1;
        let device = self.tier(tier).device()?;
        let ledger = self.tier(tier).ledger();
        // Must come before the superblock says so, or else a crash would leave a file that looks cut off.
        self.tier(tier).extend(next.used_slots).await?;
        crate::format::clear_slots(&device, ledger, &next, superblocks[position].used_slots..next.used_slots)
            .await?;
        crate::format::write_superblock(&device, ledger, &next).await?;
        superblocks[position] = next;
        Ok(())
    }
}
