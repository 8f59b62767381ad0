//! Which version of each key counts, told by the summaries alone: the records themselves are not read.

use esker_log::{Entry, KeyHash, Location, SegmentScan, Tier, scan_segment};

use crate::slots::{Content, Segment};
use crate::store::StoreView;
use crate::versions::{Version, Versions};
use crate::watch::{Watcher, in_parallel, readers};

/// The numbers of segments by their places: of two copies of a version the one in the older segment counts.
pub(crate) struct Ages {
    fast: Vec<u64>,
    capacity: Vec<u64>,
}

impl Ages {
    pub(crate) fn of(view: &StoreView, segments: &[Segment]) -> Ages {
        let mut ages = Ages { fast: Vec::new(), capacity: Vec::new() };
        for segment in segments {
            let of_tier = match view.tiers[segment.tier].name() {
                Tier::Fast => &mut ages.fast,
                Tier::Capacity => &mut ages.capacity,
            };
            let slot = segment.slot as usize;
            of_tier.resize(of_tier.len().max(slot + 1), 0);
            of_tier[slot] = segment.number;
        }
        ages
    }

    pub(crate) fn segment(&self, location: &Location) -> u64 {
        let of_tier = if location.tier == Tier::Fast { &self.fast } else { &self.capacity };
        of_tier.get(location.slot as usize).copied().unwrap_or(0)
    }
}

/// Which versions count.
pub(crate) struct Rule<'a> {
    view: &'a StoreView,
    pub(crate) ages: Ages,
}

impl<'a> Rule<'a> {
    pub(crate) fn new(view: &'a StoreView, segments: &[Segment]) -> Rule<'a> {
        Rule { view, ages: Ages::of(view, segments) }
    }

    /// The version of a key that counts, a tombstone perhaps. `versions`: all of it, the newest first.
    pub(crate) fn current<'v>(&self, versions: &'v [Version]) -> Option<&'v Version> {
        let is_cleared = |version: &&Version| self.view.cleared.covers(&version.hash, version.sequence);
        let newest = versions.first().filter(|version| !is_cleared(version))?;
        let copies = versions.iter().take_while(|version| version.sequence == newest.sequence);
        copies.min_by_key(|copy| self.ages.segment(&copy.location(&self.view.packing)))
    }
}

/// Reads the summaries of all segments, and keeps the versions of those keys that are asked for. A segment whose summary is
/// damaged is scanned instead, and its content in `segments` becomes what was found.
pub(crate) fn read_summaries(
    view: &StoreView,
    segments: &mut [Segment],
    watcher: &dyn Watcher,
    expected: u64,
    keep: impl Fn(&KeyHash) -> bool + Sync,
) -> Versions {
    watcher.begin("reading summaries", segments.iter().map(summary_bytes).sum());
    let versions = Versions::new(expected);
    let begin = || (versions.collector(), Vec::new());
    let read = in_parallel(segments, readers(), begin, |(collector, rescanned), segment| {
        let tier = view.tiers[segment.tier].name();
        let mut take = |entry: Entry| {
            if keep(&entry.key_hash) {
                collector.add(Version::new(&view.packing, tier, segment.slot, &entry, false));
            }
        };
        if !view.entries(segment, &mut take) {
            let scan = view.rescan(segment);
            scan.entries.iter().for_each(|entry| take(*entry));
            rescanned.push(((segment.tier, segment.slot), scan));
        }
        watcher.advance(summary_bytes(segment));
    });
    for (place, scan) in read.into_iter().flat_map(|(_, rescanned)| rescanned) {
        let segment = segments.iter_mut().find(|segment| (segment.tier, segment.slot) == place);
        segment.expect("it was just read").content = Content::Scanned(scan);
    }
    versions
}

fn summary_bytes(segment: &Segment) -> u64 {
    if let Content::Sealed(footer) = &segment.content { footer.entry_bytes.into() } else { 0 }
}

impl StoreView {
    /// Scans a segment whose summary turned out to be damaged. It was there, so all before it was durable.
    pub(crate) fn rescan(&self, segment: &Segment) -> SegmentScan {
        let tier = &self.tiers[segment.tier];
        let bytes = tier.read_whole(segment.slot);
        scan_segment(&bytes, &self.secret, tier.shape, segment.number, true)
    }
}
