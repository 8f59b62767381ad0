//! The one writer of segments: frames, the proof that they are durable, and summaries. Puts, copies of relocation and records
//! recovered from the staging file are all written here.

use std::sync::Arc;
use std::time::Duration;

use esker_device::{Buffer, Device, DeviceError, Pending, SegmentBuffer, Source, WriteMode};
use esker_log::{ClosedFrame, EntryList, OpenSegment, Stream, SummaryHead};

use crate::base::error::{Error, Result};
use crate::segments::accounting::{Content, Origin};
use crate::segments::contents::Contents;
use crate::segments::space::Space;
use crate::segments::tier::Tier;

/// A frame write in flight.
pub(crate) type FrameWrite = Pending<std::result::Result<(), DeviceError>>;

/// Writes segments of one tier.
#[derive(Clone, Copy)]
pub(crate) struct SegmentWriter<'a> {
    space: &'a Space,
    tier: &'a Tier,
    /// Source of the records it writes.
    origin: Origin,
    /// True if the memory of a segment holds all of it, as that of a lane does: then it can be written again elsewhere.
    is_whole: bool,
}

impl<'a> SegmentWriter<'a> {
    pub(crate) fn new(space: &'a Space, tier: &'a Tier, origin: Origin) -> SegmentWriter<'a> {
        SegmentWriter { space, tier, origin, is_whole: false }
    }

    /// Writes the segments that a lane fills, whose memory is kept until they have their summary.
    pub(crate) fn of_lane(space: &'a Space, tier: &'a Tier) -> SegmentWriter<'a> {
        SegmentWriter { space, tier, origin: Origin::User, is_whole: true }
    }

    pub(crate) fn tier(&self) -> &'a Tier {
        self.tier
    }

    /// Starts writing a frame of the segment in a slot.
    pub(crate) fn begin_frame(
        &self,
        device: &Arc<dyn Device>,
        slot: u32,
        buffer: Arc<SegmentBuffer>,
        frame: &ClosedFrame,
        mode: WriteMode,
    ) -> FrameWrite {
        if let Some(members) = self.tier.members().filter(|_| self.is_whole) {
            members.open.begin(slot, &buffer, frame.memory.end as u32);
        }
        let source = Source::Shared { buffer, range: frame.memory.clone() };
        let payload_bytes = frame.payload_bytes;
        let padding_bytes = source.len() as u64 - u64::from(payload_bytes);
        let relocated = matches!(self.origin, Origin::Destaged | Origin::Collected);
        if self.origin != Origin::Recovered {
            self.space.counters.count_frame(relocated, payload_bytes.into(), padding_bytes);
        }
        let content = Content::Frame {
            origin: self.origin,
            header_bytes: self.tier.shape().first_record(frame.offset),
            payload_bytes,
        };
        self.tier.start_write(device, slot, frame.offset, source, mode, content)
    }

    /// Writes a frame, and waits for completion. Returns the time at which the write began.
    pub(crate) async fn write_frame(
        &self,
        slot: u32,
        buffer: Arc<SegmentBuffer>,
        frame: &ClosedFrame,
        mode: WriteMode,
    ) -> Result<Duration> {
        let began = self.space.runtime.now();
        let written = self.begin_frame(&self.tier.device()?, slot, buffer, frame, mode).await;
        self.tier.wrote_since(began);
        match written.map_err(Error::from) {
            Err(error) if self.is_written_elsewhere(slot, &error).await => Ok(began),
            written => written.map(|()| began),
        }
    }

    /// Called with the error of writing a frame of the segment that a lane is filling in a slot. Returns true if the frame was
    /// durably written to another device.
    pub(crate) async fn is_written_elsewhere(&self, slot: u32, error: &Error) -> bool {
        self.is_whole && self.space.survives(self.tier, error).await && !Space::is_lost(self.tier, slot)
    }

    /// Writes an empty frame behind the durable part of a segment, durably: its header proves how far the segment is durable.
    pub(crate) async fn write_proof(&self, segment: &mut OpenSegment) -> Result<u64> {
        let frame = segment.close_empty_frame();
        let bytes = frame.memory.len() as u64;
        let (slot, buffer) = (segment.name().slot, segment.memory().buffer());
        self.write_frame(slot, buffer, &frame, WriteMode::Durable).await?;
        Ok(bytes)
    }

    /// Seals a segment whose frames are all durable: writes its summary, durably. From then on it may be relocated. `sealed_at`
    /// returns its age, as the number of the newest segment at that time.
    pub(crate) async fn seal(&self, summary: Summary, sealed_at: impl FnOnce() -> u64) -> Result<()> {
        self.write_summary(&summary).await?;
        self.note_sealed(&summary, sealed_at());
        Ok(())
    }

    /// Writes a summary, durably, and leaves the segment open, so that it cannot be relocated.
    pub(crate) async fn write_summary(&self, summary: &Summary) -> Result<()> {
        let Summary { slot, start, bytes, .. } = summary;
        self.space.counters.count_summary(bytes.len() as u64);
        loop {
            let source = Source::Owned(Buffer::copy_from(bytes));
            let device = self.tier.device()?;
            let written =
                self.tier.write(&device, *slot, *start, source, WriteMode::Durable, Content::Summary).await;
            match written {
                Err(error) if self.is_written_elsewhere(*slot, &error).await => {}
                written => {
                    self.tier.members().iter().for_each(|members| members.open.end(*slot));
                    return written;
                }
            }
        }
    }

    /// Marks a segment whose summary is written as sealed: it may be relocated from now on.
    pub(crate) fn note_sealed(&self, summary: &Summary, sealed_at: u64) {
        let Summary { slot, stream, tail, contents, .. } = summary;
        self.tier.slots().seal(*slot, *stream, *tail, sealed_at, contents);
    }
}

/// The summary of a segment, and the part of it that stays in memory.
pub(crate) struct Summary {
    slot: u32,
    stream: Stream,
    tail: u32,
    start: u32,
    bytes: Vec<u8>,
    contents: Contents,
}

impl Summary {
    /// Creates the summary of a segment whose frames are all closed.
    pub(crate) fn of(segment: &OpenSegment) -> Summary {
        let (name, (start, bytes)) = (segment.name(), segment.summary());
        let contents = Contents::of_list(segment.entries());
        Summary { slot: name.slot, stream: name.stream, tail: segment.tail(), start, bytes, contents }
    }

    /// Creates the summary of a segment whose frames were found by an opening.
    pub(crate) fn of_found(
        space: &Space,
        tier: &Tier,
        slot: u32,
        head: SummaryHead,
        entries: &EntryList,
    ) -> Summary {
        let (start, bytes) = esker_log::seal(entries, &space.secret, head, tier.shape());
        let SummaryHead { stream, tail, .. } = head;
        Summary { slot, stream, tail, start, bytes, contents: Contents::of_list(entries) }
    }
}
