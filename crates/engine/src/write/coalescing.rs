//! Coalescing: single puts that need not be durable at once stay in segments in memory for a while, and records that are
//! overwritten meanwhile are never written to the device.
//!
//! See `docs/decisions/0032-coalescing.md`. A *memtable* holds the records between two write-outs: up to half of the segments
//! that memory is available for, and until the first of its records must be written. The task in `background/coalesce.rs`
//! writes a memtable out by copying the records that are still needed; meanwhile the next one is filled. If that is full too,
//! puts wait. Only if there is no segment for the memtable, for lack of slots or memory, does a put go to the lane's own
//! segment, as all other writes do.

use std::time::Duration;

use esker_log::OpenSegment;
use esker_seeded_bugs::{Bug, planted};

use crate::base::completion::{Completion, Waiter};
use crate::base::durability::Durability;
use crate::base::error::Result;
use crate::write::deadline::Deadline;

/// Parameters of coalescing: maximum time records stay in memory, and number of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CoalescingPlan {
    pub(crate) wait: Duration,
    pub(crate) segments: usize,
}

/// A segment in memory, and the number of its memory piece.
pub(crate) type Piece = (OpenSegment, usize);

/// A memtable to be written out.
pub(crate) struct Memtable {
    /// Segments in the order in which they were filled.
    pub(crate) pieces: Vec<Piece>,
    /// Opens when every record in them that is still needed is durable.
    pub(crate) completion: Completion,
}

/// The memtable being filled, and the state of the one before it.
pub(crate) struct Coalescing {
    pub(crate) plan: Option<CoalescingPlan>,
    /// The segment being filled, the next one, and (`full`) the full segments of the memtable.
    pub(crate) open: Option<Piece>,
    pub(crate) spare: Option<Piece>,
    /// Opens for waiting writers when a segment is available, or when it is known that there is none.
    pub(crate) waiting: Option<Completion>,
    /// True if there is no slot or memory for a segment, and no memtable that could return one.
    pub(crate) lacks_segments: bool,
    pub(crate) full: Vec<Piece>,
    /// Latest time for writing the memtable out.
    pub(crate) deadline: Deadline,
    /// True if a flush or a writer waits for the memtable.
    pub(crate) is_wanted: bool,
    pub(crate) completion: Completion,
    /// The memtable being written out: number of its segments, and the waiter for its completion.
    pub(crate) leaving: Option<(usize, Waiter)>,
    /// Number of its segments that have returned their slots, or have become ordinary segments.
    pub(crate) given_back: usize,
    /// The segments that survivors are copied to, each with the end of its durable part.
    pub(crate) output_ends: Vec<(u64, u32)>,
    /// Result with which coalescing ended; `None` while records coalesce.
    pub(crate) ended: Option<Result<()>>,
}

impl Coalescing {
    pub(crate) fn new(plan: Option<CoalescingPlan>) -> Coalescing {
        Coalescing {
            plan,
            open: None,
            spare: None,
            waiting: None,
            lacks_segments: false,
            full: Vec::new(),
            deadline: Deadline::NONE,
            is_wanted: false,
            completion: Completion::new(),
            leaving: None,
            given_back: 0,
            output_ends: Vec::new(),
            ended: None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.full.is_empty() && self.open.as_ref().is_none_or(|(open, _)| open.entries().is_empty())
    }

    /// Returns the maximum number of segments of a memtable.
    fn most_segments(&self) -> usize {
        self.plan.map_or(0, |plan| plan.segments / 2)
    }

    /// Returns true if no segment can be added to the memtable.
    pub(crate) fn is_full(&self) -> bool {
        self.open.is_none() && self.full.len() >= self.most_segments()
    }

    pub(crate) fn is_due(&self, now: Duration) -> bool {
        !self.is_empty()
            && (self.is_wanted || self.is_full() || self.deadline.at().is_some_and(|at| at <= now))
    }

    /// Returns the number of segments in use or ready for use.
    pub(crate) fn in_use(&self) -> usize {
        let leaving = self.leaving.as_ref().map_or(0, |(count, _)| *count);
        leaving + self.full.len() + usize::from(self.open.is_some()) + usize::from(self.spare.is_some())
    }

    /// Returns the number of slots of those, and one that survivors are copied to.
    pub(crate) fn slots_in_use(&self) -> u32 {
        (self.in_use() - self.given_back + usize::from(!self.output_ends.is_empty())) as u32
    }

    /// Iterates over the segments that have records.
    pub(crate) fn filled(&self) -> impl Iterator<Item = &OpenSegment> {
        self.full.iter().chain(&self.open).map(|(segment, _)| segment)
    }

    /// Adjusts the deadline to a record of this durability. Returns true if the memtable is due earlier than before.
    pub(crate) fn expect(&mut self, durability: Durability, now: impl FnOnce() -> Duration) -> bool {
        let wait = self.plan.map_or(Duration::ZERO, |plan| plan.wait);
        let may_take = match durability {
            Durability::Periodic(period) if !planted(Bug::CoalescingPeriodIgnored) => period.min(wait),
            _ => wait,
        };
        self.deadline.allow(may_take, now)
    }

    pub(crate) fn take_memtable(&mut self) -> Memtable {
        let mut pieces = std::mem::take(&mut self.full);
        pieces.extend(self.open.take().filter(|(segment, _)| !segment.entries().is_empty()));
        (self.deadline, self.is_wanted) = (Deadline::NONE, false);
        let completion = std::mem::replace(&mut self.completion, Completion::new());
        self.leaving = Some((pieces.len(), completion.waiter()));
        Memtable { pieces, completion }
    }
}
