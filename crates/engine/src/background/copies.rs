//! Relocation's view of the store: the records that are needed and where their copies go ([`VictimReader`]), the segments that
//! receive copies ([`CopyTarget`]), and the pace of reads and writes ([`Pace`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use esker_device::{Buffer, DeviceError, SegmentBuffer, WriteMode};
use esker_gc::{Need, NoMemory, Opening, Source, Target, Throttle, Victim, frame_memory};
use esker_log::{ClosedFrame, Entry, Kind, OpenSegment, RecordView, SegmentName, Stream};
use esker_seeded_bugs::{Bug, planted};
use parking_lot::Mutex;

use crate::background::relocate::{Eviction, KEEP_FOR_COLLECTING, Newest};
use crate::base::error::{Error, Result};
use crate::catalog::Catalog;
use crate::segments::accounting::Origin;
use crate::segments::members::Members;
use crate::segments::oldest::Oldest;
use crate::segments::slot::SlotState;
use crate::segments::space::{KEEP_FOR_RELOCATION, Space};
use crate::segments::writer::{SegmentWriter, Summary};
use crate::write::Writer;

/// Number of reads in flight when relocation is not throttled.
const READS_AT_ONCE: usize = 8;

/// Pace of reads and writes.
#[derive(Clone, Copy)]
pub(crate) struct Pace<'a> {
    pub(crate) writer: &'a Writer,
    pub(crate) throttle: &'a Mutex<Throttle>,
    /// Limit of reads and writes in bytes per second; 0 means none.
    pub(crate) bytes_per_s: u64,
    pub(crate) urgency: f64,
}

impl Pace<'_> {
    /// Returns the share of the device that it may use, 0 to 1: all of it while writers are held back.
    fn urgency(&self) -> f64 {
        let now = self.writer.space.runtime.now();
        if self.writer.admission.holds_back(now) { 1.0 } else { self.urgency }
    }

    /// Pauses after a piece of work of `bytes` that began at `began`, to leave the device to others.
    async fn rest(&self, bytes: u64, began: Duration) {
        yield_device(&self.writer.space, self.throttle, bytes, began, self.urgency()).await;
    }
}

/// Pauses after a piece of work, to leave the device to others.
pub(crate) async fn yield_device(
    space: &Space,
    throttle: &Mutex<Throttle>,
    bytes: u64,
    began: Duration,
    urgency: f64,
) {
    let took = space.runtime.now() - began;
    let pause = throttle.lock().pause(bytes, took, urgency);
    if let Some(pause) = pause {
        space.runtime.sleep(pause).await;
    }
}

/// The records of victims.
pub(crate) struct VictimReader<'a> {
    pub(crate) space: &'a Space,
    pub(crate) catalog: &'a Catalog,
    pub(crate) pace: Pace<'a>,
    /// True in the first round; tombstones are copied only then.
    pub(crate) first: bool,
    /// Records to be dropped.
    pub(crate) eviction: Option<&'a Eviction>,
    /// Oldest segments at the start. Segments opened since do not matter: they get only records that are newer, or current.
    pub(crate) oldest: Oldest,
    /// The memtable being written out, if this is one.
    pub(crate) memtable: Option<&'a Newest>,
}

impl VictimReader<'_> {
    /// Returns true if a segment other than the victim may hold an older version of the tombstone's key.
    fn tombstone_is_needed(&self, victim: &Victim, entry: &Entry) -> bool {
        let cleared = self.catalog.is_cleared(entry);
        if planted(Bug::TombstoneDroppedEarly) && self.space.newest_segment() > victim.segment {
            return false;
        }
        !cleared && self.space.may_hold_older(&self.oldest, victim.segment, entry)
    }

    /// Returns true if the record that superseded one of this memtable is in a later memtable, none of which is durable yet.
    fn is_superseded_in_memory(&self, entry: &Entry) -> bool {
        let Some(memtable) = self.memtable.filter(|_| !planted(Bug::CoalescedSupersededDropped)) else {
            return false;
        };
        // Not by a look-up, which misses a key while it moves from one bucket to another.
        let seen = self.catalog.index.suspects(&entry.key_hash);
        let exact =
            seen.exact.iter().filter(|(hash, _)| *hash == entry.key_hash).map(|(_, pointer)| *pointer);
        seen.occupant.into_iter().chain(exact).any(|pointer| {
            let slot = self.space.slot(self.catalog.packing.unpack(pointer.get()));
            slot.is_coalescing() && slot.segment() > memtable.through
        })
    }
}

