//! Segments without a usable summary: they are read completely and scanned frame by frame.

use std::ops::Range;

use esker_log::{
    Follower, FrameHeader, SegmentScan, Stream, Tier as TierName, Unsealed, scan_segment_up_to, scan_unsealed,
};
use esker_seeded_bugs::{Bug, planted};

use super::context::{Content, Found, RecoveryContext, Segment, Unmarked};
use super::reading::Whole;
use super::slots::InSlots;

use crate::base::error::{Error, Result};
use crate::open::progress::RecoveryStep;
use crate::segments::staging::Staged;
use crate::write::group_log::recovered::LogSegment;

/// Result of the scan.
pub(super) struct Scanned {
    segments: Vec<Segment>,
    /// Tier, slot and length of segments whose number is unknown, because their only frame is lost. Each gets an unused
    /// number, to be sealed with.
    nameless: Vec<(TierName, u32, u32)>,
    unmarked: Vec<Unmarked>,
    /// Segments of the log of replicated groups.
    logs: Vec<LogSegment>,
    /// Highest segment number in any slot.
    highest: u64,
}

/// The segments that recovery found, by kind, once their numbers are known.
pub(super) struct Named {
    pub(super) segments: Vec<Segment>,
    pub(super) unmarked: Vec<Unmarked>,
    pub(super) logs: Vec<LogSegment>,
    /// Highest segment number.
    pub(super) highest: u64,
}

