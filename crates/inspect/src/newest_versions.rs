//! Finds the current version of each key from the summaries alone, without reading the records.

use std::ops::{ControlFlow, Range};

use esker_log::{Cleared, Entry, KeyHash, Location, SegmentScan, Tier, scan_segment};
use esker_seeded_bugs::{Bug, planted};

use crate::error::Result;
use crate::marks::Marks;
use crate::memory::Budget;
use crate::slots::{Content, Segment};
use crate::store::StoreView;
use crate::versions::{UNITS, Version, Versions};
use crate::watch::{Watcher, in_parallel};

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
    cleared: &'a Cleared,
    pub(crate) ages: Ages,
}

impl<'a> Rule<'a> {
    pub(crate) fn new(view: &'a StoreView, segments: &[Segment]) -> Rule<'a> {
        Rule { cleared: &view.cleared, ages: Ages::of(view, segments) }
    }

    /// Returns the current version of a key, which may be a tombstone. `versions` are all versions of the
    /// key, the newest first. Of copies of one version a tombstone wins, as at an opening: a cache that
    /// dropped the record left a tombstone with the same number, which may lie in a younger segment.
    /// Otherwise the copy in the oldest segment wins.
    pub(crate) fn current<'v>(&self, versions: &'v [Version]) -> Option<&'v Version> {
        let is_cleared = |version: &&Version| self.cleared.covers(&version.hash, version.sequence);
        let newest = versions.first().filter(|version| !is_cleared(version))?;
        let copies = versions
            .iter()
            .take_while(|version| version.sequence == newest.sequence && !version.is_counter());
        let age = |copy: &Version| self.ages.segment(&copy.location());
        copies.min_by_key(|copy| (!copy.is_tombstone(), age(copy)))
    }
}

/// Divides all keys into ranges whose versions fit the memory, one after the other.
pub(crate) struct Passes {
    budget: Budget,
    /// The first unit of the next range.
    next: u32,
    /// Units of the next range: all, until a range has shown how many fit.
    units: u32,
    /// The end of the present range when it was begun.
    begun_to: u32,
    /// Number of ranges that were begun.
    pub(crate) begun: u64,
    /// Most bytes that the versions of a range took.
    pub(crate) peak_bytes: u64,
}

/// Part of its memory that a range after the first one is to fill, in per cent. The number of keys of a
/// range varies little.
const AIM_PERCENT: u64 = 85;

impl Passes {
    pub(crate) fn new(budget: Budget) -> Passes {
        Passes { budget, next: UNITS.start, units: UNITS.end, begun_to: 0, begun: 0, peak_bytes: 0 }
    }

    /// Begins the first range, in which about `expected` versions are expected.
    pub(crate) fn begin(&mut self, expected: u64) -> Versions {
        let Budget { versions_bytes, readers, .. } = self.budget;
        Versions::new(self.next_range(), versions_bytes, readers, expected)
    }

    /// Begins the next range, in the memory of the previous one: memory that is freed and allocated in many
    /// threads is not given back to the system.
    pub(crate) fn begin_again(&mut self, versions: &mut Versions) {
        versions.begin_again(self.next_range());
    }

    fn next_range(&mut self) -> Range<u32> {
        let end = self.next.saturating_add(self.units).min(UNITS.end);
        self.begun += 1;
        self.begun_to = end;
        self.next..end
    }

    /// Ends a range, whose versions were collected and used. Returns false if it was the last one.
    pub(crate) fn end(&mut self, versions: &Versions) -> bool {
        let (range, kept) = (versions.range(), versions.len() as u64);
        self.peak_bytes = self.peak_bytes.max(versions.bytes());
        self.next = if planted(Bug::HalvedRangeSkipped) { self.begun_to } else { range.end };
        if !self.is_done() {
            let aim = versions.capacity() as u128 * u128::from(AIM_PERCENT) / 100;
            let units = aim * range.len() as u128 / u128::from(kept.max(1));
            self.units = units.clamp(1, UNITS.end.into()) as u32;
        }
        !self.is_done()
    }

    /// Returns the share of the keys in the ranges up to the end of this one.
    pub(crate) fn share(versions: &Versions) -> f64 {
        f64::from(versions.range().end) / f64::from(UNITS.end)
    }

    fn is_done(&self) -> bool {
        self.next >= UNITS.end
    }

    /// Returns the name of a step of this pass.
    pub(crate) fn step(&self, what: &str) -> String {
        match self.begun {
            0 | 1 => what.to_owned(),
            pass => format!("{what} (pass {pass} of about {})", pass - 1 + self.left().max(1)),
        }
    }

