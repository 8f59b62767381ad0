//! Counts the versions of keys, and finds the damaged records that are the current version of their key on
//! the devices.

use std::collections::{BTreeMap, BTreeSet};

use super::index::Index;
use super::report::Counts;
use super::staging::Staged;
use crate::error::Result;
use crate::key::Key;
use crate::marks::Marks;
use crate::newest_versions::{Passes, Rule, read_summaries, summary_bytes};
use crate::slots::Segment;
use crate::store::StoreView;
use crate::versions::{Version, Versions, count};
use crate::watch::Watcher;

/// Damaged records that are the current version of their key on the devices.
#[derive(Default)]
pub(super) struct AllLost {
    /// Records that have a finding, by their locations.
    pub(super) found: BTreeMap<u64, Lost>,
    /// Number of such records without a finding; `others_staged` are those with a newer version in the
    /// staging file.
    pub(super) others: u64,
    pub(super) others_staged: u64,
    /// Number of keys in the staging file whose version on the devices is at least as new.
    pub(super) on_devices: u64,
}

/// Locations of damaged records.
pub(super) struct Places<'a> {
    /// Locations of records that have a finding.
    pub(super) found: BTreeSet<u64>,
    /// Locations of damaged records without a finding, or `None` if every other damaged record counts.
    /// Beside a server, only damage that was found twice is damage.
    pub(super) others: Option<&'a BTreeSet<u64>>,
}

impl Places<'_> {
    fn are_others(&self, place: u64) -> bool {
        self.others.is_none_or(|others| others.contains(&place))
    }
}

/// A damaged record that is the current version of its key on the devices.
pub(super) struct Lost {
    /// The name of its key, if another version of the key shows it.
    pub(super) name: Option<Key>,
    /// True if the staging file has a newer version.
    pub(super) is_staged: bool,
}

/// The check of all keys, range by range.
pub(super) struct KeyCheck<'a> {
    pub(super) staged: &'a Staged,
    pub(super) places: &'a Places<'a>,
    /// The damaged records.
    pub(super) damaged: &'a Marks,
    /// Takes the current records that are not damaged.
    pub(super) healthy: &'a Marks,
    pub(super) watcher: &'a dyn Watcher,
    pub(super) index: Index,
    pub(super) tally: Tally,
    /// Bytes of summaries that were read.
    pub(super) summary_bytes: u64,
}

/// Counts of the keys that were checked, and the lost ones of them.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) counts: Counts,
    pub(super) lost: AllLost,
}

impl KeyCheck<'_> {
    /// Steps 4 and 5: checks the keys of the first range, whose versions are `versions`, and then of all others.
    /// `segments` are those of the last pass at the end.
    pub(super) fn run(
        &mut self,
        view: &StoreView,
        segments: &mut Vec<Segment>,
        passes: &mut Passes,
        mut versions: Versions,
    ) -> Result<()> {
        self.watcher.begin("finding the newest versions", 0);
        self.take(view, segments, &versions);
        while passes.end(&versions) {
            passes.begin_again(&mut versions);
            let later = view.later(passes)?;
            let view = later.as_ref().unwrap_or(view);
            if later.is_some() {
                *segments = view.segments(&view.slots());
            }
            let step = passes.step("reading summaries");
            self.summary_bytes += segments.iter().map(summary_bytes).sum::<u64>();
            read_summaries(view, segments, self.watcher, &step, &versions, Some(self.damaged), |_| true);
            self.take(view, segments, &versions);
        }
        Ok(())
    }

    /// Counts the versions of a range of keys, finds the damaged records that are current, and compares the
    /// index.
    fn take(&mut self, view: &StoreView, segments: &[Segment], versions: &Versions) {
        let rule = Rule::new(view, segments);
        let take = |tally: &mut Tally, versions: &[Version]| self.take_key(tally, view, &rule, versions);
        for of_thread in versions.for_each_key(Tally::default, take) {
            self.tally.add(of_thread);
        }
        self.index.look(view, &rule, versions, self.tally.counts.keys, self.watcher);
    }

    fn take_key(&self, tally: &mut Tally, view: &StoreView, rule: &Rule<'_>, versions: &[Version]) {
        let Tally { counts, lost } = tally;
        let all = count(versions);
        counts.records += all;
        let Some(current) = rule.current(versions) else { return };
        let is_as_new = |version: &Version| version.sequence >= current.sequence && !version.is_counter();
        counts.superseded += count(&versions[versions.partition_point(is_as_new)..]);
        let is_staged = self.staged.has_newer(&current.hash, current.sequence);
        lost.on_devices += u64::from(!is_staged && self.staged.has(&current.hash));
        if current.is_tombstone() {
            counts.tombstones += 1;
            counts.tombstones_needless += u64::from(all == 1);
            // The summary has the tombstone, which is enough for the key to stay deleted.
            return;
        }
        counts.keys += 1;
        counts.live_bytes += u64::from(current.padded_bytes());
        if !current.is_damaged() {
            return self.healthy.set(current);
        }
        match (self.places.found.contains(&current.place()), is_staged) {
            (true, _) => {
                let name = view.name_elsewhere(rule, versions);
                lost.found.insert(current.place(), Lost { name, is_staged });
            }
            (false, _) if !self.places.are_others(current.place()) => {}
            (false, true) => lost.others_staged += 1,
            (false, false) => lost.others += 1,
        }
    }
}

impl Tally {
    fn add(&mut self, of_thread: Tally) {
        let Tally { counts, lost } = of_thread;
        self.counts.records += counts.records;
        self.counts.keys += counts.keys;
        self.counts.tombstones += counts.tombstones;
        self.counts.tombstones_needless += counts.tombstones_needless;
        self.counts.superseded += counts.superseded;
        self.counts.live_bytes += counts.live_bytes;
        self.lost.found.extend(lost.found);
        self.lost.others += lost.others;
        self.lost.others_staged += lost.others_staged;
        self.lost.on_devices += lost.on_devices;
    }
}

impl StoreView {
    /// Returns the name of a key from any of its readable versions.
    fn name_elsewhere(&self, rule: &Rule<'_>, versions: &[Version]) -> Option<Key> {
        versions.iter().filter(|version| !version.is_damaged()).find_map(|version| {
            let at = version.location();
            let bytes = self.tier(at.tier).read(at.slot, at.offset, version.padded_bytes()).ok()?;
            let record = self.parse(&bytes, rule.ages.segment(&at), at.offset).ok()?;
            Some(self.key_of(&record))
        })
    }
}