impl Source for VictimReader<'_> {
    type Error = Error;

    fn need(&self, victim: &Victim, entry: &Entry) -> Need {
        let may_hide = || self.first && self.tombstone_is_needed(victim, entry);
        let is_current = || self.catalog.is_current(victim.shape.tier, victim.slot, entry);
        // A record that is no longer current is not dropped: it may have expired, and hide an older version.
        let drops =
            |eviction: &&Eviction| eviction.drops(victim, entry) && (eviction.is_held() || is_current());
        if let Some(eviction) = self.eviction.filter(drops) {
            let slot = self.space.tier(victim.shape.tier).slot(victim.slot);
            let hides = eviction.is_held() && !slot.hides_nothing() && may_hide();
            return if hides && !planted(Bug::EvictedWithoutTombstone) {
                Need::Tombstone
            } else {
                Need::Nothing
            };
        }
        // After an eviction has reserved its keys, the tombstones needed were copied in the pass before.
        let hides = || !self.eviction.is_some_and(Eviction::is_held) && may_hide();
        match entry.kind {
            Kind::Put if is_current() => Need::Record,
            // The record that superseded it hides the same versions.
            Kind::Put if self.memtable.is_some_and(|memtable| !memtable.has(entry)) => Need::Nothing,
            Kind::Put if self.is_superseded_in_memory(entry) => Need::Record,
            Kind::Put if self.catalog.has_expired_for_good(entry) && hides() => Need::Tombstone,
            Kind::Tombstone if hides() => Need::Record,
            _ => Need::Nothing,
        }
    }

    fn place(&self, victim: &Victim, record: &RecordView<'_>) -> Stream {
        let placement = &self.catalog.placement;
        if self.memtable.is_some() {
            return Stream::DESTAGED;
        }
        if victim.shape.tier != self.space.output_tier().name() {
            return placement.destaged(record.short_lived);
        }
        placement.collected(victim.stream, self.space.age(record.sequence))
    }

    fn reads_at_once(&self) -> usize {
        // One if throttled, because several reads would pause concurrently.
        let unbridled = self.pace.urgency() >= 1.0 && self.pace.bytes_per_s == 0;
        if unbridled { READS_AT_ONCE } else { 1 }
    }

    async fn read(&self, victim: &Victim, offset: u32, bytes: u32) -> Result<(Buffer, usize)> {
        let (tier, at) = (victim.shape.tier, offset as usize);
        if let Some(buffered_segment) = self.space.buffered.find(tier, victim.slot, victim.segment) {
            return Ok((Buffer::copy_from(buffered_segment.buffer.slice(at..at + bytes as usize)), 0));
        }
        let began = self.space.runtime.now();
        let read = self.space.tier(tier).read_background(victim.slot, offset, u64::from(bytes)).await;
        self.pace.rest(bytes.into(), began).await;
        read
    }
}

/// The segments that receive copies.
pub(crate) struct CopyTarget<'a> {
    pub(crate) space: &'a Space,
    pub(crate) pace: Pace<'a>,
    /// Origin of the copied records.
    pub(crate) origin: Origin,
    /// `opened_at` of new outputs. Determined before records are tested for being current, and without unpublished numbers,
    /// because otherwise a copy could be in a segment that seems newer than the tombstone of its key.
    pub(crate) opened_at: u64,
    /// Number of free slots that it leaves.
    pub(crate) keep: u32,
    /// Mean length in bytes of the victims' records that may be needed.
    pub(crate) record_bytes: u32,
    pub(crate) gained_bytes: &'a AtomicI64,
    /// Receives full outputs of a memtable. They stay open until the index points at their records, because otherwise the
    /// collector, which runs concurrently, would take them for garbage.
    pub(crate) filled: Option<&'a Mutex<Vec<Summary>>>,
}

