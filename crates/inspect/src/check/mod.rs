//! Checks a whole store: every checksum, every version of every key, summaries against records,
//! superblocks against segments, and the engine's index against the log.
//!
//! 1. Check the superblocks, the staging file of a killed store, and the ends of all slots.
//! 2. Read all segments, whole and once, on several threads. The version of every record of a range of
//!    keys is kept in 40 bytes; the range is all keys if memory suffices. Damaged records are marked in
//!    one bit each.
//! 3. Check the census, free slots and misdirected writes. Beside a running server, every finding is
//!    verified a second time.
//! 4. Sort the versions by key: determine which damaged records are current, and which were superseded.
//!    Compare the index with the log.
//! 5. Read all summaries for the next range of keys, and repeat step 4, until no key is left.
//!
//! The check writes nothing. Damage is never an error here: it is a finding.

mod index;
mod keys;
mod recheck;
pub(crate) mod report;
mod segment;
mod slots;
mod staging;
mod superblocks;

use std::collections::{BTreeMap, BTreeSet};

use esker_device::Buffer;

use self::index::{Compared, Index};
use self::keys::{KeyCheck, Lost, Places, Tally};
use self::report::{Counts, Effort, Finding, Findings, IndexCheck, Report, Severity};
use self::segment::SegmentCheck;
use self::staging::Staged;
use crate::error::Result;
use crate::key::{Key, Name};
use crate::marks::Marks;
use crate::memory::Budget;
use crate::newest_versions::{Passes, Rule};
use crate::slots::Segment;
use crate::store::StoreView;
use crate::versions::Versions;
use crate::watch::{Watcher, in_parallel};

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
    /// The current records that are not damaged, if they were asked for.
    pub(crate) healthy: Marks,
    pub(crate) staged: Staged,
}

impl StoreView {
    /// Checks the whole store. Reports the damage, the affected keys, and the remedies.
    ///
    /// # Errors
    /// If the superblocks cannot be read.
    pub fn check(&self, options: CheckOptions, watcher: &dyn Watcher) -> Result<Report> {
        Ok(self.check_all(options, false, watcher)?.report)
    }

    /// As [`check`](Self::check); marks the current records that are not damaged if `marks_healthy`.
    pub(crate) fn check_all(
        &self,
        options: CheckOptions,
        marks_healthy: bool,
        watcher: &dyn Watcher,
    ) -> Result<Checked> {
        let mut findings = Findings::new();
        // Step 1.
        superblocks::check(self, &mut findings)?;
        let staged = staging::look(self, &mut findings);
        let slots = self.slots();
        let mut segments = self.segments(&slots);
        let records: u64 = segments.iter().map(Segment::records).sum();
        let log_segments = segments.iter().filter(|segment| segment.is_log()).count();
        let compares = options.index && !self.is_in_use();
        let budget = self.memory.budget(records, self.packing.segment_bytes, compares);
        let damaged = Marks::of(self, &segments);
        let healthy = Marks::of(self, if marks_healthy { &segments } else { &[] });
        // Step 2.
        let mut passes = Passes::new(budget);
        let first = passes.begin(records);
        let read_bytes = self.check_segments(&segments, &first, &damaged, budget, &mut findings, watcher);
        // Step 3.
        let free_slots = slots::check(self, &slots, &segments, &mut findings);
        let confirmed = match self.is_in_use() {
            true => Some(recheck::confirm(self, &mut findings, watcher)?),
            false => None,
        };
        let found = findings.all.iter().filter_map(|finding| finding.place).collect();
        let places = Places { found, others: confirmed.as_ref().map(|confirmed| &confirmed.damaged) };
        // Steps 4 and 5.
        let counts = Counts { segments: segments.len() as u64, free_slots, read_bytes, ..Counts::default() };
        let mut keys = KeyCheck {
            staged: &staged,
            places: &places,
            damaged: &damaged,
            healthy: &healthy,
            watcher,
            index: Index::new(compares.then_some(budget.index_bytes), log_segments as u32),
            tally: Tally { counts, ..Tally::default() },
            summary_bytes: 0,
        };
        keys.run(self, &mut segments, &mut passes, first)?;
        let KeyCheck { index, tally: Tally { counts, lost }, summary_bytes, .. } = keys;
        conclude(&mut findings, &lost.found);
        let beside = damaged.bytes() + healthy.bytes() + budget.reader_bytes;
        let memory_bytes = passes.peak_bytes + beside + index.memory_bytes;
        let effort = Effort { passes: passes.begun, summary_bytes, memory_bytes };
        let compared = index.finish(self, &Rule::new(self, &segments), counts.keys, counts.live_bytes);
        let index = self.compared(compared, &mut findings);
        let staging = staged.report(lost.on_devices);
        let in_flight = confirmed.map_or(0, |confirmed| confirmed.gone);
        let lost_beside = (lost.others, lost.others_staged);
        let report =
            Report { staging, in_flight, effort, counts, index, ..self.report(findings, lost_beside) };
        Ok(Checked { report, segments, healthy, staged })
    }

    /// Step 2. Returns the number of bytes read.
    fn check_segments(
        &self,
        segments: &[Segment],
        versions: &Versions,
        damaged: &Marks,
        budget: Budget,
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
            budget.readers,
            begin,
            |(buffer, unread, entries, collector, findings), segment| {
                self.tiers[segment.tier].read_slot(segment.slot, buffer, unread);
                SegmentCheck::new(self, segment, buffer, unread, findings).run(entries, |version| {
                    if version.is_damaged() {
                        damaged.set(&version);
                    }
                    collector.add(version);
                });
                watcher.advance(segment_bytes);
            },
        );
        for (_, _, _, collector, of_thread) in states {
            drop(collector);
            findings.append(of_thread);
        }
        total
    }

    /// Turns the outcome of the index comparison into findings.
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

    /// Returns a report of the findings. `lost_beside`: numbers of lost keys, and of keys with a newer
    /// version in the staging file, that have no finding.
    fn report(&self, findings: Findings, lost_beside: (u64, u64)) -> Report {
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
            lost_count: lost_keys.len() as u64 + lost_beside.0,
            lost_keys: lost_keys.into_iter().collect(),
            staged_not_shown: lost_beside.1,
            counts: Counts::default(),
            staging: None,
            in_flight: 0,
            index: IndexCheck::Skipped,
            effort: Effort::default(),
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
