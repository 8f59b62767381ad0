//! Walks the records of a segment in the order of their offsets, from bytes that arrive piece by piece.
//!
//! A frame's header states the number of its records and where the next frame begins. Of the open frame of a segment in
//! memory there is no header yet: its records end where the memory ends, until the header appears.

use crate::checksum::Secret;
use crate::frame::{FrameHeader, HEADER_BYTES};
use crate::header::{Claim, Damage, HEADER_BYTES_MAX};
use crate::page::{GAP_BYTES_MAX, left_in_page};
use crate::record::{RecordHead, RecordView};
use crate::segment::SegmentShape;

/// A verified record, as far as it was asked for.
#[derive(Clone, Copy, Debug)]
pub enum WalkedRecord<'a> {
    /// With its value. A long value is not verified: see [`RecordView::verify_value`].
    Whole(RecordView<'a>),
    /// Without a long value.
    Head(RecordHead<'a>),
}

/// Result of one step of a walk.
#[derive(Clone, Copy, Debug)]
pub enum WalkStep<'a> {
    /// The next record.
    Record {
        /// Offset in the segment.
        offset: u32,
        /// Length in bytes on the medium, padding to the granule included.
        padded_bytes: u32,
        /// The record.
        record: WalkedRecord<'a>,
    },
    /// The bytes of the segment up to this offset are required for the next step.
    Needs(u32),
    /// No frame of the segment begins at the present offset, or the open frame has no further record.
    NoFrame,
}

/// The frame that is being walked.
#[derive(Clone, Copy, Debug)]
struct WalkedFrame {
    offset: u32,
    /// Records that were walked.
    seen: u32,
    /// Number of its records, and the offset of the next frame; `None` for an open frame.
    closed: Option<(u32, u32)>,
    /// End of its records, as far as known.
    end: u32,
}

/// Position in a segment.
#[derive(Clone, Debug)]
pub struct RecordWalk {
    secret: Secret,
    shape: SegmentShape,
    segment: u64,
    at: u32,
    frame: Option<WalkedFrame>,
    /// True if values are read.
    with_values: bool,
}

impl RecordWalk {
    /// Returns a walk from the start of a segment. `with_values`: long values are read too.
    pub fn new(secret: Secret, shape: SegmentShape, segment: u64, with_values: bool) -> RecordWalk {
        RecordWalk { secret, shape, segment, at: 0, frame: None, with_values }
    }

    /// Returns the offset up to which the segment was walked. The bytes of the next step begin there.
    pub fn at(&self) -> u32 {
        self.at
    }

    /// Returns the offset of the frame being walked, if that is an open one.
    pub fn open_frame(&self) -> Option<u32> {
        self.frame.filter(|frame| frame.closed.is_none()).map(|frame| frame.offset)
    }

    /// Begins an open frame at the present offset, whose records end at `end` so far.
    pub fn begin_open_frame(&mut self, end: u32) {
        self.frame = Some(WalkedFrame { offset: self.at, seen: 0, closed: None, end });
        self.at += self.shape.first_record(self.at);
    }

    /// Notes that the records of the open frame end at `end` so far.
    pub fn extend_open_frame(&mut self, end: u32) {
        if let Some(frame) = self.frame.as_mut().filter(|frame| frame.closed.is_none()) {
            frame.end = end;
        }
    }

    /// Completes the open frame by its header, found at [`open_frame`](Self::open_frame). Returns false if `bytes` do not
    /// begin with it.
    pub fn close_frame(&mut self, bytes: &[u8]) -> bool {
        let Some(frame) = self.frame.filter(|frame| frame.closed.is_none()) else { return false };
        let Some(header) = self.header(bytes, frame.offset) else { return false };
        self.frame = Some(WalkedFrame { seen: frame.seen, ..WalkedFrame::of(&header) });
        self.leave_frame();
        true
    }

    fn header(&self, bytes: &[u8], offset: u32) -> Option<FrameHeader> {
        FrameHeader::parse(bytes, &self.secret, offset).filter(|header| header.segment == self.segment)
    }

    /// Moves behind a frame of which all records were walked.
    fn leave_frame(&mut self) {
        if let Some(WalkedFrame { seen, closed: Some((records, next)), .. }) = self.frame
            && seen >= records
        {
            (self.frame, self.at) = (None, next);
        }
    }

    /// Returns the next record. `bytes` are bytes of the segment from offset `base` on, at most [`at`](Self::at).
    ///
    /// # Errors
    /// Damage of the record at [`at`](Self::at). Without its length the following ones of its frame cannot be found.
    pub fn step<'a>(&mut self, bytes: &'a [u8], base: u32) -> Result<WalkStep<'a>, Damage> {
        let from = |at: u32| bytes.get((at - base) as usize..).unwrap_or(&[]);
        let Some(frame) = self.frame else {
            let here = from(self.at);
            if here.len() < HEADER_BYTES {
                return Ok(WalkStep::Needs(self.at + HEADER_BYTES as u32));
            }
            let Some(header) = self.header(here, self.at) else { return Ok(WalkStep::NoFrame) };
            self.frame = Some(WalkedFrame::of(&header));
            self.at += self.shape.first_record(self.at);
            self.leave_frame();
            return self.step(bytes, base);
        };
        let is_open = frame.closed.is_none();
        let Some(&first) = from(self.at).first() else {
            let is_over = is_open && self.at >= frame.end;
            return Ok(if is_over { WalkStep::NoFrame } else { WalkStep::Needs(self.at + 1) });
        };
        let left = left_in_page(self.at.into());
        let begin = if first == 0 && left <= GAP_BYTES_MAX { self.at + left as u32 } else { self.at };
        let here = from(begin);
        let wanted = (HEADER_BYTES_MAX as u32).min(frame.end.saturating_sub(begin)) as usize;
        if is_open && (wanted == 0 || here.first() == Some(&0)) {
            return Ok(WalkStep::NoFrame);
        }
        let Some(claim) = Claim::of(here) else {
            let is_cut_off = here.len() < wanted;
            return if is_cut_off { Ok(WalkStep::Needs(begin + wanted as u32)) } else { Err(Damage::Header) };
        };
        if begin as usize + claim.bytes > frame.end as usize {
            return Err(Damage::Length);
        }
        let wanted = if self.with_values { claim.bytes } else { claim.key_known_bytes };
        if here.len() < wanted {
            return Ok(WalkStep::Needs(begin + wanted as u32));
        }
        let identity = self.secret.identity(self.segment, begin);
        let record = if self.with_values {
            WalkedRecord::Whole(RecordView::parse(here, &identity)?)
        } else {
            WalkedRecord::Head(RecordHead::parse(here, &identity)?)
        };
        let padded_bytes = self.shape.padded(claim.bytes) as u32;
        self.at = begin + padded_bytes;
        self.frame = Some(WalkedFrame { seen: frame.seen + 1, ..frame });
        self.leave_frame();
        Ok(WalkStep::Record { offset: begin, padded_bytes, record })
    }
}

impl WalkedFrame {
    fn of(header: &FrameHeader) -> WalkedFrame {
        let next = header.offset + header.padded_bytes;
        let closed = Some((header.records, next));
        WalkedFrame { offset: header.offset, seen: 0, closed, end: header.offset + header.bytes }
    }
}

#[cfg(test)]
#[path = "record_walk_tests.rs"]
mod tests;