impl CopyTarget<'_> {
    /// Notes that `bytes` of an output are used up.
    fn note_filled(&self, bytes: u64) {
        if self.origin == Origin::Collected {
            self.gained_bytes.fetch_sub(bytes as i64, Ordering::Relaxed);
        }
    }

    /// Writes an empty frame behind the durable part of an output, durably: its header proves how far the output is durable.
    pub(crate) async fn write_proof(&self, output: &mut OpenSegment) -> Result<()> {
        let tier = self.space.output_tier();
        if !output.memory_has_room(0, 0) && !output.reuse_memory() {
            output.replace_memory(frame_memory(tier.shape().unit_bytes as usize)?);
        }
        let bytes = self.segment_writer().write_proof(output).await?;
        self.note_filled(bytes);
        Ok(())
    }

    fn segment_writer(&self) -> SegmentWriter<'_> {
        SegmentWriter::new(self.space, self.space.output_tier(), self.origin)
    }
}

impl From<NoMemory> for Error {
    fn from(NoMemory { bytes, cause }: NoMemory) -> Error {
        Error::invalid(format!("no memory for frames of {bytes} bytes: {cause}"))
    }
}

impl Target for CopyTarget<'_> {
    type Error = Error;

    /// A second output for collected records, for records of another age, requires plenty of free slots, because after a crash
    /// each open output is a slot that is hardly filled.
    async fn open(&self, stream: Stream, bytes: usize, others: usize) -> Result<Opening> {
        let tier = self.space.output_tier();
        let keep_alone = if self.origin == Origin::Collected { self.keep } else { KEEP_FOR_COLLECTING };
        let keep = match self.origin {
            Origin::Collected if others > 0 => keep_alone.max(KEEP_FOR_RELOCATION),
            _ => keep_alone,
        };
        let log = self.space.log_reserve(tier);
        let (keep, keep_alone) = (keep + log, keep_alone + log);
        let slot = match self.space.take_slot(tier, keep).await {
            Ok(Some(slot)) => slot,
            // No slot, or a device without space for one: no data was harmed.
            Ok(None) | Err(Error::Io(DeviceError::Full { .. })) => {
                let not_beside = tier.free_slots() > keep_alone;
                return Ok(if not_beside { Opening::NotBesideOthers } else { Opening::NoSlot });
            }
            Err(error) => return Err(error),
        };
        let output = self.space.begin_segment(tier, slot, stream, frame_memory(bytes)?, self.opened_at);
        tier.slot(slot).expect_records_of(self.record_bytes);
        if planted(Bug::CopiesHideNothing) {
            tier.slot(slot).begin_puts();
        }
        Ok(Opening::Opened(Box::new(output)))
    }

    async fn write_frame(
        &self,
        output: SegmentName,
        memory: Arc<SegmentBuffer>,
        frame: ClosedFrame,
    ) -> Result<()> {
        let bytes = frame.memory.len() as u64;
        let began = self.segment_writer().write_frame(output.slot, memory, &frame, WriteMode::Plain).await?;
        self.note_filled(bytes);
        self.pace.rest(bytes, began).await;
        Ok(())
    }

    async fn seal(&self, output: OpenSegment) -> Result<()> {
        let tier = self.space.output_tier();
        // Before the summary, because otherwise it could name copies lost in a power failure.
        self.space.flush_tier(tier).await?;
        let (writer, summary) = (self.segment_writer(), Summary::of(&output));
        if let Err(error) = writer.write_summary(&summary).await {
            // Its device may be left out: then the index leads to copies in it, and it has no other owner.
            if tier.members().is_some_and(Members::serves) {
                tier.slots().set_state(output.name().slot, SlotState::Damaged);
            }
            return Err(error);
        }
        match self.filled.filter(|_| !planted(Bug::CoalescedSealedBeforeSwing)) {
            Some(filled) => filled.lock().push(summary),
            None => writer.note_sealed(&summary, self.space.newest_segment()),
        }
        self.note_filled(u64::from(tier.shape().segment_bytes - output.tail()));
        Ok(())
    }
}
