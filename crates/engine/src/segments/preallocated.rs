//! Taking slots, and opening segments in them.

use std::time::Duration;

use esker_device::Appender;
use esker_log::{OpenSegment, SegmentName, Stream, Superblock};

use crate::base::error::Result;
use crate::segments::buffers::{MemoryPool, PoolBuffer};
use crate::segments::room::is_full;
use crate::segments::slot::SlotState;
use crate::segments::space::{KEEP_FOR_RELOCATION, Space};
use crate::segments::staging::{self, StagingFile};
use crate::segments::tier::Tier;

/// Longest pause between two attempts to get segment memory.
const LONGEST_PAUSE: Duration = Duration::from_millis(16);

/// Number of attempts by `try_open_segment` to get memory that readers hold, at intervals of a millisecond.
const READERS_WAITED_FOR: usize = 8;

impl Space {
    /// Returns the number of free slots of a tier that lanes leave to others; includes the one for staged records only where
    /// there may be any.
    pub(crate) fn kept_slots(&self, tier: &Tier) -> u32 {
        let may_be_staged = self.outlives_process && tier.name() == self.first_tier().name();
        KEEP_FOR_RELOCATION - u32::from(!may_be_staged)
    }

    /// Takes a slot if more than `keep` are free, and prepares it for writing.
    pub(crate) async fn take_slot(&self, tier: &Tier, keep: u32) -> Result<Option<u32>> {
        loop {
            let Some(slot) = tier.take_slot(keep).await? else { return Ok(None) };
            // For any slot: one that was taken and given back may never have been covered.
            let Err(error) = self.superblocks.cover_slot(tier, slot).await else { return Ok(Some(slot)) };
            tier.give_back_with_blocks(slot);
            // Without space for the slot, nothing was harmed.
            if is_full(&error) || !self.survives(tier, &error).await {
                return Err(error);
            }
        }
    }

    /// Begins a segment in a taken slot. No delete published up to `opened_at` concerns the segment's content.
    pub(crate) fn begin_segment(
        &self,
        tier: &Tier,
        slot: u32,
        stream: Stream,
        memory: Appender,
        opened_at: u64,
    ) -> OpenSegment {
        debug_assert_eq!(tier.slot(slot).segment(), 0, "slot {slot} holds another segment");
        let name = SegmentName { segment: self.next_segment(), slot, epoch: self.epoch, stream, opened_at };
        tier.occupy(slot, name.segment, SlotState::Open, opened_at);
        tier.slots().begin(slot, stream, self.sequence.load(std::sync::atomic::Ordering::Relaxed));
        OpenSegment::new(tier.shape(), name, self.secret, memory)
    }

    /// Opens a segment in memory of a pool, if more than `keep` slots are free. Also returns the number of the memory piece.
    pub(crate) async fn open_segment(
        &self,
        tier: &Tier,
        stream: Stream,
        pool: &MemoryPool,
        keep: u32,
        opened_at: u64,
    ) -> Result<Option<(OpenSegment, usize)>> {
        let Some(slot) = self.take_slot(tier, keep).await? else { return Ok(None) };
        let piece = match self.wait_for_memory(pool).await {
            Ok(piece) => piece,
            Err(error) => {
                tier.give_back_with_blocks(slot);
                return Err(error);
            }
        };
        self.begin_in(tier, slot, stream, pool, piece, opened_at).await.map(Some)
    }

    /// Like [`open_segment`](Self::open_segment), but for an optional segment: waits only for readers of the oldest memory
    /// piece, and only briefly, and leaves `spare` pieces of memory to others.
    pub(crate) async fn try_open_segment(
        &self,
        tier: &Tier,
        stream: Stream,
        pool: &MemoryPool,
        (keep, spare): (u32, usize),
        opened_at: u64,
    ) -> Result<Option<(OpenSegment, usize)>> {
        if pool.available() <= spare {
            return Ok(None);
        }
        let Some(slot) = self.take_slot(tier, keep).await? else { return Ok(None) };
        let piece = match self.wait_for_readers(pool, spare).await {
            Ok(Some(piece)) => piece,
            refused => {
                tier.give_back_with_blocks(slot);
                return refused.map(|_| None);
            }
        };
        self.begin_in(tier, slot, stream, pool, piece, opened_at).await.map(Some)
    }

    /// Takes memory of a pool, waiting only for readers of it.
    async fn wait_for_readers(&self, pool: &MemoryPool, spare: usize) -> Result<Option<PoolBuffer>> {
        for _ in 0..READERS_WAITED_FOR {
            match pool.take(&self.buffered)? {
                None if pool.available() > spare => self.runtime.sleep(Duration::from_millis(1)).await,
                taken => return Ok(taken),
            }
        }
        Ok(None)
    }

    async fn begin_in(
        &self,
        tier: &Tier,
        slot: u32,
        stream: Stream,
        pool: &MemoryPool,
        PoolBuffer { memory, index }: PoolBuffer,
        opened_at: u64,
    ) -> Result<(OpenSegment, usize)> {
        let mut open = self.begin_segment(tier, slot, stream, memory, opened_at);
        open.reuse(pool.take_entries());
        if let Some(file) = pool.staging() {
            staging::write_header(file, index, &self.secret, tier.shape(), open.name())?;
            self.cover_staging(file, staging::end_of(index, tier.shape())).await?;
        }
        Ok((open, index))
    }

    /// Waits for memory of a pool. It is returned when a segment is sealed, which never happens in a store that has stopped.
    async fn wait_for_memory(&self, pool: &MemoryPool) -> Result<PoolBuffer> {
        let mut pause = Duration::from_millis(1);
        loop {
            if let Some(piece) = pool.take(&self.buffered)? {
                return Ok(piece);
            }
            self.runtime.sleep(pause).await;
            self.health.check_writable()?;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Makes the superblocks cover a piece of the staging file before any record in it is acknowledged: there may have been no
    /// space for it when the store was opened.
    async fn cover_staging(&self, file: &StagingFile, bytes: u64) -> Result<()> {
        if bytes <= file.covered_bytes() {
            return Ok(());
        }
        // Another piece may be covered concurrently.
        let cover =
            |superblock: &mut Superblock| superblock.staging_bytes = superblock.staging_bytes.max(bytes);
        self.update_superblocks(|_, superblock| cover(superblock)).await?;
        file.cover_bytes(bytes);
        Ok(())
    }
}
