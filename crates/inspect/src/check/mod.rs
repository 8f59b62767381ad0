//! Checks a whole store: every checksum, every version of every key, summaries against records,
//! superblocks against segments, and the engine's index against the log.
//!
//! 1. Check the superblocks, the staging file of a killed store, and the ends of all slots.
//! 2. Read all segments, whole and once, on several threads. The version of every record is kept in 32
//!    bytes.
//! 3. Check the census, free slots and misdirected writes. Beside a running server, every finding is
//!    verified a second time.
//! 4. Sort the versions by key: determine which damaged records are current, and which were superseded.
//! 5. Compare the index with the log.
//!
//! The check writes nothing. Damage is never an error here: it is a finding.

mod index;
mod recheck;
pub(crate) mod report;
mod segment;
mod slots;
mod staging;
mod superblocks;

use std::collections::{BTreeMap, BTreeSet};

use esker_device::Buffer;

use self::index::Compared;
use self::report::{Counts, Finding, Findings, IndexCheck, Report, Severity};
use self::segment::SegmentCheck;
use self::staging::Staged;
use crate::error::Result;
use crate::key::{Key, Name};
use crate::newest_versions::Rule;
use crate::slots::Segment;
use crate::store::StoreView;
use crate::versions::{Version, Versions};
use crate::watch::{Watcher, in_parallel, readers};

/// Options of a check.
#[derive(Clone, Copy, Debug)]
pub struct CheckOptions {
    /// Open the store over memory, and compare its index with the log.
    pub index: bool,
}

impl Default for CheckOptions {
    fn default() -> CheckOptions {
        CheckOptions { index: true }
    }
}

/// The result of checking a whole store.
pub(crate) struct Checked {
    pub(crate) report: Report,
    pub(crate) segments: Vec<Segment>,
    pub(crate) versions: Versions,
    pub(crate) staged: Staged,
}

/// Damaged records that are the current version of their key on the devices.
#[derive(Default)]
struct AllLost {
    /// Records that have a finding, by their locations.
    found: BTreeMap<u64, Lost>,
    /// Number of such records without a finding; `others_staged` are those with a newer version in the
    /// staging file.
    others: u64,
    others_staged: u64,
    /// Number of keys in the staging file whose version on the devices is at least as new.
    on_devices: u64,
}

/// Locations of damaged records.
struct Places<'a> {
    /// Locations of records that have a finding.
    found: BTreeSet<u64>,
    /// Locations of damaged records without a finding, or `None` if every other damaged record counts.
    /// Beside a server, only damage that was found twice is damage.
    others: Option<&'a BTreeSet<u64>>,
}

impl Places<'_> {
    fn are_others(&self, place: u64) -> bool {
        self.others.is_none_or(|others| others.contains(&place))
    }
}

/// A damaged record that is the current version of its key on the devices.
struct Lost {
    /// The name of its key, if another version of the key shows it.
    name: Option<Key>,
    /// True if the staging file has a newer version.
    is_staged: bool,
}

impl StoreView {
    /// Checks the whole store. Reports the damage, the affected keys, and the remedies.
    ///
    /// # Errors
    /// If the superblocks cannot be read.
    pub fn check(&self, options: CheckOptions, watcher: &dyn Watcher) -> Result<Report> {
        Ok(self.check_all(options, watcher)?.report)
    }

