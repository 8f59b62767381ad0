//! The rank of reasons to act: in each step the reclaimer does the first of them that applies and has work to do.
//!
//! `docs/architecture.md` contains the table; a test compares the two.

use std::sync::atomic::Ordering;

use esker_seeded_bugs::{Bug, planted};

use super::AT_LAST;

use crate::background::reclaimer::Reclaimer;
use crate::base::error::Result;
use crate::segments::contents::Expiry;
use crate::segments::slot::SlotState;

/// Urgency of collecting below which old segments are rewritten to drop tombstones before others are collected.
const RENEW_BELOW: f64 = 0.5;

/// A reason to act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Emptied,
    UnverifiedMemory,
    ExpiredSegment,
    Sweep,
    SweepForWriters,
    Damaged,
    NeedlessTombstones,
    WritersWait,
    Evict,
    OldTombstones,
    Relocate,
    OldTombstonesLate,
    OutOfRoom,
    UnverifiedIdle,
}

/// Result of acting on a reason.
enum Acted {
    /// Work was done: the next step begins with the first reason.
    Worked,
    /// There was nothing to do: the next reason is checked.
    Nothing,
    /// Nothing more can be done in this step.
    Rest,
}

/// A row of the rank.
struct Row {
    reason: Reason,
    /// Condition under which the reason applies.
    applies: fn(&Reclaimer<'_>) -> bool,
    /// The condition, the action, and its share of device time, for the document and for traces.
    when: &'static str,
    action: &'static str,
    urgency: &'static str,
}

/// The reasons in the order in which they are checked.
const RANK: [Row; 14] = [
    Row {
        reason: Reason::Emptied,
        applies: |reclaimer| reclaimer.relocator.has_emptied(),
        when: "an emptied segment waits for a memtable or for a checkpoint",
        action: "free it, if that waits no longer; if slots run short, write the memtable out",
        urgency: "none",
    },
    Row {
        reason: Reason::UnverifiedMemory,
        applies: |reclaimer| reclaimer.catalog.index.unverified_pressure() > 1.0,
        when: "unverified overwrites take more memory than their limit",
        action: "verify those of eight segments, of more if slots do not run short; then go on",
        urgency: "1",
    },
    Row {
        reason: Reason::ExpiredSegment,
        applies: |reclaimer| reclaimer.expired(Expiry::Noticeable).is_some(),
        when: "a twentieth of a segment has expired",
        action: "remove its expired records from the index",
        urgency: "none",
    },
    Row {
        reason: Reason::Sweep,
        applies: |_| true,
        when: "a record has expired, every 500 ms",
        action: "remove expired records from the index, one segment at a time",
        urgency: "16 MiB of summaries a second",
    },
    Row {
        reason: Reason::SweepForWriters,
        applies: |reclaimer| reclaimer.writer.pressure.sweeps.is_wanted(),
        when: "a writer waits for index memory",
        action: "remove expired records from the index",
        urgency: "none",
    },
    Row {
        reason: Reason::Damaged,
        applies: |reclaimer| reclaimer.holds_damaged(),
        when: "a segment is kept because of damage",
        action: "return it to the collector, once no damaged record of it is needed",
        urgency: "none",
    },
    Row {
        reason: Reason::NeedlessTombstones,
        applies: |reclaimer| reclaimer.space.tombstone_bytes() > 0,
        when: "there are tombstones",
        action: "write off tombstones that hide nothing; then go on",
        urgency: "none",
    },
    Row {
        reason: Reason::WritersWait,
        applies: |reclaimer| reclaimer.writer.pressure.requests.is_wanted(),
        when: "a writer waits for room within the user limit",
        action: "remove expired records, else evict, else rewrite the oldest segment to drop tombstones",
        urgency: "by free slots",
    },
    Row {
        reason: Reason::Evict,
        applies: |reclaimer| reclaimer.must_evict(),
        when: "`when-full = evict`, and the index has too many keys, or the user limit is exceeded and free slots are at the low-water mark",
        action: "rewrite the oldest segment to drop tombstones, else evict from the coldest",
        urgency: "by free slots, at least 0.25",
    },
    Row {
        reason: Reason::OldTombstones,
        applies: |reclaimer| reclaimer.space.urgency() < RENEW_BELOW,
        when: "tombstones take half of the room that puts leave, and the urgency of collecting is below 0.5",
        action: "rewrite the oldest segment to drop tombstones",
        urgency: "by free slots, at least 0.25",
    },
    Row {
        reason: Reason::Relocate,
        applies: |_| true,
        when: "half of the fast tier is full (destage); free slots are at the low-water mark, or garbage exceeds `max-garbage` (collect); a segment has no current record",
        action: "relocate: the oldest segments of the fast tier, those with the best ratio of gain to cost, or those without a copy",
        urgency: "destage 0.25 at half full to 1; collect by free slots, at least 0.25; without a copy 0.5; the highest first",
    },
    Row {
        reason: Reason::OldTombstonesLate,
        applies: |reclaimer| reclaimer.space.urgency() >= RENEW_BELOW,
        when: "the same, and nothing can be relocated",
        action: "rewrite the oldest segment to drop tombstones",
        urgency: "by free slots",
    },
    Row {
        reason: Reason::OutOfRoom,
        applies: |reclaimer| reclaimer.writer.lanes().any(|lane| lane.is_out_of_room()),
        when: "a lane has no segment to write to",
        action: "as for a writer that waits, else evict, else refuse the waiting writers: the store is full",
        urgency: "by free slots",
    },
    Row {
        reason: Reason::UnverifiedIdle,
        applies: |reclaimer| !reclaimer.writer.pressure.requests.is_wanted(),
        when: "there is no other work",
        action: "verify overwrites of the segment with most",
        urgency: "0.25",
    },
];

impl Reclaimer<'_> {
    /// Does one piece of work that is needed. Returns false if there is none.
    pub(super) async fn keep_up(&mut self) -> Result<bool> {
        let seals = self.seals();
        self.waits_for_reader = false;
        self.unverified.begin_step(self.catalog.index.unverified_pressure());
        // A step of the clock is noticed even if nothing expires.
        self.catalog.confirmed_ms();
        for Row { reason, applies, when, action, urgency } in &RANK {
            if applies(self) {
                match self.act(*reason, seals).await? {
                    Acted::Worked => {
                        tracing::trace!(?reason, when, action, urgency, "reclaimer step");
                        return Ok(true);
                    }
                    Acted::Nothing => {}
                    Acted::Rest => return Ok(false),
                }
            }
        }
        Ok(false)
    }

