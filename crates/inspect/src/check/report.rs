//! What a check says.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Serialize;

use crate::key::Key;
use crate::overview::State;
use crate::store::TierView;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Bytes that the store needs, or that say what it must hold, are not what was written.
    Damage,
    /// Nothing is lost or in doubt.
    Note,
}

/// One thing that was found.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The file or device.
    pub path: String,
    /// Number of the segment, if it lies in one.
    pub segment: Option<u64>,
    /// Where on the file or device.
    pub offset: u64,
    /// What is wrong.
    pub what: String,
    /// What follows from it, and what to do.
    pub consequence: String,
    /// The key of a damaged record.
    pub key: Option<Key>,
    /// Whether that key has no other value that counts: reading it is an error.
    pub lost: bool,
    /// Whether only the staging file has a newer value of it: a repair, which goes by the devices alone, leaves it out.
    #[serde(skip)]
    pub(crate) staged: bool,
    /// Keys were here that cannot be named.
    pub unnamed_keys: bool,
    /// The record's place, of a damaged record.
    #[serde(skip)]
    pub(crate) place: Option<u64>,
    /// No sequence number of what cannot be named is higher.
    #[serde(skip)]
    pub(crate) up_to: u64,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Segments.
    pub segments: u64,
    /// Free slots.
    pub free_slots: u64,
    /// Records, of any version.
    pub records: u64,
    /// Keys that have a value; those whose time to live has run out are among them until the store has swept them out.
    pub keys: u64,
    /// Keys whose newest version says that they are gone.
    pub tombstones: u64,
    /// Those of them behind which no older version lies any more.
    pub tombstones_needless: u64,
    /// Records that a newer version of their key supersedes.
    pub superseded: u64,
    /// Bytes of current values' records, with their padding.
    pub live_bytes: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
}

/// How the engine's index compares with the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum IndexCheck {
    /// Nobody looked.
    Skipped,
    /// The engine would not open the store.
    Refused {
        /// What it says.
        why: String,
    },
    /// The engine was asked for every key.
    Compared {
        /// Keys.
        keys: u64,
        /// Keys for which it leads elsewhere than the log.
        wrong: u64,
    },
}

/// What the staging file of a store that was not closed holds: opening the store writes it to the devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StagingReport {
    /// The file.
    pub path: String,
    /// Segments that were being filled.
    pub segments: u64,
    /// Records in it that are whole.
    pub records: u64,
    /// Keys whose newest version is in no segment yet.
    pub only_there: u64,
}

/// What a check says.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Whether nothing is damaged.
    pub well: bool,
    /// How the store was left.
    pub state: State,
    /// What was found, the worst first: at most 100,000 damaged records, as many other damages, and as many notes.
    pub findings: Vec<Finding>,
    /// How many more findings there are than those.
    pub findings_not_shown: u64,
    /// How many damages there are.
    pub damages: u64,
    /// How many notes.
    pub notes: u64,
    /// Keys whose newest version is damaged: reading them is an error. Those of the findings above.
    pub lost_keys: Vec<Key>,
    /// How many such keys there are.
    pub lost_count: u64,
    /// Whether keys may be lost that cannot be named, so that an older version of any key may show, or none.
    pub unnamed_keys: bool,
    /// No sequence number of what cannot be named is higher.
    #[serde(skip)]
    pub(crate) unnamed_up_to: Option<u64>,
    /// How many keys beside those of findings only the staging file has a newer value of.
    #[serde(skip)]
    pub(crate) staged_not_shown: u64,
    /// What was counted.
    pub counts: Counts,
    /// What the staging file holds, if one counts.
    pub staging: Option<StagingReport>,
    /// Segments beside a server that were written while they were looked at: nothing is said of those.
    pub in_flight: u64,
    /// How the engine's index compares with the log.
    pub index: IndexCheck,
}

/// Where findings are made. Those beside it, of other threads, share its room.
pub(super) struct Findings {
    pub(super) all: Vec<Finding>,
    pub(super) dropped: Dropped,
    /// Where those were found.
    pub(super) crowded: BTreeSet<Whereabouts>,
    /// How many there were of each kind.
    made: Arc<[AtomicUsize; KINDS]>,
    most: usize,
}

/// Findings for which there was no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Dropped {
    pub(super) damages: u64,
    pub(super) notes: u64,
    /// No sequence number of those among them that cannot be named is higher.
    pub(super) unnamed_up_to: Option<u64>,
}

/// The segment of a finding, or its offset if it is of none.
pub(super) type Whereabouts = (Option<u64>, u64);

/// Findings of a kind that are kept: more are counted.
const KEPT: usize = 100_000;
/// Damaged records; other damage; notes. Many of one kind leave room for the others.
const KINDS: usize = 3;
const DAMAGED_RECORDS: usize = 0;

impl Findings {
    pub(super) fn new() -> Findings {
        Findings::with_room(KEPT)
    }

    /// For what superblocks and slots say, which is little.
    pub(super) fn unbounded() -> Findings {
        Findings::with_room(usize::MAX)
    }

    pub(super) fn with_room(most: usize) -> Findings {
        let (all, crowded) = (Vec::new(), BTreeSet::new());
        Findings { all, dropped: Dropped::default(), crowded, made: Arc::default(), most }
    }

    /// Where another thread puts what it finds.
    pub(super) fn beside(&self) -> Findings {
        Findings { made: self.made.clone(), ..Findings::with_room(self.most) }
    }

    /// Whether another damaged record would be kept.
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

    /// Takes what one [beside](Self::beside) this has.
    pub(super) fn append(&mut self, other: Findings) {
        self.all.extend(other.all);
        self.crowded.extend(other.crowded);
        self.drop_too(other.dropped);
    }

    /// Counts what had no room elsewhere.
    pub(super) fn drop_too(&mut self, dropped: Dropped) {
        self.dropped.damages += dropped.damages;
        self.dropped.notes += dropped.notes;
        self.dropped.unnamed_up_to = self.dropped.unnamed_up_to.max(dropped.unnamed_up_to);
    }
}

impl Finding {
    /// Something at a place of a tier.
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