    pub(crate) fn check_all(&self, options: CheckOptions, watcher: &dyn Watcher) -> Result<Checked> {
        let mut findings = Findings::new();
        // Step 1.
        superblocks::check(self, &mut findings)?;
        let staged = staging::look(self, &mut findings);
        let slots = self.slots();
        let segments = self.segments(&slots);
        // Step 2.
        let expected = segments.iter().map(Segment::records).sum();
        let versions = Versions::new(expected);
        let read_bytes = self.check_segments(&segments, &versions, &mut findings, watcher);
        // Step 3.
        let free_slots = slots::check(self, &slots, &segments, &mut findings);
        let confirmed = match self.is_in_use() {
            true => Some(recheck::confirm(self, &mut findings, watcher)?),
            false => None,
        };
        // Step 4.
        let rule = Rule::new(self, &segments);
        watcher.begin("finding the newest versions", 0);
        let segment_count = segments.len() as u64;
        let mut counts = Counts { segments: segment_count, free_slots, read_bytes, ..Counts::default() };
        let found = findings.all.iter().filter_map(|finding| finding.place).collect();
        let places = Places { found, others: confirmed.as_ref().map(|confirmed| &confirmed.damaged) };
        let lost = self.count(&rule, &versions, &staged, &places, &mut counts);
        conclude(&mut findings, &lost.found);
        // Step 5.
        let mut index = IndexCheck::Skipped;
        if options.index && !self.is_in_use() {
            watcher.begin("comparing the index with the log", 0);
            let compared = index::compare(self, &rule, &versions, counts.keys, counts.live_bytes);
            index = self.compared(compared, &mut findings);
        }
        let staging = staged.report(lost.on_devices);
        let in_flight = confirmed.map_or(0, |confirmed| confirmed.gone);
        let report = Report { staging, in_flight, ..self.report(findings, &lost, counts, index) };
        Ok(Checked { report, segments, versions, staged })
    }

    /// Step 2. Returns the number of bytes read.
    fn check_segments(
        &self,
        segments: &[Segment],
        versions: &Versions,
        findings: &mut Findings,
        watcher: &dyn Watcher,
    ) -> u64 {
        let segment_bytes = self.packing.segment_bytes;
        let total = segments.len() as u64 * segment_bytes;
        watcher.begin("reading segments", total);
        let of_all = &*findings;
        let begin = || {
            let buffer = Buffer::zeroed(segment_bytes as usize);
            (buffer, Vec::new(), Vec::new(), versions.collector(), of_all.beside())
        };
        let states = in_parallel(
            segments,
            readers(),
            begin,
            |(buffer, unread, entries, collector, findings), segment| {
                self.tiers[segment.tier].read_slot(segment.slot, buffer, unread);
                SegmentCheck { view: self, segment, bytes: buffer, unread, findings }
                    .run(entries, |version| collector.add(version));
                watcher.advance(segment_bytes);
            },
        );
        for (_, _, _, collector, of_thread) in states {
            drop(collector);
            findings.append(of_thread);
        }
        total
    }

    /// Step 4: counts the versions, and returns the damaged records that are current on the devices.
    fn count(
        &self,
        rule: &Rule<'_>,
        versions: &Versions,
        staged: &Staged,
        places: &Places<'_>,
        counts: &mut Counts,
    ) -> AllLost {
        let begin = || (Counts::default(), AllLost::default());
        let states = versions.for_each_key(begin, |(counts, lost), versions| {
            counts.records += versions.len() as u64;
            let Some(current) = rule.current(versions) else { return };
            counts.superseded +=
                versions.iter().filter(|version| version.sequence < current.sequence).count() as u64;
            let is_staged = staged.has_newer(&current.hash, current.sequence);
            lost.on_devices += u64::from(!is_staged && staged.has(&current.hash));
            // The summary has the tombstone, which is enough for the key to stay deleted.
            if current.is_damaged() && !current.is_tombstone() {
                match (places.found.contains(&current.place()), is_staged) {
                    (true, _) => {
                        let name = self.name_elsewhere(rule, versions);
                        lost.found.insert(current.place(), Lost { name, is_staged });
                    }
                    (false, _) if !places.are_others(current.place()) => {}
                    (false, true) => lost.others_staged += 1,
                    (false, false) => lost.others += 1,
                }
            }
            if current.is_tombstone() {
                counts.tombstones += 1;
                counts.tombstones_needless += u64::from(versions.len() == 1);
            } else {
                counts.keys += 1;
                counts.live_bytes += current.padded_bytes(&self.packing);
            }
        });
        let mut lost = AllLost::default();
        for (of_thread, lost_there) in states {
            counts.records += of_thread.records;
            counts.keys += of_thread.keys;
            counts.tombstones += of_thread.tombstones;
            counts.tombstones_needless += of_thread.tombstones_needless;
            counts.superseded += of_thread.superseded;
            counts.live_bytes += of_thread.live_bytes;
            lost.found.extend(lost_there.found);
            lost.others += lost_there.others;
            lost.others_staged += lost_there.others_staged;
            lost.on_devices += lost_there.on_devices;
        }
        lost
    }

