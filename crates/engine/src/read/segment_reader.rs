//! Reads one segment from its start to its end: from its memory, else by long reads of the device, several in flight.

use std::pin::Pin;
use std::sync::Arc;

use esker_device::{Buffer, SegmentBuffer};
use esker_log::{FRAME_HEADER_BYTES, PAGE_BYTES, RecordWalk};
use futures_util::stream::{FuturesOrdered, StreamExt};

use crate::base::error::Result;
use crate::catalog::unvisited::SegmentAt;
use crate::segments::slot::SlotState;
use crate::segments::space::Space;
use crate::segments::table::SlotRef;
use crate::segments::tier::Tier;

/// Length of a read in bytes. The reads in flight and the bytes being parsed take at most five times as much, unless a
/// record is longer.
const READ_BYTES: u32 = 512 << 10;
const READS_IN_FLIGHT: usize = 4;
const _: () =
    assert!((READS_IN_FLIGHT as u64 + 1) * (READ_BYTES as u64) < crate::catalog::scans::SCAN_READ_BYTES);

/// A read in flight: its offset and length, and the result.
type Read = (u32, u32, Result<(Buffer, usize)>);
type Reading = Pin<Box<dyn Future<Output = Read> + Send>>;

/// Result of [`SegmentReader::fill`].
pub(super) enum Filled {
    /// There are bytes to walk.
    Bytes,
    /// Every record so far was walked.
    End,
    /// The segment was freed: every record that is still current is elsewhere.
    Gone,
    /// The rest of the segment cannot be read in this way.
    Unreadable,
}

/// A segment that is being read.
pub(super) struct SegmentReader {
    space: Arc<Space>,
    pub(super) at: SegmentAt,
    pub(super) walk: RecordWalk,
    /// Bytes of the segment that were read and not walked yet, and the offset of the first.
    pub(super) bytes: Vec<u8>,
    pub(super) base: u32,
    /// Offset up to which bytes are required for the next step.
    needs: u32,
    /// True if the walk stopped before the end of `bytes`.
    has_rest: bool,
    reads: FuturesOrdered<Reading>,
    /// Offset of the next read.
    next_read: u32,
    /// Offset at which the walk found no frame, and the end of the segment's memory then.
    no_frame: Option<(u32, u32)>,
    /// Offset at which the last visit of the whole segment ended.
    ended_at: Option<u32>,
}

impl SegmentReader {
    pub(super) fn new(space: Arc<Space>, at: SegmentAt, with_values: bool) -> SegmentReader {
        let walk = RecordWalk::new(space.secret, space.tier(at.tier).shape(), at.segment, with_values);
        SegmentReader {
            space,
            at,
            walk,
            bytes: Vec::new(),
            base: 0,
            needs: 0,
            has_rest: false,
            reads: FuturesOrdered::new(),
            next_read: 0,
            no_frame: None,
            ended_at: None,
        }
    }

    fn tier(&self) -> &Tier {
        self.space.tier(self.at.tier)
    }

