//! A checkpoint: the content of the store at one point in time, which can be read while the store is written to.
//!
//! 1. Relocation pauses and all keys are reserved, so nothing moves and no write is in progress.
//! 2. Acknowledged writes are flushed. The checkpoint is the set of segments that exist now, each up to its end: a
//!    store that recovers from them has the content of this moment.
//! 3. Writers and relocation resume. Records are only appended, so a segment never changes below its end. A segment is
//!    not freed until it was read, or the checkpoint is dropped or cancelled. See `segments/kept.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use esker_log::{FOOTER_BYTES, Footer, Superblock, Tier as TierName};
use esker_seeded_bugs::{Bug, planted};
use futures_util::future::{Either, select};
use tokio::sync::OwnedMutexGuard;

use crate::background::pause::Rest;
use crate::base::error::{Error, Result};
use crate::segments::slot::SlotState;
use crate::segments::space::Space;
use crate::segments::table::SlotRef;
use crate::segments::tier::Tier;
use crate::store::handle::Store;
use crate::write::reserve::Reservation;

/// Interval between checks of a segment that is being sealed.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// How long relocation pauses for writers to finish, at first and at most. Each attempt doubles it, because a writer
/// that waits for the drive may take longer.
const PATIENCE: Duration = Duration::from_millis(200);
const LONGEST_PATIENCE: Duration = Duration::from_secs(5);

/// A segment of a [`Checkpoint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointSegment {
    /// Tier of the segment.
    pub tier: TierName,
    /// Slot within the tier.
    pub slot: u32,
    /// Number of the segment, unique within the store for all time.
    pub number: u64,
    /// Bytes of the segment that belong to the checkpoint, from its start.
    pub bytes: u32,
    /// True if the whole segment belongs to the checkpoint; its content no longer changes.
    pub is_sealed: bool,
    /// End of its last frame, if known when the checkpoint was taken.
    tail: u32,
}

/// The content of a store at one point in time. See [`Store::checkpoint`].
pub struct Checkpoint {
    space: Arc<Space>,
    superblocks: Vec<Superblock>,
    taken_at_ms: u64,
    keys: u64,
    left: BTreeMap<u64, CheckpointSegment>,
    /// Bytes of the segments in `left`.
    left_bytes: u64,
    _only: OwnedMutexGuard<()>,
}

impl Store {
    /// Takes a checkpoint, to be read segment by segment while the store is written to. Writers wait for about as long
    /// as a flush takes. Segments are kept until they were read or the checkpoint is dropped, so read them without a
    /// pause, in the order of [`next`](Checkpoint::next). While writers run out of room, the checkpoint is cancelled,
    /// and its segments released, after 2 s without a read, or if the segment that collection wants was not read within
    /// 20 s.
    ///
    /// # Errors
    /// `Invalid` if another checkpoint of this store exists, `Closed` after a close or a failed write, `Cancelled` if
    /// relocation resumed before the checkpoint was complete.
    pub async fn checkpoint(&self) -> Result<Checkpoint> {
        let (space, writer) = (&self.space, &self.writer);
        space.health.check_writable()?;
        let only = space.kept.only_one.clone().try_lock_owned().map_err(|_| {
            Error::invalid(
                "another checkpoint of this store is being read, or was cancelled and waits for its target; it has to be \
                 dropped first",
            )
        })?;
        // This first flush keeps the second one short, for which writers wait.
        writer.flush().await?;
        // 1.
        let (rest, reservation) = self.still().await?;
        // 2.
        if !planted(Bug::CheckpointNotFlushed) {
            writer.flush().await?;
        }
        let filled = writer.lanes().flat_map(|lane| lane.ends());
        let outputs = rest.outputs.iter().copied().filter(|_| !planted(Bug::OutputsNotInCheckpoint));
        let ends: Vec<(u64, u32)> = filled.chain(outputs).collect();
        let segments = space.tiers().flat_map(|tier| segments_of(tier, &ends));
        let left: BTreeMap<u64, CheckpointSegment> = segments.map(|s| (s.number, s)).collect();
        let kept = left.keys().copied().filter(|_| !planted(Bug::CheckpointSegmentsFreed));
        space.kept.keep(kept, space.runtime.now());
        let mut checkpoint = Checkpoint {
            space: space.clone(),
            superblocks: Vec::new(),
            taken_at_ms: self.now_ms(),
            keys: self.catalog.index.len(),
            left_bytes: left.values().map(|segment| u64::from(segment.bytes)).sum(),
            left,
            _only: only,
        };
        checkpoint.superblocks = space.superblocks.all().await;
        if rest.is_over() {
            return Err(Error::Cancelled {
                reason: "relocation went on before it was complete, since a flush took too long; try again"
                    .into(),
            });
        }
        // 3.
        drop((reservation, rest));
        Ok(checkpoint)
    }

    /// Cancels the current checkpoint: its segments are released, and its next read fails with [`Error::Cancelled`] and
    /// this reason. Returns false if there is no checkpoint.
    pub fn cancel_checkpoint(&self, reason: impl Into<String>) -> bool {
        let is_cancelled = self.space.kept.cancel(reason);
        self.space.reclaim.notify_one();
        is_cancelled
    }

    /// Pauses relocation and reserves every key. A writer that holds a reservation may wait for room that only
    /// relocation makes, so relocation resumes between attempts.
    async fn still(&self) -> Result<(Rest, Reservation)> {
        let mut patience = PATIENCE;
        loop {
            let rest = self.pauses.ask(|| self.space.reclaim.notify_one()).await?;
            let reserved = std::pin::pin!(self.writer.lane.reserve_all());
            match select(reserved, self.space.runtime.sleep(patience)).await {
                Either::Left((reservation, _)) => return Ok((rest, reservation?)),
                Either::Right(_) => drop(rest),
            }
            patience = (2 * patience).min(LONGEST_PATIENCE);
        }
    }
}

