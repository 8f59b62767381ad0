//! Coalescing: single puts that need not be durable at once wait in segments in memory for a while, and those that are
//! overwritten meanwhile are never written to the device.
//!
//! See `docs/decisions/0032-coalescing.md`. What gathers between two write-outs is a *memtable*: up to half of the segments that
//! there is memory for, and no longer than the first of its records may wait. Whoever writes a memtable out
//! (`background/coalesce.rs`) copies what is still needed of it; meanwhile the next one is filled. When that is full too, puts
//! wait. Only where there is no segment for the memtable, for want of slots or memory, a put goes to the lane's own, as every
//! other write does.

use std::time::Duration;

use esker_log::OpenSegment;
use esker_seeded_bugs::{Bug, planted};

use crate::base::completion::{Completion, Waiter};
use crate::base::durability::Durability;
use crate::base::error::Result;
use crate::write::deadline::Deadline;

/// Whether records coalesce, how long they may wait, and in how many segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CoalescingPlan {
    pub(crate) wait: Duration,
    pub(crate) segments: usize,
}

/// A segment in memory, and which piece of memory it has.
pub(crate) type Piece = (OpenSegment, usize);

/// A memtable that is to be written out.
pub(crate) struct Memtable {
    /// In the order in which they were filled.
    pub(crate) pieces: Vec<Piece>,
    /// Opens when everything in them is durable that is still needed.
    pub(crate) completion: Completion,
}

/// The memtable that is being filled, and what is known of the one before it.
pub(crate) struct Coalescing {
    pub(crate) plan: Option<CoalescingPlan>,
    /// The segment that is being filled, the next one, and those of the memtable that are full.
    pub(crate) open: Option<Piece>,
    pub(crate) spare: Option<Piece>,
    /// Opens for those who wait until there is a segment for them, or it is known that there is none.
    pub(crate) waiting: Option<Completion>,
    /// There is no slot, or no memory, for a segment, and no memtable that could give one back.
    pub(crate) lacks_segments: bool,
    pub(crate) full: Vec<Piece>,
    /// When the memtable is to be written out at the latest.
    pub(crate) deadline: Deadline,
    /// Somebody waits for it.
    pub(crate) is_wanted: bool,
    pub(crate) completion: Completion,
    /// The memtable that is being written out: how many segments it has, and whom to ask when it is done.
    pub(crate) leaving: Option<(usize, Waiter)>,
    /// How many of its segments have given their slots back, or become segments like any other.
    pub(crate) given_back: usize,
    /// Where what is durable ends of each segment that survivors are copied to.
    pub(crate) output_ends: Vec<(u64, u32)>,
    /// How it ended: nothing coalesces any more.
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

    /// How many segments a memtable has at most.
    fn most_segments(&self) -> usize {
        self.plan.map_or(0, |plan| plan.segments / 2)
    }

    /// Whether no segment can be added to the memtable.
    pub(crate) fn is_full(&self) -> bool {
        self.open.is_none() && self.full.len() >= self.most_segments()
    }

    pub(crate) fn is_due(&self, now: Duration) -> bool {
        !self.is_empty()
            && (self.is_wanted || self.is_full() || self.deadline.at().is_some_and(|at| at <= now))
    }

    /// Segments that are in use, or ready for it.
    pub(crate) fn in_use(&self) -> usize {
        let leaving = self.leaving.as_ref().map_or(0, |(count, _)| *count);
        leaving + self.full.len() + usize::from(self.open.is_some()) + usize::from(self.spare.is_some())
    }

    /// How many slots those have, and one that survivors are copied to.
    pub(crate) fn slots_in_use(&self) -> u32 {
        (self.in_use() - self.given_back + usize::from(!self.output_ends.is_empty())) as u32
    }

    /// The segments that have records.
    pub(crate) fn filled(&self) -> impl Iterator<Item = &OpenSegment> {
        self.full.iter().chain(&self.open).map(|(segment, _)| segment)
    }

    /// A record is to be durable as `durability` says. Returns whether the memtable is to be written out earlier than before.
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
