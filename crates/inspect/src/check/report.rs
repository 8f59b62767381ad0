//! The report of a check, and its findings.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Serialize;

use crate::key::Key;
use crate::overview::State;
use crate::store::TierView;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Bytes that the store needs, or that state the store's content, are not the bytes that were
    /// written.
    Damage,
    /// Nothing is lost or in doubt.
    Note,
}

/// One finding of a check.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The severity.
    pub severity: Severity,
    /// The file or device.
    pub path: String,
    /// The number of the segment, if the finding lies in one.
    pub segment: Option<u64>,
    /// Byte offset on the file or device.
    pub offset: u64,
    /// The defect.
    pub what: String,
    /// The consequence and the remedy.
    pub consequence: String,
    /// The key of a damaged record.
    pub key: Option<Key>,
    /// True if the key has no other current value: reading it is an error.
    pub lost: bool,
    /// True if a newer value of the key is only in the staging file. A repair uses the devices alone, so
    /// it leaves this key out.
    #[serde(skip)]
    pub(crate) staged: bool,
    /// True if keys that cannot be named were stored here.
    pub unnamed_keys: bool,
    /// The location, if the finding is a damaged record.
    #[serde(skip)]
    pub(crate) place: Option<u64>,
    /// Upper bound of the sequence numbers of the keys that cannot be named.
    #[serde(skip)]
    pub(crate) up_to: u64,
}

/// Counts of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Segments.
    pub segments: u64,
    /// Free slots.
    pub free_slots: u64,
    /// Records, of any version.
    pub records: u64,
    /// Keys that have a value. Expired keys are included until the store has swept them out.
    pub keys: u64,
    /// Keys whose newest version is a tombstone.
    pub tombstones: u64,
    /// Tombstones of which no older version is left in the log.
    pub tombstones_needless: u64,
    /// Records superseded by a newer version of their key.
    pub superseded: u64,
    /// Bytes of the records of current values, with their padding.
    pub live_bytes: u64,
    /// Bytes read by the check.
    pub read_bytes: u64,
}

/// The outcome of comparing the engine's index with the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum IndexCheck {
    /// The comparison was not requested, or the store is in use.
    Skipped,
    /// The index of all keys needs more memory than the check may take.
    NotEnoughMemory {
        /// Memory of the engine with that index, in bytes.
        needed_bytes: u64,
        /// Memory that it may take, in bytes: half of the memory of the check.
        allowed_bytes: u64,
    },
    /// The engine refused to open the store.
    Refused {
        /// The engine's error message.
        why: String,
    },
    /// The index location of every key was looked up.
    Compared {
        /// Number of keys.
        keys: u64,
        /// Number of keys whose index entry contradicts the log.
        wrong: u64,
    },
}

/// The content of the staging file of a store that was not closed. Opening the store writes it to the
/// devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StagingReport {
    /// The file.
    pub path: String,
    /// Segments that were being filled.
    pub segments: u64,
    /// Intact records.
    pub records: u64,
    /// Keys whose newest version is in no segment yet.
    pub only_there: u64,
}

/// The passes and the memory of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Effort {
    /// Passes over the keys. The first one reads all segments, each further one all summaries.
    pub passes: u64,
    /// Bytes of summaries read by the passes after the first one.
    pub summary_bytes: u64,
    /// Memory in bytes: versions of keys, marks of records, buffers of segments, and the compared index.
    pub memory_bytes: u64,
}

/// The report of a check.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// True if nothing is damaged.
    pub well: bool,
    /// The state in which the store was left.
    pub state: State,
    /// The findings, the worst first: at most 100,000 damaged records, 100,000 other damages, and 100,000
    /// notes.
    pub findings: Vec<Finding>,
    /// Number of further findings that are not in the list.
    pub findings_not_shown: u64,
    /// Number of damages.
    pub damages: u64,
    /// Number of notes.
    pub notes: u64,
    /// Keys whose newest version is damaged, so that reading them is an error. Only keys that have a
    /// finding above.
    pub lost_keys: Vec<Key>,
    /// Number of all such keys, with or without a finding.
    pub lost_count: u64,
    /// True if keys that cannot be named may be lost, so that any key may show an older version, or none.
    pub unnamed_keys: bool,
    /// Upper bound of the sequence numbers of the keys that cannot be named.
    #[serde(skip)]
    pub(crate) unnamed_up_to: Option<u64>,
    /// Number of keys whose newer value is only in the staging file and which have no finding.
    #[serde(skip)]
    pub(crate) staged_not_shown: u64,
    /// The counts.
    pub counts: Counts,
    /// The content of the staging file, if the store would use it.
    pub staging: Option<StagingReport>,
    /// Beside a server: segments that were written during the check, about which the report says nothing.
    pub in_flight: u64,
    /// The outcome of comparing the engine's index with the log.
    pub index: IndexCheck,
    /// The passes and the memory that it took.
    pub effort: Effort,
}

/// A collection of findings. Collections of several threads share one limit.
pub(super) struct Findings {
    pub(super) all: Vec<Finding>,
    pub(super) dropped: Dropped,
    /// Segments with findings that exceeded the limit.
    pub(super) crowded: BTreeSet<Whereabouts>,
    /// Number of findings of each kind, over all threads.
    made: Arc<[AtomicUsize; KINDS]>,
    most: usize,
}