impl RecoveryContext<'_> {
    /// Step 2. Scans segments without a summary. Other summaries are trusted until they are loaded.
    pub(super) async fn scan_unsealed(&self, in_slots: InSlots) -> Result<Scanned> {
        // The number in a free marker must not be reused, because otherwise the new segment could be mistaken for the
        // freed one while the marker is still at the end of its slot.
        let InSlots { found, highest, mut unmarked } = in_slots;
        let followers = found.iter().filter_map(|f| Follower::of(&f.in_slot));
        let all: Vec<Follower> = followers.filter(|_| !planted(Bug::FollowerIgnored)).collect();
        let mut segments = Vec::new();
        let (mut nameless, mut logs) = (Vec::new(), Vec::new());
        let mut whole = Whole::default();
        let unsealed = found.iter().filter(|found| found.in_slot.footer.is_none()).count();
        self.progress.begin(RecoveryStep::Unsealed, unsealed as u64, self.runtime.now());
        let mut scanned = 0;
        for Found { tier: name, mut in_slot } in found {
            let (tier, slot) = (self.tier(name), in_slot.slot);
            let opened_at = in_slot.first.map_or(0, |first| first.opened_at);
            let (segment, content) = if let Some(footer) = in_slot.footer {
                if footer.stream == Stream::GROUP_LOG {
                    whole.read(tier, slot).await?;
                    let (shape, segment, tail) = (tier.shape(), footer.segment, Some(footer.tail));
                    let scan = scan_segment_up_to(whole.bytes(), &self.secret, shape, segment, true, tail);
                    logs.push(self.log_segment(name, slot, segment, true, &whole, scan)?);
                    continue;
                }
                (footer.segment, Content::Sealed(footer))
            } else {
                whole.read(tier, slot).await?;
                scanned += 1;
                if let Some(at) = self.progress.set(f64::from(scanned) / unsealed as f64, self.runtime.now())
                {
                    tracing::info!(
                        percent = at.percent,
                        segments = at.all,
                        remaining_s = at.remaining.map(|left| left.as_secs()),
                        "recovering: reading segments without a summary"
                    );
                }
                // An unreadable start is not a torn one.
                in_slot.may_be_torn &= whole.unread.first().is_none_or(|range| range.start > 0);
                match scan_unsealed(&in_slot, &all, whole.bytes(), &self.secret, tier.shape()) {
                    Unsealed::Segment(segment, stream, mut scan) => {
                        scan.lost.extend(self.lost_tail(name, &whole, segment, &scan));
                        let is_empty = scan.entries.is_empty() && scan.lost.is_empty();
                        if stream == Stream::GROUP_LOG && !is_empty {
                            logs.push(self.log_segment(name, slot, segment, false, &whole, scan)?);
                            continue;
                        }
                        (segment, Content::Scanned(scan, stream))
                    }
                    // No trace of a segment, and no unreadable part that may have held one.
                    Unsealed::Foreign if !self.may_have_held(name, &whole) => {
                        // It never held a segment: the bytes are older than the store.
                        self.give_back(name, slot);
                        // If the end marker names a freed segment, only the start marker is lost.
                        let is_there = slot < tier.slots_total();
                        let freed = Some(in_slot.after).filter(|&segment| is_there && segment > 0);
                        unmarked.extend(freed.map(|segment| Unmarked { tier: name, slot, segment }));
                        continue;
                    }
                    Unsealed::Nameless | Unsealed::Foreign => {
                        nameless.push((name, slot, tier.shape().segment_bytes));
                        continue;
                    }
                }
            };
            segments.push(Segment { tier: name, slot, segment, opened_at, content });
        }
        Ok(Scanned { segments, nameless, unmarked, logs, highest })
    }

    /// Returns a segment of the log of replicated groups.
    fn log_segment(
        &self,
        tier: TierName,
        slot: u32,
        segment: u64,
        is_sealed: bool,
        whole: &Whole,
        scan: SegmentScan,
    ) -> Result<LogSegment> {
        LogSegment::of_scan((tier, slot, segment), is_sealed, &scan, whole.bytes(), &self.secret)
    }

    /// Returns true if a slot without any trace may have held a segment in its unreadable parts. In a closed store
    /// every segment has a summary at its end, so the end must be unreadable too.
    fn may_have_held(&self, tier: TierName, whole: &Whole) -> bool {
        let starts = whole.unread.first().is_some_and(|range| range.start == 0);
        let ends = whole.unread.last().is_some_and(|range| range.end as usize == whole.bytes().len());
        starts && (ends || !self.is_closed(tier))
    }

    fn is_closed(&self, tier: TierName) -> bool {
        self.tiers.iter().any(|(t, s)| t.name() == tier && s.census.is_some())
    }

    /// Returns the range of the frame after the last valid one, if it is lost because it is unreadable, rather than
    /// torn. If its header is readable but the frame is invalid, any unreadable range behind it counts, because a later
    /// frame there may have proven it durable.
    fn lost_tail(
        &self,
        tier: TierName,
        whole: &Whole,
        segment: u64,
        scan: &SegmentScan,
    ) -> Option<Range<u32>> {
        let unit_bytes = self.tier(tier).shape().unit_bytes;
        // Each segment has room for a summary at its end.
        if self.is_closed(tier) || scan.tail as usize + unit_bytes as usize >= whole.bytes().len() {
            return None;
        }
        let header = whole.bytes().get(scan.tail as usize..);
        let header = header.and_then(|bytes| FrameHeader::parse(bytes, &self.secret, scan.tail));
        let header = header.filter(|header| header.segment == segment);
        let end = scan.tail.saturating_add(header.map_or(unit_bytes, |header| header.padded_bytes));
        let reaches = if header.is_some() { u32::MAX } else { end };
        let is_unread = whole.unread.iter().any(|range| range.start < reaches && scan.tail < range.end);
        let is_told = scan.lost.iter().any(|range| range.end > scan.tail);
        (is_unread && !is_told).then_some(scan.tail..end)
    }

    /// Returns all segments that hold anything, free slots to be marked, and the highest segment number.
    pub(super) fn name(&self, scanned: Scanned, staged: &[Staged]) -> Named {
        let Scanned { mut segments, nameless, mut unmarked, logs, highest } = scanned;
        let known = segments.iter().map(|s| s.segment).chain(staged.iter().map(|s| s.segment));
        let known = known.chain(logs.iter().map(|log| log.segment));
        let mut highest = known.fold(highest, u64::max);
        for (tier, slot, segment_bytes) in nameless {
            highest += 1;
            let mut scan = SegmentScan::default();
            scan.lost.push(0..segment_bytes);
            let content = Content::Scanned(scan, Stream::LANE);
            segments.push(Segment { tier, slot, segment: highest, opened_at: 0, content });
        }
        // A segment whose first frame was torn may have intact later frames. After a close they would prove a loss, so
        // its slot is marked as free. A slot beyond the limit cannot be marked, and counts as in use.
        let is_in_reach = |s: &Segment| s.slot < self.tier(s.tier).slots_total();
        for s in segments.extract_if(.., |s| is_in_reach(s) && !self.holds_anything(s)) {
            unmarked.push(Unmarked { tier: s.tier, slot: s.slot, segment: s.segment });
        }
        Named { segments, unmarked, logs, highest }
    }

    /// Step 2 for segments whose summary turned out to be damaged. Their summary had been written, so all frames before
    /// it were durable.
    pub(super) async fn scan_damaged(
        &self,
        mut segments: Vec<Segment>,
        damaged: Vec<usize>,
    ) -> Result<Vec<Segment>> {
        let mut whole = Whole::default();
        for number in damaged {
            let s = &mut segments[number];
            let Content::Sealed(footer) = s.content else { continue };
            let tier = self.tier(s.tier);
            whole.read(tier, s.slot).await?;
            let (shape, tail) = (tier.shape(), Some(footer.tail));
            let scan = scan_segment_up_to(whole.bytes(), &self.secret, shape, s.segment, true, tail);
            s.content = Content::Scanned(scan, footer.stream);
        }
        segments.retain(|s| self.holds_anything(s));
        Ok(segments)
    }

    /// Returns true if a segment has records, or a loss of records. If not, its slot is freed.
    fn holds_anything(&self, segment: &Segment) -> bool {
        let Content::Scanned(scan, _) = &segment.content else { return true };
        let holds = !scan.entries.is_empty() || !scan.lost.is_empty();
        if !holds {
            self.give_back(segment.tier, segment.slot);
        }
        holds
    }

    /// Drops segments without any readable record, after the loss was accepted. Their slots are freed and marked, so
    /// that content that is unreadable now does not reappear when it is readable again.
    pub(super) fn give_up(&self, segments: &mut Vec<Segment>, unmarked: &mut Vec<Unmarked>) {
        for s in segments.extract_if(.., |s| s.is_lost()) {
            self.give_back(s.tier, s.slot);
            unmarked.push(Unmarked { tier: s.tier, slot: s.slot, segment: s.segment });
        }
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
                    let what = format!(
                        "{what}; open with accept_loss (esker serve --accept-loss) to go on without them"
                    );
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
