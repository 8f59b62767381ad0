//! Writes memtables out: only the records that were not overwritten meanwhile.
//!
//! The order is that of relocation (`relocate`), with victims that are in memory only:
//!
//! 1. Records that are still current are copied to segments for survivors, and flushed; the index is swung to the copies. A
//!    segment that is mostly current is written as it is instead, and so is one for whose survivors there is no slot.
//! 2. The lane is flushed, because records that superseded dropped ones may be in its open segment.
//! 3. The memory is voided, then its slots are freed, and waiting writers are notified.
//!
//! A record that supersedes another while that one's memtable is being written out belongs to the next memtable, and is not
//! durable together with this one. The superseded record therefore counts as needed.

use std::sync::Arc;
use std::time::Duration;

use esker_device::WriteMode;
use esker_gc::Victim;
use esker_log::{ClosedFrame, Entry, EntryList, Kind, Stream};
use esker_seeded_bugs::{Bug, planted};

use crate::background::expire::Expirer;
use crate::background::relocate::{Newest, Relocator, Victims};
use crate::base::error::{Error, Result};
use crate::base::waiting::woken_or_after;
use crate::catalog::Catalog;
use crate::segments::buffers::BufferedSegment;
use crate::segments::space::Space;
use crate::segments::writer::SegmentWriter;
use crate::write::Writer;
use crate::write::coalescing::{Memtable, Piece};
use crate::write::committer::seal;
use crate::write::lane::Lane;
use crate::write::preallocate::secure_kept_slots;

/// Share of a segment's capacity that must be current to write it as it is, because copying would save little.
const WRITTEN_WHOLE_SHARE: f64 = 0.75;

/// Number of memory pieces left to the lane's own segments.
const LEFT_TO_LANE: usize = 2;
/// Time without new records after which a segment of survivors is sealed: while it is open, its garbage and the versions it
/// hides are kept.
const SEALED_AFTER: Duration = Duration::from_secs(30);

/// Runs until the lane stops and all records are written.
pub(crate) async fn run(writer: Arc<Writer>) {
    let (space, catalog, writer) = (&*writer.space, &*writer.catalog, &*writer);
    let relocator = Relocator::new(Expirer { space, catalog, writer });
    let mut coalescer = Coalescer { space, catalog, lane: &writer.lane, relocator, wrote_at: None };
    let ended = coalescer.run().await;
    if let Err(error) = &ended {
        space.latch(error);
    }
    writer.lane.coalescing_ended(ended);
}

/// Provides the segments of memtables, until the lane stops. A task of its own, so that the next memtable is filled while one
/// is being written out.
pub(crate) async fn provide(writer: Arc<Writer>) {
    let (space, lane) = (&*writer.space, &writer.lane);
    loop {
        let woken = lane.coalescing_spare_taken.notified();
        if lane.is_stopping() || space.health.check_latch().is_err() {
            return;
        }
        if lane.wants_coalescing_spare() {
            lane.begin_providing();
            let next = next_segment(space, lane).await;
            let is_there = matches!(next, Ok(Some(_)));
            match next {
                Ok(Some(piece)) => lane.put_coalescing_spare(piece),
                Ok(None) => lane.lacks_coalescing_spare(),
                Err(error) => space.latch(&error),
            }
            lane.end_providing();
            // Fewer slots are kept for memtables now, or one was given back: waiting writers may get one, or learn that there
            // is none.
            space.announce_free_slot();
            if lane.is_out_of_room() {
                space.reclaim.notify_one();
            }
            if is_there {
                space.note_what_may_wait();
                continue;
            }
        }
        woken.await;
    }
}

