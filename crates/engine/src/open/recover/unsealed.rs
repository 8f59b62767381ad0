//! Segments without a summary that can be used: they are read whole and scanned frame by frame.

use esker_log::{Follower, SegmentScan, Stream, Tier as TierName, Unsealed, scan_segment, scan_unsealed};
use futures_util::stream::{self, StreamExt, TryStreamExt};

use super::context::{Content, Found, RecoveryContext, Segment};

use crate::base::error::{Error, Result};
use crate::segments::staging::Staged;
use crate::segments::tier::Tier;

/// What is read of a segment at once, and how often at a time.
const PIECE_BYTES: u32 = 1 << 20;
const DEPTH: usize = 8;

/// What came of the scan.
pub(super) struct Scanned {
    segments: Vec<Segment>,
    /// Tier, slot and length of segments of which nothing tells the number: all of it lay in the one frame that is lost. Such a
    /// one gets a number that nobody has, to be sealed with.
    nameless: Vec<(TierName, u32, u32)>,
}

impl RecoveryContext<'_> {
    /// Step 2. Reads what has no summary. The other summaries are taken for good until they are loaded.
    pub(super) async fn scan_unsealed(&self, found: Vec<Found>) -> Result<Scanned> {
        let all: Vec<Follower> = found.iter().filter_map(|f| Follower::of(&f.in_slot)).collect();
        let mut segments = Vec::new();
        let mut nameless = Vec::new();
        for Found { tier: name, in_slot } in found {
            let (tier, slot) = (self.tier(name), in_slot.slot);
            let opened_at = in_slot.first.map_or(0, |first| first.opened_at);
            let (segment, content) = if let Some(footer) = in_slot.footer {
                (footer.segment, Content::Sealed(footer))
            } else {
                let bytes = read_whole(tier, slot).await?;
                match scan_unsealed(&in_slot, &all, &bytes, &self.secret, tier.shape()) {
                    Unsealed::Segment(segment, stream, scan) => (segment, Content::Scanned(scan, stream)),
                    Unsealed::Nameless => {
                        nameless.push((name, slot, tier.shape().segment_bytes));
                        continue;
                    }
                    // Never ours: foreign bytes that were there before.
                    Unsealed::Foreign => {
                        tier.give_back_slot(slot);
                        continue;
                    }
                }
            };
            segments.push(Segment { tier: name, slot, segment, opened_at, content });
        }
        Ok(Scanned { segments, nameless })
    }

    /// All segments that hold anything, and the highest segment number that there is: where no slot tells of one above
    /// `highest`.
    pub(super) fn name(&self, scanned: Scanned, highest: u64, staged: &[Staged]) -> (Vec<Segment>, u64) {
        let Scanned { mut segments, nameless } = scanned;
        let known = segments.iter().map(|s| s.segment).chain(staged.iter().map(|s| s.segment));
        let mut highest = known.fold(highest, u64::max);
        for (tier, slot, segment_bytes) in nameless {
            highest += 1;
            let mut scan = SegmentScan::default();
            scan.lost.push(0..segment_bytes);
            let content = Content::Scanned(scan, Stream::LANE);
            segments.push(Segment { tier, slot, segment: highest, opened_at: 0, content });
        }
        segments.retain(|s| self.holds_anything(s));
        (segments, highest)
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
