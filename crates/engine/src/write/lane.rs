//! A lane: the open segment that writers append to, and the order in which its records become visible.
//!
//! See `docs/decisions/0001-one-lane-one-order.md`. The lock of [`LaneState`] defines the order: a record's place in the log,
//! its sequence number and the time of its publication are assigned under it. Nothing is awaited under it.

mod appending;
mod coalescing;
mod ending;
mod jobs;
mod reserving;
mod room;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::time::Duration;

use esker_log::{OpenSegment, SegmentShape, Stream};
use esker_seeded_bugs::{Bug, planted};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::base::completion::{Completion, Waiter};
use crate::base::durability::Durability;
use crate::base::error::Result;
use crate::base::health::Follower;
use crate::catalog::Catalog;
use crate::segments::buffers::MemoryPool;
use crate::segments::contents::NEVER_MS;
use crate::segments::limit::lane_frame_bytes;
use crate::write::append_points::AppendPoints;
use crate::write::coalescing::{Coalescing, CoalescingPlan};
use crate::write::deadline::Deadline;
use crate::write::prepared::Group;
use crate::write::reserve::Reservations;

pub(crate) use self::appending::Append;
pub(crate) use self::jobs::{Close, FrameJob, Job};

/// The frame being filled.
struct Filling {
    completion: Completion,
    /// Groups of records for the committer to publish.
    groups: Vec<Group>,
    /// True if a writer waits for the frame to be durable.
    sync: bool,
    /// Time when the first writer of these groups arrived.
    waited_from: Duration,
    /// Latest time for writing the frame and making it durable.
    deadline: Deadline,
}

impl Filling {
    fn new() -> Filling {
        Filling {
            completion: Completion::new(),
            groups: Vec::new(),
            sync: false,
            waited_from: Duration::ZERO,
            deadline: Deadline::NONE,
        }
    }

    /// Adjusts the deadline to another record of this durability. Returns true if the frame is due earlier than before.
    fn expect(&mut self, durability: Durability, now: impl FnOnce() -> Duration) -> bool {
        let may_take = match durability {
            Durability::Sync => Duration::MAX,
            Durability::Periodic(d) => d.min(MAX_UNWRITTEN),
            Durability::Process | Durability::None => MAX_UNWRITTEN,
        };
        self.sync |= matches!(durability, Durability::Sync);
        self.deadline.allow(may_take, now) && !planted(Bug::NearDeadlineIgnored)
    }
}

/// State under the lane's lock.
pub(crate) struct LaneState {
    points: AppendPoints,
    spare: Option<(OpenSegment, usize)>,
    /// True if the preallocation was notified that a segment is half full.
    spare_wanted: bool,
    /// Full segments without a summary.
    sealing: BTreeSet<u64>,
    /// Number of segments that got their summary.
    seals: u64,
    /// Opened when a spare segment is available again.
    room: Completion,
    /// True if a writer found no spare segment.
    lacks_room: bool,
    filling: Filling,
    coalescing: Coalescing,
    jobs: VecDeque<Job>,
    /// Number of groups that the committer has still to publish. While it is not 0, no other task publishes.
    unpublished: usize,
    /// Number of groups in the frame being filled at which the committer is woken.
    wakes_at: usize,
    /// Completion of the newest frame with unpublished groups.
    newest_unpublished: Option<Waiter>,
    /// First sequence number of each frame with unpublished groups.
    unpublished_from: VecDeque<u64>,
    reservations: Reservations,
    stopping: bool,
    /// Result of the committer, after it has ended.
    ended: Option<Result<()>>,
}

/// A lane.
pub(crate) struct Lane {
    /// Catalog in which its records become visible.
    catalog: Arc<Catalog>,
    pub(crate) stream: Stream,
    may_separate: bool,
    pub(crate) shape: SegmentShape,
    pub(crate) pool: MemoryPool,
    /// True if it has had a segment in this opening.
    pub(crate) has_begun: AtomicBool,
    state: Mutex<LaneState>,
    /// Number of tasks that are looking for a segment for it, so that a slot may be about to be taken.
    providers: AtomicU32,
    /// Wakes the committer.
    pub(crate) work: Notify,
    /// Wakes the preallocation.
    pub(crate) spare_taken: Notify,
    /// Wakes the task that writes memtables out.
    pub(crate) coalescing_work: Notify,
    /// Wakes the task that provides segments for memtables.
    pub(crate) coalescing_spare_taken: Notify,
    /// Length in bytes at which a frame is written without waiting for more records.
    frame_target_bytes: u32,
    /// Lower bound of the expiry times of records in its open segments that are still to be removed from the index on expiry.
    expires_from: AtomicU64,
}

impl Lane {
    /// Creates a lane. `may_separate`: true if it may have a second open segment, for long-lived records. `coalescing`: how
    /// puts coalesce, if they do.
    pub(crate) fn new(
        catalog: Arc<Catalog>,
        stream: Stream,
        shape: SegmentShape,
        pool: MemoryPool,
        may_separate: bool,
        coalescing: Option<CoalescingPlan>,
    ) -> Arc<Lane> {
        let health = catalog.space.health.clone();
        let lane = Arc::new(Lane {
            catalog,
            stream,
            may_separate,
            shape,
            pool,
            has_begun: AtomicBool::new(false),
            state: Mutex::new(LaneState {
                points: AppendPoints::default(),
                spare: None,
                spare_wanted: false,
                sealing: BTreeSet::new(),
                seals: 0,
                room: Completion::new(),
                lacks_room: false,
                filling: Filling::new(),
                coalescing: Coalescing::new(coalescing),
                jobs: VecDeque::new(),
                unpublished: 0,
                wakes_at: 1,
                newest_unpublished: None,
                unpublished_from: VecDeque::new(),
                reservations: Reservations::default(),
                stopping: false,
                ended: None,
            }),
            providers: AtomicU32::new(0),
            work: Notify::new(),
            spare_taken: Notify::new(),
            coalescing_work: Notify::new(),
            coalescing_spare_taken: Notify::new(),
            frame_target_bytes: lane_frame_bytes(shape),
            expires_from: AtomicU64::new(NEVER_MS),
        });
        let follower: Arc<dyn Follower> = lane.clone();
        health.follow(Arc::downgrade(&follower));
        lane
    }
}

/// Maximum time until a record acknowledged from memory is written and durable.
pub(crate) const MAX_UNWRITTEN: Duration = Duration::from_secs(1);