/// Counts of findings that exceeded the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Dropped {
    pub(super) damages: u64,
    pub(super) notes: u64,
    /// Upper bound of the sequence numbers of unnamed keys among those findings.
    pub(super) unnamed_up_to: Option<u64>,
}

/// The segment of a finding, or its offset if it lies in no segment.
pub(super) type Whereabouts = (Option<u64>, u64);

/// Limit of stored findings per kind. Further findings are only counted.
const KEPT: usize = 100_000;
/// Number of kinds: damaged records, other damage, notes. Each has its own limit, so that many findings
/// of one kind do not displace the others.
const KINDS: usize = 3;
const DAMAGED_RECORDS: usize = 0;

impl Findings {
    pub(super) fn new() -> Findings {
        Findings::with_room(KEPT)
    }

    /// A collection without a limit, for superblocks and slots, which have few findings.
    pub(super) fn unbounded() -> Findings {
        Findings::with_room(usize::MAX)
    }

    pub(super) fn with_room(most: usize) -> Findings {
        let (all, crowded) = (Vec::new(), BTreeSet::new());
        Findings { all, dropped: Dropped::default(), crowded, made: Arc::default(), most }
    }

    /// Returns a collection for another thread, with the same shared limit.
    pub(super) fn beside(&self) -> Findings {
        Findings { made: self.made.clone(), ..Findings::with_room(self.most) }
    }

    /// Returns true if another damaged record would be stored.
    pub(super) fn has_room_for_record(&self) -> bool {
        self.made[DAMAGED_RECORDS].load(Ordering::Relaxed) < self.most
    }

    pub(super) fn add(&mut self, finding: Finding) {
        let kind = match (finding.severity, finding.place) {
            (Severity::Damage, Some(_)) => DAMAGED_RECORDS,
            (Severity::Damage, None) => 1,
            (Severity::Note, _) => 2,
        };
        if self.made[kind].fetch_add(1, Ordering::Relaxed) < self.most {
            return self.all.push(finding);
        }
        self.crowded.insert(finding.whereabouts());
        match finding.severity {
            Severity::Damage => self.dropped.damages += 1,
            Severity::Note => self.dropped.notes += 1,
        }
        let up_to = finding.unnamed_keys.then_some(finding.up_to);
        self.dropped.unnamed_up_to = self.dropped.unnamed_up_to.max(up_to);
    }

    /// Appends the findings of a collection made by [`beside`](Self::beside).
    pub(super) fn append(&mut self, other: Findings) {
        self.all.extend(other.all);
        self.crowded.extend(other.crowded);
        self.drop_too(other.dropped);
    }

    /// Adds the counts of findings that exceeded the limit of another collection.
    pub(super) fn drop_too(&mut self, dropped: Dropped) {
        self.dropped.damages += dropped.damages;
        self.dropped.notes += dropped.notes;
        self.dropped.unnamed_up_to = self.dropped.unnamed_up_to.max(dropped.unnamed_up_to);
    }
}

impl Finding {
    /// A finding at an offset of a tier.
    pub(super) fn at(tier: &TierView, offset: u64, severity: Severity, what: impl Into<String>) -> Finding {
        Finding { path: tier.path(), offset, what: what.into(), ..Finding::of_nothing(severity) }
    }

    pub(super) fn of_nothing(severity: Severity) -> Finding {
        Finding {
            severity,
            path: String::new(),
            segment: None,
            offset: 0,
            what: String::new(),
            consequence: String::new(),
            key: None,
            lost: false,
            staged: false,
            unnamed_keys: false,
            place: None,
            up_to: u64::MAX,
        }
    }

    pub(super) fn so(mut self, consequence: impl Into<String>) -> Finding {
        self.consequence = consequence.into();
        self
    }

    pub(super) fn of_segment(mut self, segment: u64) -> Finding {
        self.segment = Some(segment).filter(|number| *number > 0);
        self
    }

    pub(super) fn whereabouts(&self) -> Whereabouts {
        (self.segment, if self.segment.is_some() { 0 } else { self.offset })
    }

    pub(super) fn unnamed(mut self) -> Finding {
        self.unnamed_keys = true;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(severity: Severity, place: Option<u64>, up_to: Option<u64>) -> Finding {
        let (unnamed_keys, up_to) = (up_to.is_some(), up_to.unwrap_or(u64::MAX));
        Finding { place, unnamed_keys, up_to, ..Finding::of_nothing(severity) }
    }

    #[test]
    fn findings_for_which_there_is_no_room_are_counted() {
        let mut findings = Findings::with_room(3);
        let mut threads = [findings.beside(), findings.beside()];
        for number in 0..10 {
            threads[number % 2].add(finding(Severity::Damage, Some(number as u64), None));
        }
        threads.into_iter().for_each(|thread| findings.append(thread));
        for number in 0..5 {
            findings.add(finding(Severity::Damage, None, Some(number)));
            findings.add(finding(Severity::Note, None, None));
        }
        assert_eq!(findings.all.len(), 9);
        assert_eq!(findings.dropped, Dropped { damages: 7 + 2, notes: 2, unnamed_up_to: Some(4) });
    }
}
