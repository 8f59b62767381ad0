//! Second look beside a running server. A frame that seems damaged may have been in flight. So the
//! suspected segments are read again a little later, and a finding that does not recur is dropped.
//!
//! A segment with a summary never changes until it is freed, so its damage recurs, unless the segment was
//! freed meanwhile; then nothing depends on it. A segment without a summary is being filled, or its
//! summary is damaged; its bytes that are already written do not change either.
//!
//! Of findings that exceeded the limit, only the segments are known. These segments are read again too,
//! and their findings of the second look count.

use std::collections::{BTreeMap, BTreeSet};
use std::thread::sleep;
use std::time::Duration;

use esker_device::Buffer;

use super::report::{Finding, Findings, Whereabouts};
use super::segment::SegmentCheck;
use super::{slots, superblocks};
use crate::error::Result;
use crate::slots::Segment;
use crate::store::StoreView;
use crate::versions::Version;
use crate::watch::Watcher;

/// Delay before the second look. Longer than any write takes that is not stuck.
const LATER: Duration = Duration::from_millis(500);

/// The outcome of the second look, beside the confirmed findings.
#[derive(Default)]
pub(super) struct Confirmed {
    /// Number of segments whose finding did not recur.
    pub(super) gone: u64,
    /// Locations of damaged records that may have no finding, because the limit was exceeded in the first
    /// or the second look.
    pub(super) damaged: BTreeSet<u64>,
}

/// Identity of a finding: two findings with the same values are the same.
type Suspicion = (Option<u64>, String, u64, String);

fn suspicion(finding: &Finding) -> Suspicion {
    (finding.segment, finding.path.clone(), finding.offset, finding.what.clone())
}

/// The findings of the first look, and which of them recur.
struct Suspicions {
    /// The findings, and whether each recurred.
    kept: BTreeMap<Suspicion, bool>,
    /// Segments with findings that exceeded the limit, and whether any finding in them recurred.
    crowded: BTreeMap<Whereabouts, bool>,
    confirmed: Findings,
    /// Locations of the damaged records of confirmed findings. The order of findings can differ between
    /// the two looks, so any of these records may be the one whose finding exceeds the limit.
    damaged: BTreeSet<u64>,
}

/// Keeps the findings that recur.
#[expect(clippy::disallowed_methods, reason = "it waits for another process, in real time")]
pub(super) fn confirm(view: &StoreView, findings: &mut Findings, watcher: &dyn Watcher) -> Result<Confirmed> {
    if findings.all.is_empty() {
        return Ok(Confirmed::default());
    }
    sleep(LATER);
    let later = view.again()?;
    let mut suspicions = Suspicions::of(findings);
    let mut again = Findings::unbounded();
    superblocks::check(&later, &mut again)?;
    let of_slots = later.slots();
    let segments = later.segments(&of_slots);
    slots::check(&later, &of_slots, &segments, &mut again);
    suspicions.take(None, again);

    let suspects = suspicions.segments();
    // A segment of which nothing is readable has number 0.
    let is_suspect = |s: &&Segment| suspects.contains(&s.number) || s.number == 0;
    let segments: Vec<&Segment> = segments.iter().filter(is_suspect).collect();
    let segment_bytes = later.packing.segment_bytes;
    watcher.begin("checking damaged segments again", segments.len() as u64 * segment_bytes);
    let mut buffer = Buffer::zeroed(segment_bytes as usize);
    let (mut unread, mut entries) = (Vec::new(), Vec::new());
    for segment in segments {
        let tier = &later.tiers[segment.tier];
        tier.read_slot(segment.slot, &mut buffer, &mut unread);
        watcher.advance(segment_bytes);
        // Segment numbers are never reused: if the segment is in the slot now, it was there during the
        // whole read.
        if tier.has_left(segment.slot, segment.number) {
            continue;
        }
        let is_crowded = suspicions.is_crowded(segment.number);
        let damaged = &mut suspicions.damaged;
        let see = |version: Version| {
            if is_crowded && version.is_damaged() {
                damaged.insert(version.place());
            }
        };
        let mut again = Findings::new();
        SegmentCheck::new(&later, segment, &buffer, &unread, &mut again).run(&mut entries, see);
        suspicions.take(Some(segment.number), again);
    }
    let gone = suspicions.gone();
    *findings = suspicions.confirmed;
    Ok(Confirmed { gone, damaged: suspicions.damaged })
}

impl Suspicions {
    fn of(findings: &Findings) -> Suspicions {
        Suspicions {
            kept: findings.all.iter().map(|finding| (suspicion(finding), false)).collect(),
            crowded: findings.crowded.iter().map(|place| (*place, false)).collect(),
            confirmed: Findings::new(),
            damaged: BTreeSet::new(),
        }
    }

    /// Returns the numbers of all segments with findings.
    fn segments(&self) -> BTreeSet<u64> {
        let kept = self.kept.keys().map(|(segment, ..)| *segment);
        kept.chain(self.crowded.keys().map(|(segment, _)| *segment)).flatten().collect()
    }

    fn is_crowded(&self, segment: u64) -> bool {
        self.crowded.contains_key(&(Some(segment), 0))
    }

    /// Takes the findings of the second look, of one segment or (`None`) of no segment.
    fn take(&mut self, segment: Option<u64>, again: Findings) {
        for finding in again.all {
            let places =
                [self.kept.get_mut(&suspicion(&finding)), self.crowded.get_mut(&finding.whereabouts())];
            let mut is_known = false;
            for found_again in places.into_iter().flatten() {
                (*found_again, is_known) = (true, true);
            }
            if is_known {
                self.damaged.extend(finding.place);
                self.confirmed.add(finding);
            }
        }
        if segment.is_some_and(|number| self.is_crowded(number)) {
            self.confirmed.drop_too(again.dropped);
        }
    }

    /// Returns the number of places with a finding that did not recur.
    fn gone(&self) -> u64 {
        let place =
            |(segment, _, offset, _): &Suspicion| (*segment, if segment.is_some() { 0 } else { *offset });
        let kept = self.kept.iter().filter(|(_, again)| !**again).map(|(suspicion, _)| place(suspicion));
        let crowded = self.crowded.iter().filter(|(_, again)| !**again).map(|(place, _)| *place);
        kept.chain(crowded).collect::<BTreeSet<Whereabouts>>().len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::report::Severity;

    fn damaged_record(segment: u64, place: u64) -> Finding {
        Finding { segment: Some(segment), place: Some(place), ..Finding::of_nothing(Severity::Damage) }
    }

    /// The first look finds segment 2 first, the second look segment 1.
    #[test]
    fn records_for_which_there_is_no_room_the_second_time_are_told() {
        let mut findings = Findings::with_room(2);
        for (segment, place) in [(2, 20), (2, 21), (1, 10), (1, 11)] {
            findings.add(damaged_record(segment, place));
        }
        let mut suspicions = Suspicions::of(&findings);
        suspicions.confirmed = Findings::with_room(2);
        for (segment, places) in [(1, [10, 11]), (2, [20, 21])] {
            let mut again = Findings::new();
            places.into_iter().for_each(|place| again.add(damaged_record(segment, place)));
            suspicions.take(Some(segment), again);
        }
        assert_eq!(suspicions.damaged, BTreeSet::from([10, 11, 20, 21]));
        assert_eq!((suspicions.confirmed.all.len(), suspicions.confirmed.dropped.damages), (2, 2));
        assert_eq!(suspicions.gone(), 0);
    }
}