    fn slot(&self) -> SlotRef<'_> {
        self.tier().slot(self.at.slot)
    }

    /// Returns true if the segment is still in its slot.
    pub(super) fn is_there(&self) -> bool {
        self.slot().segment() == self.at.segment
    }

    /// Notes that the walk requires the bytes up to an offset.
    pub(super) fn require(&mut self, offset: u32) {
        self.needs = offset;
    }

    /// Notes that the walk stopped before it required more bytes.
    pub(super) fn note_rest(&mut self) {
        self.has_rest = true;
    }

    /// Notes that the walk found no frame.
    pub(super) fn note_no_frame(&mut self) {
        self.no_frame = Some((self.walk.at(), self.base + self.bytes.len() as u32));
    }

    /// Begins again at the end of the last visit. Returns false if the last visit ended there too: records behind it cannot
    /// be found.
    pub(super) fn resume(&mut self) -> bool {
        let at = self.walk.at();
        if self.ended_at.replace(at) == Some(at) {
            return false;
        }
        self.bytes.clear();
        self.reads = FuturesOrdered::new();
        (self.next_read, self.no_frame) = (in_whole_pages(at), None);
        true
    }

    /// Provides more bytes for the walk.
    ///
    /// # Errors
    /// Errors that do not concern the bytes read.
    pub(super) async fn fill(&mut self) -> Result<Filled> {
        if !self.is_there() {
            return Ok(Filled::Gone);
        }
        if std::mem::take(&mut self.has_rest) {
            return Ok(Filled::Bytes);
        }
        let SegmentAt { segment, tier, slot } = self.at;
        if let Some(buffered) = self.space.buffered.find(tier, slot, segment) {
            return Ok(self.fill_from_memory(&buffered.buffer));
        }
        match self.fill_from_device().await {
            Err(error) if error.is_of_reading() => Ok(Filled::Unreadable),
            filled => filled,
        }
    }

    /// Copies bytes out of the segment's memory, which is not held afterwards.
    fn fill_from_memory(&mut self, memory: &SegmentBuffer) -> Filled {
        let published = memory.published() as u32;
        if let Some(frame) = self.walk.open_frame() {
            let frame = frame as usize;
            match memory.get(frame..frame + FRAME_HEADER_BYTES) {
                Some(header) => drop(self.walk.close_frame(header)),
                None => self.walk.extend_open_frame(published),
            }
        }
        if self.walk.at() < published && memory.get_from(self.walk.at() as usize).is_empty() {
            // The header of the open frame is not filled in yet.
            self.walk.begin_open_frame(published);
        }
        let at = self.walk.at();
        let bytes = memory.get_from(at as usize);
        let wanted = READ_BYTES.max(self.needs.saturating_sub(at)) as usize;
        let bytes = &bytes[..bytes.len().min(wanted)];
        if bytes.is_empty() || self.no_frame == Some((at, at + bytes.len() as u32)) {
            return Filled::End;
        }
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        self.base = at;
        Filled::Bytes
    }

    async fn fill_from_device(&mut self) -> Result<Filled> {
        if let Some(frame) = self.walk.open_frame() {
            let bytes = FRAME_HEADER_BYTES as u64;
            let (buffer, from) = self.tier().read_background(self.at.slot, frame, bytes).await?;
            if !self.walk.close_frame(&buffer[from..]) {
                return Ok(Filled::Unreadable);
            }
        }
        let (end, is_open) = self.end();
        let at = self.walk.at();
        if at >= end || is_open && self.no_frame.is_some_and(|(found_at, _)| found_at == at) {
            return Ok(Filled::End);
        }
        // The frame may have been written since, and the segment sealed.
        if self.no_frame.is_some() && !self.resume() {
            return Ok(Filled::Unreadable);
        }
        self.drop_walked();
        loop {
            self.read_ahead(end, is_open);
            let Some((from, bytes, read)) = self.reads.next().await else {
                return Ok(Filled::Unreadable);
            };
            let (buffer, skipped) = read?;
            let read = &buffer[skipped..];
            let read = &read[..read.len().min(bytes as usize)];
            let next = self.base + self.bytes.len() as u32;
            if let Some(new) = read.get((next - from) as usize..) {
                self.bytes.extend_from_slice(new);
            }
            let has = self.base + self.bytes.len() as u32;
            if has > at && has >= self.needs.min(end) {
                return Ok(Filled::Bytes);
            }
        }
    }

    /// Returns the end of the segment's frames, as far as known, and true if it is being filled.
    fn end(&self) -> (u32, bool) {
        let (state, used) = (self.slot().state(), self.slot().used_bytes());
        match (state, used) {
            (SlotState::Open, _) => (self.tier().shape().segment_bytes, true),
            (_, 0) => (self.tier().shape().segment_bytes, true),
            (_, used) => (used, false),
        }
    }

    /// Drops bytes that were walked, and skips the reads of bytes that no step requires.
    fn drop_walked(&mut self) {
        let at = self.walk.at();
        let walked = (at - self.base) as usize;
        if walked < self.bytes.len() {
            self.bytes.drain(..walked);
        } else {
            self.bytes.clear();
        }
        self.base = at;
        if at > self.next_read {
            self.reads = FuturesOrdered::new();
            self.next_read = in_whole_pages(at);
        }
    }

    /// Starts reads up to the end of the segment, as many as are to be in flight.
    fn read_ahead(&mut self, end: u32, is_open: bool) {
        let in_flight = if is_open { 1 } else { READS_IN_FLIGHT };
        while self.reads.len() < in_flight && self.next_read < end {
            let (from, bytes) = (self.next_read, READ_BYTES.min(end - self.next_read));
            let (space, SegmentAt { tier, slot, .. }) = (self.space.clone(), self.at);
            self.reads.push_back(Box::pin(async move {
                (from, bytes, space.tier(tier).read_background(slot, from, bytes.into()).await)
            }));
            self.next_read += bytes;
        }
    }
}

fn in_whole_pages(offset: u32) -> u32 {
    offset - offset % PAGE_BYTES as u32
}
