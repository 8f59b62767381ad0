//! Segments without a summary that can be used: they are read whole and scanned frame by frame.

use esker_log::{
    FOOTER_BYTES, Footer, FrameHeader, SegmentScan, SegmentShape, Stream, scan_segment, scan_segment_up_to,
};
use futures_util::stream::{self, StreamExt, TryStreamExt};

use super::context::{Content, Found, RecoveryContext, Segment};

use crate::base::error::{Error, Result};
use crate::segments::tier::Tier;

/// What is read of a segment at once, and how often at a time.
const PIECE_BYTES: u32 = 1 << 20;
const DEPTH: usize = 8;

/// A segment of which start or end is readable.
struct Known {
    stream: Stream,
    epoch: u64,
    segment: u64,
    /// Where it says that the segment before it ended.
    follows: Option<u32>,
}

impl Known {
    fn of(found: &Found) -> Option<Known> {
        match (found.first, found.footer) {
            (Some(FrameHeader { stream, epoch, segment, durable_through, .. }), _) => {
                Some(Known { stream, epoch, segment, follows: Some(durable_through).filter(|&at| at > 0) })
            }
            (_, Some(Footer { stream, epoch, segment, .. })) => {
                Some(Known { stream, epoch, segment, follows: None })
            }
            _ => None,
        }
    }
}

