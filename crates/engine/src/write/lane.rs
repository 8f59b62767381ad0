//! A lane: the open segment that writers append to, and the order in which its records become visible.
//!
//! See `docs/decisions/0001-one-lane-one-order.md`. The lock of [`LaneState`] is the order: a record's place in the log, its
//! sequence number and the moment it is published follow from who has it. Nothing is awaited under it.

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
use crate::write::append_points::AppendPoints;
use crate::write::coalescing::{Coalescing, CoalescingPlan};
use crate::write::deadline::Deadline;
use crate::write::prepared::Group;
use crate::write::reserve::Reservations;

pub(crate) use self::appending::Append;
pub(crate) use self::jobs::{Close, FrameJob, Job};

/// The frame that is being filled.
struct Filling {
    completion: Completion,
    /// Records that the committer is to publish.
    groups: Vec<Group>,
    /// Someone waits for it to be durable.
    sync: bool,
    /// When the first of those came whose groups these are.
    waited_from: Duration,
    /// When it is to be written at the latest, and be durable.
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

    /// Another record is to be as durable as this says. Returns whether the frame is to be written earlier than before.
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

/// What the lane's lock protects.
pub(crate) struct LaneState {
    points: AppendPoints,
    spare: Option<(OpenSegment, usize)>,
    /// Whoever provides it was told that a segment is half full.
    spare_wanted: bool,
    /// Segments that are full and have no summary yet.
    sealing: BTreeSet<u64>,
    /// How many got theirs.
    seals: u64,
    /// Opened when there is a spare segment again.
    room: Completion,
    /// A writer found none.
    lacks_room: bool,
    filling: Filling,
    coalescing: Coalescing,
    jobs: VecDeque<Job>,
    /// Groups that the committer still has to publish. While there are any, nobody else publishes.
    unpublished: usize,
    /// The committer is woken when the frame that is filled has so many groups.
    wakes_at: usize,
    /// Of the newest frame that has any.
    newest_unpublished: Option<Waiter>,
    /// First sequence number of each frame that has any.
    unpublished_from: VecDeque<u64>,
    reservations: Reservations,
    stopping: bool,
    /// How the committer ended, if it has.
    ended: Option<Result<()>>,
}

/// A lane.
pub(crate) struct Lane {
    /// Where its records become visible.
    catalog: Arc<Catalog>,
    pub(crate) stream: Stream,
    may_separate: bool,
    pub(crate) shape: SegmentShape,
    pub(crate) pool: MemoryPool,
    /// It had a segment in this opening.
    pub(crate) has_begun: AtomicBool,
    state: Mutex<LaneState>,
    /// How many look for a segment for it, so that a slot may be on its way.
    providers: AtomicU32,
    /// The committer has something to do.
    pub(crate) work: Notify,
    /// The preallocation has something to do.
    pub(crate) spare_taken: Notify,
    /// Whoever writes out what coalesces has something to do.
    pub(crate) coalescing_work: Notify,
    /// Whoever provides segments that coalesce has something to do.
    pub(crate) coalescing_spare_taken: Notify,
    /// A frame this long is written without waiting for more.
    frame_target_bytes: u32,
    /// No record of its open segments that is to be taken out of the index when it expires does so before.
    expires_from: AtomicU64,
}

impl Lane {
    /// `may_separate`: whether it may have a second open segment, for records that are expected to last. `coalescing`: whether
    /// records wait to be overwritten.
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
            frame_target_bytes: (shape.segment_bytes / 4).clamp(shape.unit_bytes, 1 << 20),
            expires_from: AtomicU64::new(NEVER_MS),
        });
        let follower: Arc<dyn Follower> = lane.clone();
        health.follow(Arc::downgrade(&follower));
        lane
    }
}

/// What is acknowledged from memory is written, and durable, after so long at the latest.
pub(crate) const MAX_UNWRITTEN: Duration = Duration::from_secs(1);
