//! Content of a slot whose segment has no usable summary, determined from all of its bytes.
//!
//! Distinguishing a torn tail from rot needs other segments: the next one of the same stream and opening states that
//! this one was durable, and where it ended.

use crate::checksum::Secret;
use crate::frame::{FrameHeader, Stream};
use crate::page::PAGE_BYTES;
use crate::scan::{SegmentScan, scan_segment_up_to};
use crate::segment::SegmentShape;
use crate::slots::FoundSlot;
use crate::summary::{FOOTER_BYTES, Footer};

/// A segment with a readable start or end, as proof of the durable part of the segment before it.
#[derive(Clone, Copy, Debug)]
pub struct Follower {
    stream: Stream,
    epoch: u64,
    segment: u64,
    /// Previous segment according to its header, and the end of that segment.
    follows: Option<(u64, u32)>,
}

impl Follower {
    /// Returns the follower that a slot describes.
    pub fn of(found: &FoundSlot) -> Option<Follower> {
        match (found.first, found.footer) {
            (Some(FrameHeader { stream, epoch, segment, follows, durable_through, .. }), _) => {
                let follows = follows.map(|before| (before, durable_through));
                Some(Follower { stream, epoch, segment, follows })
            }
            (_, Some(Footer { stream, epoch, segment, .. })) => {
                Some(Follower { stream, epoch, segment, follows: None })
            }
            _ => None,
        }
    }
}

/// Content of a slot without a usable summary.
#[derive(Clone, Debug)]
pub enum Unsealed {
    /// A segment: its number, its stream, and the result of its scan.
    Segment(u64, Stream, SegmentScan),
    /// A segment existed, but nothing of it is left: all of it was in the one frame that is lost.
    Nameless,
    /// Nothing of this store.
    Foreign,
}

/// Scans all `bytes` of a slot without a summary. `all`: followers from the slots of all tiers.
pub fn scan_unsealed(
    found: &FoundSlot,
    all: &[Follower],
    bytes: &[u8],
    secret: &Secret,
    shape: SegmentShape,
) -> Unsealed {
    let Some(header) = found.first.or_else(|| any_frame(found, bytes, secret, shape)) else {
        let was_there = found.beheaded || is_displaced(found, bytes, secret, shape);
        return if was_there { Unsealed::Nameless } else { Unsealed::Foreign };
    };
    let FrameHeader { segment, stream, epoch, .. } = header;
    let lane = [Stream::LANE, Stream::LARGE, Stream::LONG_LIVED, Stream::GROUP_LOG].contains(&stream);
    // Only a later segment of the same opening is proof: a torn tail left by the previous opening stays a torn tail.
    let later = all.iter().filter(|s| lane && s.stream == stream && s.epoch == epoch);
    let next = later.filter(|s| s.segment > segment).min_by_key(|s| s.segment);
    let lost_start = found.first.is_none() && !found.may_be_torn;
    let durable = lost_start || next.is_some() || found.contradicted;
    // A segment in between may have been freed, after its records were relocated.
    let tail =
        next.and_then(|next| next.follows).filter(|(before, _)| *before == segment).map(|(_, tail)| tail);
    let scan = scan_segment_up_to(bytes, secret, shape, segment, durable, tail);
    Unsealed::Segment(segment, stream, scan)
}

/// Returns any frame of the segment in a slot whose start and end are lost, to identify the segment.
fn any_frame(found: &FoundSlot, bytes: &[u8], secret: &Secret, shape: SegmentShape) -> Option<FrameHeader> {
    let headers = (0..bytes.len()).step_by(shape.unit_bytes as usize);
    let parse = |at: usize| FrameHeader::parse(&bytes[at..], secret, at as u32);
    headers.filter_map(parse).find(|h| h.segment > found.after && h.slot == found.slot)
}

/// True if the start or the end of a segment of this slot is at another position in the slot.
fn is_displaced(found: &FoundSlot, bytes: &[u8], secret: &Secret, shape: SegmentShape) -> bool {
    let footer = |page: &[u8]| {
        let end = &page[page.len() - FOOTER_BYTES..];
        Footer::parse(end, secret, shape.segment_bytes).is_some_and(|f| f.segment > found.after)
    };
    let header = |page: &[u8]| {
        let header = FrameHeader::parse_displaced(page, secret);
        header.is_some_and(|h| h.segment > found.after && h.slot == found.slot)
    };
    bytes.chunks_exact(PAGE_BYTES).any(|page| header(page) || footer(page))
}
