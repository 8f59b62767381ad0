//! Beside a server: what looks damaged may only have been on its way. So it is looked at once more, a little later and from
//! the start, and what is not found again was none.
//!
//! A segment with a summary never changes until it is freed, so damage in one is there the second time too, unless the segment
//! has been freed meanwhile; then nothing depends on it. A segment without a summary is being filled.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::Duration;

use esker_device::Buffer;

use super::report::{Finding, Findings};
use super::segment::SegmentCheck;
use super::{slots, superblocks};
use crate::error::Result;
use crate::slots::{Content, Segment};
use crate::store::StoreView;

/// Longer than any write takes that is not stuck.
const LATER: Duration = Duration::from_millis(500);

/// Keeps what is found twice; how many segments were seen to be in another state.
#[expect(clippy::disallowed_methods, reason = "it waits for another process, in real time")]
pub(super) fn confirm(view: &StoreView, findings: &mut Findings) -> Result<u64> {
    if findings.all.is_empty() {
        return Ok(0);
    }
    sleep(LATER);
    let later = view.again()?;
    let suspects: BTreeSet<_> = findings.all.iter().filter_map(|finding| finding.segment).collect();
    let suspicion = |finding: &Finding| (finding.path.clone(), finding.offset, finding.what.clone());
    let suspicions: BTreeSet<_> = findings.all.iter().map(suspicion).collect();
    // Only what was found before counts, so no more than that is kept of the second look.
    let mut there = BTreeSet::new();
    let mut confirm = |again: Findings| {
        there.extend(again.all.iter().map(suspicion).filter(|found| suspicions.contains(found)));
    };
    let mut again = Findings::unbounded();
    superblocks::check(&later, &mut again)?;
    let of_slots = later.slots();
    let segments = later.segments(&of_slots);
    slots::check(&later, &of_slots, &segments, &mut again);
    confirm(again);
    let mut buffer = Buffer::zeroed(later.packing.segment_bytes as usize);
    let (mut unread, mut entries) = (Vec::new(), Vec::new());
    let is_suspect = |segment: &&Segment| suspects.contains(&segment.number) || segment.number == 0;
    for segment in segments.iter().filter(is_suspect) {
        if !matches!(segment.content, Content::Sealed(_)) {
            continue;
        }
        later.tiers[segment.tier].read_slot(segment.slot, &mut buffer, &mut unread);
        let mut again = Findings::unbounded();
        let check =
            SegmentCheck { view: &later, segment, bytes: &buffer, unread: &unread, findings: &mut again };
        check.run(&mut entries, |_| ());
        confirm(again);
    }
    let mut gone = BTreeSet::new();
    findings.all.retain(|finding| {
        let stays = there.contains(&suspicion(finding));
        if !stays {
            gone.insert((finding.segment, if finding.segment.is_some() { 0 } else { finding.offset }));
        }
        stays
    });
    Ok(gone.len() as u64)
}
