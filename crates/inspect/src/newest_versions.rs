//! Finds the current version of each key from the summaries alone, without reading the records.

use esker_log::{Cleared, Entry, KeyHash, Location, Packing, SegmentScan, Tier, scan_segment};

use crate::slots::{Content, Segment};
use crate::store::StoreView;
use crate::versions::{Version, Versions};
use crate::watch::{Watcher, in_parallel, readers};

/// Segment numbers by slot. The lower number is the older segment.
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

/// The rule that selects the current version of a key.
pub(crate) struct Rule<'a> {
    packing: &'a Packing,
    cleared: &'a Cleared,
    pub(crate) ages: Ages,
}

impl<'a> Rule<'a> {
    pub(crate) fn new(view: &'a StoreView, segments: &[Segment]) -> Rule<'a> {
        Rule { packing: &view.packing, cleared: &view.cleared, ages: Ages::of(view, segments) }
    }

    /// Returns the current version of a key, which may be a tombstone. `versions` are all versions of the
    /// key, the newest first. Of copies of one version a tombstone wins, as at an opening: a cache that
    /// dropped the record left a tombstone with the same number, which may lie in a younger segment.
    /// Otherwise the copy in the oldest segment wins.
    pub(crate) fn current<'v>(&self, versions: &'v [Version]) -> Option<&'v Version> {
        let is_cleared = |version: &&Version| self.cleared.covers(&version.hash, version.sequence);
        let newest = versions.first().filter(|version| !is_cleared(version))?;
        let copies = versions.iter().take_while(|version| version.sequence == newest.sequence);
        let age = |copy: &Version| self.ages.segment(&copy.location(self.packing));
        copies.min_by_key(|copy| (!copy.is_tombstone(), age(copy)))
    }
}

/// Reads the summaries of all segments, and keeps the versions of the keys for which `keep` returns true.
/// A segment whose summary is damaged is scanned instead, and its content in `segments` is replaced by
/// the result.
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
    /// Scans a segment whose summary turned out to be damaged. The summary was written, so all frames
    /// before it were durable.
    pub(crate) fn rescan(&self, segment: &Segment) -> SegmentScan {
        let tier = &self.tiers[segment.tier];
        let bytes = tier.read_whole(segment.slot);
        scan_segment(&bytes, &self.secret, tier.shape, segment.number, true)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use esker_log::Kind;

    use super::*;

    const PACKING: Packing =
        Packing { granule_bytes: 64, segment_bytes: 128 << 10, tiers: esker_log::Tiers::Both };
    /// Segment numbers by slot: slot 0 has the youngest segment.
    const SEGMENTS: [u64; 4] = [9, 5, 7, 3];

    fn counting(of: &[(u32, u64, Kind)]) -> (u32, u64, bool) {
        let versions = Versions::new(0);
        let mut collector = versions.collector();
        for &(slot, sequence, kind) in of {
            let key_hash = KeyHash { slot: 1, check: 2 };
            let entry = Entry {
                key_hash,
                sequence,
                offset: 4096,
                bytes: 64,
                kind,
                expansion: 0,
                expires_at_ms: None,
            };
            collector.add(Version::new(&PACKING, Tier::Capacity, slot, &entry, false));
        }
        drop(collector);
        let ages = Ages { fast: Vec::new(), capacity: SEGMENTS.to_vec() };
        let rule = Rule { packing: &PACKING, cleared: &Cleared::default(), ages };
        let found = Mutex::new(None);
        versions.for_each_key(
            || (),
            |(), versions| {
                let current = rule.current(versions).expect("nothing was cleared");
                let slot = current.location(&PACKING).slot;
                *found.lock().unwrap() = Some((slot, current.sequence, current.is_tombstone()));
            },
        );
        found.into_inner().unwrap().expect("there is a key")
    }

    #[test]
    fn the_newest_version_counts_and_of_its_copies_the_oldest() {
        let put = |slot, sequence| (slot, sequence, Kind::Put);
        assert_eq!(counting(&[put(3, 9), put(0, 10), put(2, 10)]), (2, 10, false));
        assert_eq!(counting(&[put(1, 10), put(2, 10), put(3, 9)]), (1, 10, false));
    }

    #[test]
    fn a_tombstone_counts_before_the_record_that_it_stands_for() {
        for (older, younger) in [(3, 0), (1, 2), (1, 0)] {
            let put = (older, 10, Kind::Put);
            let tombstone = (younger, 10, Kind::Tombstone);
            assert_eq!(counting(&[put, tombstone]), (younger, 10, true));
            assert_eq!(counting(&[tombstone, put]), (younger, 10, true));
        }
        let all = [(1, 10, Kind::Put), (0, 10, Kind::Tombstone), (2, 10, Kind::Tombstone)];
        assert_eq!(counting(&all), (2, 10, true), "of copies of a tombstone the oldest");
        assert_eq!(counting(&[(3, 10, Kind::Tombstone), (0, 11, Kind::Put)]), (0, 11, false));
    }
}