/// Opens the next segment to fill, if a slot and memory are available.
async fn next_segment(space: &Space, lane: &Lane) -> Result<Option<Piece>> {
    if space.health.check_writable().is_err() {
        return Ok(None);
    }
    let tier = space.tier(lane.shape.tier);
    let segments = lane.coalescing_segments();
    // Slots left to relocation, and to the survivors of a memtable, which has half of the segments.
    let copies = (segments as f64 / 2.0 * WRITTEN_WHOLE_SHARE).ceil() as u32;
    let keep = space.kept_slots(tier) + space.log_reserve(tier) + copies;
    let opened_at = lane.published_through();
    let (pool, spare) = (&lane.pool, LEFT_TO_LANE);
    let opened = async {
        secure_kept_slots(space, tier).await?;
        space.try_open_segment(tier, Stream::DESTAGED, pool, (keep, spare), opened_at).await
    };
    match opened.await {
        Ok(Some((segment, piece))) => {
            space.buffered.add(BufferedSegment::of(&segment));
            // While it is empty, it keeps no tombstone.
            tier.slots().open_at(segment.name().slot, u64::MAX);
            Ok(Some((segment, piece)))
        }
        Ok(None) | Err(Error::Closed { .. } | Error::Io(esker_device::DeviceError::Full { .. })) => Ok(None),
        Err(error) => Err(error),
    }
}

struct Coalescer<'a> {
    space: &'a Space,
    catalog: &'a Catalog,
    lane: &'a Arc<Lane>,
    relocator: Relocator<'a>,
    /// Time of the last write-out since a segment of survivors was sealed; `None` if there was none.
    wrote_at: Option<Duration>,
}

impl Coalescer<'_> {
    async fn run(&mut self) -> Result<()> {
        loop {
            let woken = self.lane.coalescing_work.notified();
            self.space.health.check_latch()?;
            // Read first, so that all records appended before the stop are in the memtable.
            let is_stopping = self.lane.is_stopping();
            if let Some(Memtable { pieces, completion }) = self.lane.next_memtable(self.space.runtime.now()) {
                let written = self.write_out(pieces).await;
                self.wrote_at = Some(self.space.runtime.now());
                if let Err(error) = &written {
                    // Latched before any task can observe that no record waits any more.
                    self.space.latch(error);
                }
                self.lane.memtable_written(self.relocator.output_ends().into_iter().collect());
                completion.open(written.clone());
                written?;
                // Victims may wait for the memtable.
                self.space.reclaim.notify_one();
            } else if is_stopping {
                return self.relocator.finish().await;
            } else if self.relocator.expires_from().is_some_and(|at_ms| at_ms <= self.catalog.confirmed_ms())
            {
                self.relocator.expire_outputs().await?;
            } else if self.seals_at().is_some_and(|at| at <= self.space.runtime.now()) {
                self.wrote_at = None;
                self.relocator.finish().await?;
            } else {
                self.rest(woken).await;
            }
        }
    }

    /// Returns the time at which the segment of survivors is to be sealed.
    fn seals_at(&self) -> Option<Duration> {
        self.wrote_at.map(|at| at + SEALED_AFTER)
    }

    /// Waits for work.
    async fn rest(&self, woken: impl Future<Output = ()>) {
        let now = self.space.runtime.now();
        let due = self.lane.coalescing_deadline().into_iter().chain(self.seals_at()).min();
        let due = due.map(|at| at.saturating_sub(now));
        let expiry = self.relocator.expires_from().map(|at_ms| {
            let left = at_ms.saturating_sub(self.catalog.confirmed_ms());
            Duration::from_millis(left.clamp(1, 1000))
        });
        woken_or_after(&*self.space.runtime, woken, due.into_iter().chain(expiry).min()).await;
    }

    /// Writes a memtable out. Afterwards every record appended before it ended is durable, or superseded by a durable one.
    async fn write_out(&mut self, pieces: Vec<Piece>) -> Result<()> {
        let tier = self.space.tier(self.lane.shape.tier);
        let newest = Newest::of(pieces.iter().map(|(segment, _)| segment));
        let numbers = || pieces.iter().map(|(segment, _)| segment.name().opened_at);
        let last = numbers().max().filter(|_| planted(Bug::MemtableNumberedByLast));
        let opened_at = last.or_else(|| numbers().min()).unwrap_or(0);
        let (mut whole, mut left): (Vec<Closed>, Vec<Closed>) =
            pieces.into_iter().map(Closed::of).partition(|closed| closed.is_mostly_current(self.space));
        let mut victims: Victims = left.iter().map(|closed| closed.victim(&newest, self.catalog)).collect();
        let (emptied, copied) = self.copy(&mut victims, opened_at, &newest).await?;
        whole.extend(left.drain(emptied..));
        let records: usize = left.iter().map(|closed| closed.segment.0.entries().len()).sum();
        self.space.counters.count_coalesced((records - copied) as u64);

        let writer = SegmentWriter::of_lane(self.space, tier);
        for Closed { segment: (segment, _), frame } in &whole {
            let (slot, buffer) = (segment.name().slot, segment.memory().buffer());
            writer.write_frame(slot, buffer, frame, WriteMode::Plain).await?;
        }
        if !whole.is_empty() && !planted(Bug::WholeSegmentsNotFlushed) {
            self.space.flush_tier(tier).await?;
        }
        if !planted(Bug::CoalescedFreedBeforeFlush) {
            self.lane.flush().wait().await?;
        }
        let given_back = whole.len() + left.len();
        for Closed { segment: (segment, piece), .. } in whole {
            tier.slot(segment.name().slot).set_coalescing(false);
            seal(self.space, self.lane, segment, piece).await?;
        }
        for Closed { segment: (_, piece), .. } in left.iter().filter(|_| !planted(Bug::CoalescedNotVoided)) {
            self.lane.void_staged(*piece)?;
        }
        for Closed { segment: (segment, piece), .. } in left {
            tier.leave_slot(segment.name().slot, self.space.runtime.now());
            self.lane.pool.park(segment, piece);
        }
        // After the slots are free, because otherwise waiting writers would seem to wait in vain; and before they are notified.
        self.lane.give_coalescing_slots_back(given_back);
        self.space.announce_free_slot();
        Ok(())
    }

    /// Copies the survivors, and repeats that for those whose copies were written to a device that failed and was left out.
    async fn copy(
        &mut self,
        victims: &mut Victims,
        opened_at: u64,
        newest: &Newest,
    ) -> Result<(usize, usize)> {
        let tier = self.space.output_tier();
        loop {
            match self.relocator.copy_coalesced(victims, opened_at, newest).await {
                Err(error) if self.space.survives(tier, &error).await => self.relocator.drop_lost_outputs(),
                copied => return copied,
            }
        }
    }
}