/// Returns the segments of a tier that hold data. `ends`: number and end of each segment that is still open.
fn segments_of<'a>(tier: &'a Tier, ends: &'a [(u64, u32)]) -> impl Iterator<Item = CheckpointSegment> + 'a {
    let bytes_of = |slot: SlotRef<'_>| match slot.state() {
        SlotState::Free => 0,
        // An open segment without an entry in `ends` belongs to no lane or relocation: it is spare, and empty.
        SlotState::Open => {
            ends.iter().find(|(segment, _)| *segment == slot.segment()).map_or(0, |(_, end)| *end)
        }
        SlotState::Sealed | SlotState::Victim | SlotState::Damaged => tier.shape().segment_bytes,
    };
    let segment = move |(slot, at): (u32, SlotRef<'_>)| {
        let bytes = bytes_of(at);
        let is_sealed = bytes == tier.shape().segment_bytes;
        let tail = at.used_bytes();
        CheckpointSegment { tier: tier.name(), slot, number: at.segment(), bytes, is_sealed, tail }
    };
    tier.slots().in_use().map(segment).filter(|segment| segment.bytes > 0)
}

impl Checkpoint {
    /// Returns the superblocks of the store's tiers.
    pub fn superblocks(&self) -> &[Superblock] {
        &self.superblocks
    }

    /// Returns when the checkpoint was taken, by the store's clock, in milliseconds since the Unix epoch.
    pub fn taken_at_ms(&self) -> u64 {
        self.taken_at_ms
    }

    /// Returns the number of keys in the checkpoint.
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// Returns the number of segments still to be read.
    pub fn segments_left(&self) -> usize {
        self.left.len()
    }

    /// Returns the bytes of segments still to be read.
    pub fn bytes_left(&self) -> u64 {
        self.left_bytes
    }

    /// Returns the segment to read next: the one that collection waits for, if any, else the oldest. `None` when all
    /// were read.
    pub fn next(&self) -> Option<CheckpointSegment> {
        let wanted = self.space.kept.wanted().and_then(|(number, _)| self.left.get(&number));
        wanted.or_else(|| self.left.values().next()).copied()
    }

    /// Returns true if collection waits for a segment that is still to be read. A rate limit on reading should be
    /// ignored then, because writers may be waiting for that room.
    pub fn is_waited_for(&self) -> bool {
        self.space.kept.wanted().is_some()
    }

    /// Returns an error if the checkpoint was cancelled.
    ///
    /// # Errors
    /// `Cancelled`, with the reason.
    pub fn check(&self) -> Result<()> {
        self.space.kept.check()
    }

    /// Reads bytes of a segment, as they are in the checkpoint.
    ///
    /// # Errors
    /// `Invalid` if the segment was released or the bytes are not in it, `Io` if they cannot be read, `Closed` after a close,
    /// `Cancelled` if the checkpoint was cancelled.
    pub async fn read(&self, segment: &CheckpointSegment, offset: u32, bytes: u32) -> Result<Vec<u8>> {
        let end = offset.checked_add(bytes).filter(|&end| end <= segment.bytes);
        if end.is_none() || self.left.get(&segment.number) != Some(segment) {
            return Err(Error::invalid(format!(
                "bytes {offset} to {offset}+{bytes} of segment {} are not in the checkpoint",
                segment.number
            )));
        }
        let tier = self.space.tier(segment.tier);
        // Waits until the summary is complete.
        let waits = segment.is_sealed && !planted(Bug::SealingSegmentCopied);
        while waits && tier.slot(segment.slot).state() == SlotState::Open {
            self.space.health.check_writable()?;
            self.check()?;
            self.space.runtime.sleep(LOOK_EVERY).await;
        }
        let read = tier.read_background(segment.slot, offset, bytes.into()).await;
        // Must come after the read: if the checkpoint was cancelled meanwhile, the slot may have been freed and reused.
        if !planted(Bug::CancelledCheckpointRead) {
            self.check()?;
        }
        self.space.kept.note_progress(self.space.runtime.now());
        let (buffer, at) = read?;
        Ok(buffer[at..at + bytes as usize].to_vec())
    }

    /// Returns a footer for the end of a sealed segment whose own footer is unreadable on the device. A store opened
    /// from a copy of the checkpoint learns from it that the segment existed, and up to which offset, and so which
    /// records are lost.
    pub fn footer_in_place_of_lost(&self, segment: &CheckpointSegment) -> [u8; FOOTER_BYTES] {
        let tier = self.space.tier(segment.tier);
        let slot = tier.slot(segment.slot);
        // The segment may have been freed since, and its slot reused.
        let is_there = slot.segment() == segment.number && !planted(Bug::LostEndTooShort);
        let tail = segment.tail.max(if is_there { slot.used_bytes() } else { 0 });
        let CheckpointSegment { number, bytes, .. } = *segment;
        Footer::in_place_of_lost(&self.space.secret, bytes, number, slot.stream(), tail)
    }

    /// Releases a segment that is no longer needed.
    pub fn let_go(&mut self, segment: &CheckpointSegment) {
        let gone = self.left.remove(&segment.number);
        self.left_bytes -= gone.map_or(0, |segment| u64::from(segment.bytes));
        self.space.kept.release(segment.number, self.space.runtime.now());
    }
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        self.space.kept.release_all();
    }
}

impl std::fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Checkpoint");
        shown.field("taken_at_ms", &self.taken_at_ms).field("keys", &self.keys);
        shown.field("segments_left", &self.left.len()).finish_non_exhaustive()
    }
}