    /// Returns the number of ranges from the present one on, as far as it is known.
    fn left(&self) -> u64 {
        u64::from((UNITS.end - self.next).div_ceil(self.units.max(1)))
    }
}

impl StoreView {
    /// Reads the summaries in as many passes as the memory needs, and passes the store, its segments and
    /// the versions of each range of keys to `take`, until it returns `Break`. Only keys for which `keep`
    /// returns true are kept. Beside a server, each pass after the first one begins with a new look at the
    /// store. Returns the last segments.
    pub(crate) fn each_pass(
        &self,
        watcher: &dyn Watcher,
        keeps_all: bool,
        keep: impl Fn(&KeyHash) -> bool + Sync,
        mut take: impl FnMut(&StoreView, &[Segment], &Versions) -> Result<ControlFlow<()>>,
    ) -> Result<Vec<Segment>> {
        let mut segments = self.segments(&self.slots());
        let records = segments.iter().map(Segment::records).sum();
        let budget = self.memory.budget(records, self.packing.segment_bytes, false);
        let mut passes = Passes::new(budget);
        let mut versions = passes.begin(if keeps_all { records } else { 0 });
        loop {
            let later = self.later(&passes)?;
            let view = later.as_ref().unwrap_or(self);
            if later.is_some() {
                segments = view.segments(&view.slots());
            }
            let step = passes.step("reading summaries");
            read_summaries(view, &mut segments, watcher, &step, &versions, None, &keep);
            let is_enough = take(view, &segments, &versions)?.is_break();
            if !passes.end(&versions) || is_enough {
                return Ok(segments);
            }
            passes.begin_again(&mut versions);
        }
    }

    /// Opens the store again before a pass that is not the first, if a server has it open: the segments of
    /// the previous pass may be gone.
    pub(crate) fn later(&self, passes: &Passes) -> Result<Option<StoreView>> {
        (self.is_in_use() && passes.begun > 1).then(|| self.again()).transpose()
    }
}

/// Reads the summaries of all segments, and collects the versions of the keys for which `keep` returns
/// true. A segment whose summary is damaged is scanned instead, and its content in `segments` is replaced
/// by the result. Records in `damaged` are marked as damaged.
pub(crate) fn read_summaries(
    view: &StoreView,
    segments: &mut [Segment],
    watcher: &dyn Watcher,
    step: &str,
    versions: &Versions,
    damaged: Option<&Marks>,
    keep: impl Fn(&KeyHash) -> bool + Sync,
) {
    watcher.begin(step, segments.iter().map(summary_bytes).sum());
    let begin = || (versions.collector(), Vec::new());
    let read = in_parallel(segments, versions.threads, begin, |(collector, rescanned), segment| {
        let tier = view.tiers[segment.tier].name();
        let marked = damaged.map(|damaged| damaged.in_segment(view, segment));
        let is_damaged = |ordinal| {
            marked.as_ref().is_some_and(|marked| marked.contains(ordinal))
                && !planted(Bug::DamageForgottenByRange)
        };
        let mut take = |ordinal: u32, entry: &Entry| {
            if keep(&entry.key_hash) {
                collector.add(Version::new(tier, segment.slot, ordinal, entry, is_damaged(ordinal)));
            }
        };
        let mut ordinal = 0;
        let is_whole = view.entries(segment, |entry| {
            take(ordinal, &entry);
            ordinal += 1;
        });
        if !is_whole {
            let scan = view.rescan(segment);
            (0..).zip(&scan.entries).for_each(|(ordinal, entry)| take(ordinal, entry));
            rescanned.push(((segment.tier, segment.slot), scan));
        }
        watcher.advance(summary_bytes(segment));
    });
    for (place, scan) in read.into_iter().flat_map(|(_, rescanned)| rescanned) {
        let segment = segments.iter_mut().find(|segment| (segment.tier, segment.slot) == place);
        segment.expect("it was just read").content = Content::Scanned(scan);
    }
}

pub(crate) fn summary_bytes(segment: &Segment) -> u64 {
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

    /// Segment numbers by slot: slot 0 has the youngest segment.
    const SEGMENTS: [u64; 4] = [9, 5, 7, 3];

    fn counting(of: &[(u32, u64, Kind)]) -> (u32, u64, bool) {
        let versions = Versions::unlimited();
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
            collector.add(Version::new(Tier::Capacity, slot, 0, &entry, false));
        }
        drop(collector);
        let ages = Ages { fast: Vec::new(), capacity: SEGMENTS.to_vec() };
        let rule = Rule { cleared: &Cleared::default(), ages };
        let found = Mutex::new(None);
        versions.for_each_key(
            || (),
            |(), versions| {
                let current = rule.current(versions).expect("nothing was cleared");
                let slot = current.location().slot;
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