    /// Does a piece of work for a reason that applies. `seals`: number of sealed segments at the start of the step.
    async fn act(&mut self, reason: Reason, seals: u64) -> Result<Acted> {
        let worked = match reason {
            Reason::Emptied => {
                let waited_for = self.compaction.is_some() || self.runs_short();
                self.relocator.free_emptied(waited_for || self.space.urgency() >= AT_LAST).await?
            }
            Reason::UnverifiedMemory => {
                self.verify_beyond_limit().await?;
                false
            }
            Reason::ExpiredSegment => match self.expired(Expiry::Noticeable) {
                Some((tier, slot)) => self.expire(tier, slot).await.map(|_| true)?,
                None => false,
            },
            Reason::Sweep => self.sweep().await?,
            Reason::SweepForWriters => {
                let worked = self.sweep_under_pressure().await?;
                if !worked {
                    self.writer.pressure.sweeps.done();
                }
                worked
            }
            Reason::Damaged => self.look_at_damaged().await?,
            Reason::NeedlessTombstones => {
                self.write_off_tombstones();
                false
            }
            Reason::WritersWait => self.relieve_writers().await?,
            Reason::Evict => self.drop_tombstones().await? || self.evict().await?,
            Reason::OldTombstones | Reason::OldTombstonesLate => self.drop_tombstones().await?,
            Reason::Relocate => return self.relocate_chosen(seals).await,
            Reason::OutOfRoom => self.relieve().await? || self.evict_or_declare_full(seals).await?,
            // Writers must not wait for work that is not urgent.
            Reason::UnverifiedIdle => self.verify_when_idle().await?,
        };
        Ok(if worked { Acted::Worked } else { Acted::Nothing })
    }

    /// Relieves the pressure that writers wait for; tells them if that is not possible.
    async fn relieve_writers(&mut self) -> Result<bool> {
        if self.relieve().await? {
            return Ok(true);
        }
        // Without free slots, collecting must come first.
        if !self.space.full.load(Ordering::Acquire) && !self.waits_for_reader {
            self.writer.pressure.requests.done();
        }
        Ok(false)
    }

    async fn drop_tombstones(&mut self) -> Result<bool> {
        self.renew(self.tombstones_tolerated(false), u64::MAX).await
    }

    /// Destages or collects. If collecting finds no room, evicts or declares the store full.
    async fn relocate_chosen(&mut self, seals: u64) -> Result<Acted> {
        let Some(choice) = self.choose() else { return Ok(Acted::Nothing) };
        let is_of_output = choice.tier == self.space.output_tier().name();
        if self.carry_out(choice).await? || !is_of_output {
            return Ok(Acted::Worked);
        }
        // One without a current record needs no room.
        self.none_dead = None;
        if !planted(Bug::DeadSegmentsNotTried)
            && let Some(dead) = self.choose_dead()
            && self.carry_out(dead).await?
        {
            return Ok(Acted::Worked);
        }
        Ok(if self.evict_or_declare_full(seals).await? { Acted::Worked } else { Acted::Rest })
    }

    /// Returns true if any segment is kept because of damage.
    fn holds_damaged(&self) -> bool {
        self.space.damaged.len() > 0
            || self.space.tiers().any(|tier| tier.slots().count(SlotState::Damaged) > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn document_holds_the_rank_of_reasons() {
        let mut wanted = String::from("| | reason | action | urgency |\n|--:|---|---|---|\n");
        for (number, row) in RANK.iter().enumerate() {
            let Row { when, action, urgency, .. } = row;
            wanted += &format!("| {} | {when} | {action} | {urgency} |\n", number + 1);
        }
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/architecture.md");
        let text = std::fs::read_to_string(&path).expect("the document is there");
        let (begin, end) = ("<!-- reasons: begin -->\n", "<!-- reasons: end -->");
        let (before, rest) = text.split_once(begin).expect("a marker where it begins");
        let (found, after) = rest.split_once(end).expect("a marker where it ends");
        if std::env::var_os("ESKER_BLESS").is_some() {
            let text = [before, begin, &wanted, end, after].concat();
            return std::fs::write(&path, text).expect("the document can be written");
        }
        assert!(
            found == wanted,
            "docs/architecture.md differs from the code. If the code is right:\n\
             ESKER_BLESS=1 cargo test -p esker-engine --lib document_holds_the_rank\n{wanted}"
        );
    }

    #[test]
    fn each_reason_has_one_row() {
        for (number, row) in RANK.iter().enumerate() {
            assert!(RANK[..number].iter().all(|other| other.reason != row.reason), "{:?}", row.reason);
        }
    }
}