    /// Returns the name of a key from any of its readable versions.
    fn name_elsewhere(&self, rule: &Rule<'_>, versions: &[Version]) -> Option<Key> {
        versions.iter().filter(|version| !version.is_damaged()).find_map(|version| {
            let at = version.location(&self.packing);
            let bytes = version.padded_bytes(&self.packing) as u32;
            let bytes = self.tier(at.tier).read(at.slot, at.offset, bytes).ok()?;
            let record = self.parse(&bytes, rule.ages.segment(&at), at.offset).ok()?;
            Some(self.key_of(&record))
        })
    }

    /// Step 5: turns the outcome of the index comparison into findings.
    fn compared(&self, compared: Compared, findings: &mut Findings) -> IndexCheck {
        let tier = &self.tiers[0];
        for what in compared.wrong {
            let so = "please report this with the output of esker inspect: the log is authoritative, and repair uses only the log";
            findings.add(Finding::at(tier, 0, Severity::Damage, what).so(so));
        }
        if let IndexCheck::Refused { why } = &compared.check {
            let what = format!("a server would not open it: {why}");
            let so = "the other findings are the cause, if there are any; else see the message";
            findings.add(Finding::at(tier, 0, Severity::Damage, what).so(so));
        }
        compared.check
    }

    fn report(&self, findings: Findings, lost: &AllLost, counts: Counts, index: IndexCheck) -> Report {
        let Findings { mut all, dropped, .. } = findings;
        all.sort_by(|a, b| (a.severity, &a.path, a.offset).cmp(&(b.severity, &b.path, b.offset)));
        let lost_keys: BTreeSet<Key> =
            all.iter().filter(|finding| finding.lost).filter_map(|finding| finding.key.clone()).collect();
        let of = |severity| all.iter().filter(|finding| finding.severity == severity).count() as u64;
        let damages = of(Severity::Damage) + dropped.damages;
        let unnamed = all.iter().filter(|finding| finding.unnamed_keys).map(|finding| finding.up_to);
        let unnamed_up_to = unnamed.max().max(dropped.unnamed_up_to);
        Report {
            well: damages == 0,
            state: self.state(),
            unnamed_keys: unnamed_up_to.is_some(),
            unnamed_up_to,
            damages,
            notes: of(Severity::Note) + dropped.notes,
            findings_not_shown: dropped.damages + dropped.notes,
            findings: all,
            lost_count: lost_keys.len() as u64 + lost.others,
            lost_keys: lost_keys.into_iter().collect(),
            staged_not_shown: lost.others_staged,
            counts,
            staging: None,
            in_flight: 0,
            index,
        }
    }
}

const LOST: &str = "reads of this key fail until it is written again; repair leaves it out";
const STAGED: &str = "nothing is lost once the store has been opened: the staging file holds a newer version; repair leaves the key out";
const SUPERSEDED: &str = "nothing is lost: the key is deleted, or a newer version of it is current";

/// Sets the consequence of each damaged record: whether its key is lost.
fn conclude(findings: &mut Findings, lost: &BTreeMap<u64, Lost>) {
    for finding in &mut findings.all {
        let Some(place) = finding.place else { continue };
        let found = lost.get(&place);
        finding.lost = found.is_some_and(|lost| !lost.is_staged);
        finding.staged = found.is_some_and(|lost| lost.is_staged);
        let consequence = match (finding.lost, finding.staged) {
            (true, _) => LOST,
            (_, true) => STAGED,
            _ => SUPERSEDED,
        };
        finding.consequence = consequence.to_owned();
        let unnamed = finding.key.as_ref().is_some_and(|key| matches!(key.name, Name::Digest(..)));
        if let (true, Some(Lost { name: Some(name), .. })) = (unnamed, found) {
            finding.key = Some(name.clone());
        }
    }
}