/// A memtable segment, with the single frame that holds its records.
struct Closed {
    segment: Piece,
    frame: ClosedFrame,
}

impl Closed {
    fn of((mut segment, piece): Piece) -> Closed {
        let frame = segment.close_frame(0).expect("it has records");
        Closed { segment: (segment, piece), frame }
    }

    fn is_mostly_current(&self, space: &Space) -> bool {
        let segment = &self.segment.0;
        let live = space.tier(segment.shape().tier).slot(segment.name().slot).live_bytes();
        live as f64 >= (u64::from(segment.tail()) + segment.room_bytes()) as f64 * WRITTEN_WHOLE_SHARE
    }

    /// Returns the records that may be needed: leaves out records superseded by a later one of the memtable.
    fn victim(&self, newest: &Newest, catalog: &Catalog) -> (Victim, EntryList) {
        let segment = &self.segment.0;
        let (name, tier) = (segment.name(), segment.shape().tier);
        let may_be_needed = |entry: &Entry| {
            entry.kind == Kind::Tombstone || newest.has(entry) || catalog.is_known(tier, name.slot, entry)
        };
        let entries: EntryList = segment.entries().iter().filter(may_be_needed).collect();
        let victim = Victim {
            segment: name.segment,
            slot: name.slot,
            shape: segment.shape(),
            stream: name.stream,
            records: segment.entries().len(),
        };
        (victim, entries)
    }
}

#[cfg(test)]
#[path = "coalesce_tests.rs"]
mod tests;