impl RecoveryContext<'_> {
    /// Step 2. Reads what has no summary. The other summaries are taken for good until they are loaded.
    /// `highest`: no slot tells of a segment number above it.
    pub(super) async fn scan_unsealed(&self, found: Vec<Found>, highest: u64) -> Result<Vec<Segment>> {
        // Only a later segment of the same opening proves anything: what the opening before left torn stays so.
        let all: Vec<Known> = found.iter().filter_map(Known::of).collect();
        let mut segments = Vec::new();
        let mut nameless = Vec::new();
        for f in found {
            let tier = self.tier(f.tier);
            let opened_at = f.first.map_or(0, |first| first.opened_at);
            if let Some(footer) = f.footer {
                let content = Content::Sealed(footer);
                segments.push(Segment {
                    tier: f.tier,
                    slot: f.slot,
                    segment: footer.segment,
                    opened_at,
                    content,
                });
                continue;
            }
            let bytes = read_whole(tier, f.slot).await?;
            let shape = tier.shape();
            let Some(header) = f.first.or_else(|| self.any_frame(&bytes, &f, shape)) else {
                if f.beheaded || self.is_displaced(&bytes, &f, shape) {
                    nameless.push((f.tier, f.slot, shape.segment_bytes));
                } else {
                    // Never ours: foreign bytes that were there before.
                    tier.give_back_slot(f.slot);
                }
                continue;
            };
            let FrameHeader { segment, stream, epoch, .. } = header;
            let lane = [Stream::LANE, Stream::LARGE, Stream::LONG_LIVED].contains(&stream);
            let later = all.iter().filter(|s| lane && s.stream == stream && s.epoch == epoch);
            let next = later.filter(|s| s.segment > segment).min_by_key(|s| s.segment);
            let lost_start = f.first.is_none() && !f.may_be_torn;
            let durable = lost_start || next.is_some() || f.contradicted;
            let tail = next.and_then(|next| next.follows);
            let scan = scan_segment_up_to(&bytes, &self.secret, shape, segment, durable, tail);
            let content = Content::Scanned(scan, stream);
            segments.push(Segment { tier: f.tier, slot: f.slot, segment, opened_at, content });
        }
        // Whatever it was, all of it lay in the one frame that is lost. It gets a number that nobody has, to be sealed with.
        let known = segments.iter().map(|s| s.segment).chain(self.staged.iter().map(|s| s.segment));
        let unused = known.fold(highest, u64::max) + 1;
        for (segment, (tier, slot, segment_bytes)) in (unused..).zip(nameless) {
            let mut scan = SegmentScan::default();
            scan.lost.push(0..segment_bytes);
            let content = Content::Scanned(scan, Stream::LANE);
            segments.push(Segment { tier, slot, segment, opened_at: 0, content });
        }
        segments.retain(|s| self.holds_anything(s));
        Ok(segments)
    }

    /// A frame of the segment in a slot whose start and end are lost: it says who it was.
    fn any_frame(&self, bytes: &[u8], found: &Found, shape: SegmentShape) -> Option<FrameHeader> {
        let headers = (0..bytes.len()).step_by(shape.unit_bytes as usize);
        let parse = |at: usize| FrameHeader::parse(&bytes[at..], &self.secret, at as u32);
        headers.filter_map(parse).find(|h| h.segment > found.after && h.slot == found.slot)
    }

    /// Whether the start or the end of a segment of this slot lies somewhere else in it.
    fn is_displaced(&self, bytes: &[u8], found: &Found, shape: SegmentShape) -> bool {
        let footer = |page: &[u8]| {
            let end = &page[page.len() - FOOTER_BYTES..];
            Footer::parse(end, &self.secret, shape.segment_bytes).is_some_and(|f| f.segment > found.after)
        };
        let header = |page: &[u8]| {
            let header = FrameHeader::parse_displaced(page, &self.secret);
            header.is_some_and(|h| h.segment > found.after && h.slot == found.slot)
        };
        bytes.chunks_exact(esker_log::PAGE_BYTES).any(|page| header(page) || footer(page))
    }

    /// Step 2. Reads the segments whose summary turned out to be damaged. It was there, so all before it was durable.
    pub(super) async fn scan_damaged(
        &self,
        mut segments: Vec<Segment>,
        damaged: Vec<usize>,
    ) -> Result<Vec<Segment>> {
        for number in damaged {
            let s = &mut segments[number];
            let Content::Sealed(footer) = s.content else { continue };
            let tier = self.tier(s.tier);
            // With its footer, which says where the last frame ends.
            let bytes = read_whole(tier, s.slot).await?;
            let scan = scan_segment(&bytes, &self.secret, tier.shape(), s.segment, true);
            s.content = Content::Scanned(scan, footer.stream);
        }
        segments.retain(|s| self.holds_anything(s));
        Ok(segments)
    }

    /// Whether a segment holds records, or the loss of some. If not, its slot is free.
    fn holds_anything(&self, segment: &Segment) -> bool {
        let Content::Scanned(scan, _) = &segment.content else { return true };
        let holds = !scan.entries.is_empty() || !scan.lost.is_empty();
        if !holds {
            self.tier(segment.tier).give_back_slot(segment.slot);
        }
        holds
    }

    pub(super) fn refuse_loss(&self, segments: &[Segment]) -> Result<()> {
        for s in segments {
            if let Content::Scanned(scan, _) = &s.content
                && let Some(range) = scan.lost.first()
            {
                let what = format!(
                    "{} bytes on the {} tier cannot be read and the keys in them not be named",
                    range.len(),
                    s.tier.name()
                );
                if !self.accept_loss {
                    let what = format!("{what}; open with accept_loss to go on without them");
                    return Err(Error::Corrupt {
                        key: None,
                        segment: s.segment,
                        offset: range.start.into(),
                        what,
                    });
                }
                tracing::error!(segment = s.segment, offset = range.start, "{what}; accepted");
            }
        }
        Ok(())
    }
}

/// All bytes of a segment.
async fn read_whole(tier: &Tier, slot: u32) -> Result<Vec<u8>> {
    let segment_bytes = tier.shape().segment_bytes;
    let piece_bytes = segment_bytes.min(PIECE_BYTES);
    let pieces = (0..segment_bytes).step_by(piece_bytes as usize);
    let mut reads = stream::iter(pieces)
        .map(|at| async move { tier.read(slot, at, u64::from(piece_bytes)).await })
        .buffered(DEPTH);
    let mut bytes = Vec::with_capacity(segment_bytes as usize);
    while let Some((buffer, at)) = reads.try_next().await? {
        bytes.extend_from_slice(&buffer[at..]);
    }
    Ok(bytes)
}
