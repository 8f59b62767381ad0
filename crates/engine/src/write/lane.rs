//! A lane: the open segment that writers append to, and the order in which its records become visible.
//!
//! See `docs/decisions/0001-one-lane-one-order.md`. The lock of [`LaneState`] is the order: a record's place in the log, its
//! sequence number and the moment it is published follow from who has it. Nothing is awaited under it.

mod ending;
mod jobs;
mod reserving;
mod room;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use esker_log::{Kind, Location, OpenSegment, SegmentShape, Stream, class_of};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::base::completion::{Completion, Waiter};
use crate::base::durability::Durability;
use crate::base::error::{Error, Result};
use crate::base::health::Follower;
use crate::catalog::Catalog;
use crate::catalog::appended::{Appended, pointer};
use crate::segments::buffers::MemoryPool;
use crate::segments::contents::NEVER_MS;
use crate::write::append_points::{AppendPoint, AppendPoints};
use crate::write::prepared::{Group, Prepared};
use crate::write::reserve::{Reservation, Reservations};

pub(crate) use self::jobs::{FrameJob, Job};

/// The frame that is being filled.
struct Filling {
    completion: Completion,
    /// Records that the committer is to publish.
    groups: Vec<Group>,
    /// Someone waits for it to be durable.
    sync: bool,
    /// Someone waits for it, so it is to be written at once.
    due: bool,
    /// When it is to be written at the latest, and be durable.
    deadline: Option<Duration>,
    /// The shortest time that somebody gave it. Whoever comes later and gives it as much changes nothing, and need not look at
    /// the clock.
    shortest: Duration,
}

impl Filling {
    fn new() -> Filling {
        Filling {
            completion: Completion::new(),
            groups: Vec::new(),
            sync: false,
            due: false,
            deadline: None,
            shortest: Duration::MAX,
        }
    }
}

/// What the lane's lock protects.
pub(crate) struct LaneState {
    points: AppendPoints,
    spare: Option<(OpenSegment, usize)>,
    /// Opened when there is a spare segment again.
    room: Completion,
    /// A writer found none.
    lacks_room: bool,
    filling: Filling,
    jobs: VecDeque<Job>,
    /// Groups that the committer still has to publish. While there are any, nobody else publishes.
    unpublished: usize,
    /// Of the newest frame that has any.
    newest_unpublished: Option<Waiter>,
    /// First sequence number of each frame that has any.
    unpublished_from: VecDeque<u64>,
    reservations: Reservations,
    stopping: bool,
    /// How the committer ended, if it has.
    ended: Option<Result<()>>,
}

/// Where records are appended, and what is expected of them.
struct Destination {
    point: AppendPoint,
    short_lived: bool,
}

/// How an append went.
pub(crate) enum Append {
    /// It is acknowledged: in memory and visible.
    Done(u64),
    /// It is acknowledged when the completion event opens.
    Wait(u64, Waiter),
    /// There is no room: try again when the completion event opens.
    Blocked(Waiter),
    /// Others have a key reserved, or are waiting to: wait for a turn.
    Reserved,
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
    /// The committer has something to do.
    pub(crate) work: Notify,
    /// The preallocation has something to do.
    pub(crate) spare_taken: Notify,
    /// A frame this long is written without waiting for more.
    frame_target_bytes: u32,
    /// No record of its open segments that is to be taken out of the index when it expires does so before.
    expires_from: AtomicU64,
}

impl Lane {
    /// `may_part`: whether it may have a second open segment, for records that are expected to last.
    pub(crate) fn new(
        catalog: Arc<Catalog>,
        stream: Stream,
        shape: SegmentShape,
        pool: MemoryPool,
        may_separate: bool,
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
                room: Completion::new(),
                lacks_room: false,
                filling: Filling::new(),
                jobs: VecDeque::new(),
                unpublished: 0,
                newest_unpublished: None,
                unpublished_from: VecDeque::new(),
                reservations: Reservations::default(),
                stopping: false,
                ended: None,
            }),
            work: Notify::new(),
            spare_taken: Notify::new(),
            frame_target_bytes: (shape.segment_bytes / 4).clamp(shape.unit_bytes, 1 << 20),
            expires_from: AtomicU64::new(NEVER_MS),
        });
        let follower: Arc<dyn Follower> = lane.clone();
        health.follow(Arc::downgrade(&follower));
        lane
    }

    /// Appends records as one atomic group, publishes them if they may be seen, and says how they are acknowledged.
    ///
    /// `reserved` is the reservation under which they are written, if any. It ends when they are published; that of plain puts is
    /// left to the caller, since it is of no use any more once they are appended.
    pub(crate) fn append(
        &self,
        records: &[Prepared],
        durability: Durability,
        reserved: &mut Option<Reservation>,
    ) -> Result<Append> {
        self.append_locked(&mut self.state.lock(), records, durability, reserved)
    }

    /// Appends records that have nothing to do with each other, each as a group of its own, as far as it gets: what is left
    /// is to be tried again when the last answer says so.
    pub(crate) fn append_each(
        &self,
        records: &[Prepared],
        durability: Durability,
        answers: &mut Vec<Append>,
    ) -> Result<()> {
        let mut state = self.state.lock();
        for record in records {
            let record = std::slice::from_ref(record);
            let answer = self.append_locked(&mut state, record, durability, &mut None)?;
            let blocked = matches!(answer, Append::Blocked(_) | Append::Reserved);
            answers.push(answer);
            if blocked {
                break;
            }
        }
        Ok(())
    }

    fn append_locked(
        &self,
        state: &mut LaneState,
        records: &[Prepared],
        durability: Durability,
        reserved: &mut Option<Reservation>,
    ) -> Result<Append> {
        self.catalog.space.health.check_writable()?;
        if state.stopping {
            return Err(Error::Closed { reason: "it was closed".into() });
        }
        if reserved.is_none() {
            let keys = records.iter().map(|r| self.catalog.index.stored_hash(&r.hash));
            if state.reservations.conflict(keys) {
                return Ok(Append::Reserved);
            }
        }
        let padded: u64 = records.iter().map(|r| r.padded_bytes(self.shape)).sum();
        // A batch goes to one segment: by its first record.
        let short_lived = self
            .catalog
            .expects_short_life(&records[0].hash, self.catalog.space.sequence.load(Ordering::Relaxed) + 1);
        let wanted =
            if short_lived || !self.separates(state) { AppendPoint::MAIN } else { AppendPoint::LONG_LIVED };
        let Some(point) = self.make_room(state, wanted, records.len(), padded) else {
            return Ok(Append::Blocked(state.room.waiter()));
        };
        let destination = Destination { point, short_lived };
        let answer = self.append_to_open(state, destination, records, durability, reserved);
        if let Some(at_ms) = records.iter().filter_map(|record| record.expires_at_ms).min()
            && self.expires_from_at_most(at_ms)
        {
            self.catalog.space.reclaim.notify_one();
        }
        Ok(answer)
    }

    /// Whether records that are expected to last go to a segment of their own. Not if the frames are so short that those of
    /// two segments would be mostly padding.
    fn separates(&self, state: &LaneState) -> bool {
        self.may_separate && self.catalog.placement.parts() && state.points.frames_may_separate(self.shape)
    }

    /// Sees to it that an append point has room for records, and says which: the one wanted, if there is a segment for it.
    fn make_room(
        &self,
        state: &mut LaneState,
        wanted: AppendPoint,
        records: usize,
        padded: u64,
    ) -> Option<AppendPoint> {
        if state.points.runs_over(wanted, padded, self.frame_target_bytes) {
            // Before it would run over into another write unit, which would be mostly padding.
            self.close_point(state, wanted);
        }
        if state.points.has_room(wanted, records, padded) {
            return Some(wanted);
        }
        self.seal_point(state, wanted);
        let other = wanted.other();
        let other_has_room = state.points.has_room(other, records, padded);
        // Where nothing is separated, what is left of the other segment is filled first.
        if other_has_room && !self.separates(state) {
            return Some(other);
        }
        self.spare_taken.notify_one();
        let Some((mut segment, piece)) = state.spare.take() else {
            if other_has_room {
                return Some(other);
            }
            // So that it shows that there is no room.
            self.seal_point(state, other);
            state.lacks_room = true;
            self.catalog.space.reclaim.notify_one();
            return None;
        };
        segment.set_stream(if wanted == AppendPoint::LONG_LIVED { Stream::LONG_LIVED } else { self.stream });
        let name = segment.name();
        self.catalog.space.tier(self.shape.tier).slots().begin(
            name.slot,
            name.stream,
            self.catalog.space.sequence.load(Ordering::Relaxed),
        );
        state.points.put(wanted, segment, piece);
        Some(wanted)
    }

    fn append_to_open(
        &self,
        state: &mut LaneState,
        Destination { point, short_lived }: Destination,
        records: &[Prepared],
        durability: Durability,
        reserved: &mut Option<Reservation>,
    ) -> Append {
        let open = state.points.open(point).expect("the caller saw to it");
        let name = open.name();
        let before = open.tail();
        let (mut first_sequence, mut last_sequence) = (0, 0);
        let mut append = |i: usize, prepared: &Prepared, key: Bytes| {
            let sequence = prepared.sequence.unwrap_or_else(|| self.catalog.space.next_sequence());
            if i == 0 {
                first_sequence = sequence;
            }
            last_sequence = sequence;
            let record = prepared.record(sequence, i + 1 < records.len(), short_lived);
            let offset = open.append(&record, prepared.hash);
            let class = class_of(record.bytes() as u64);
            let location = Location { tier: self.shape.tier, slot: name.slot, offset, class };
            Appended {
                kind: prepared.kind,
                key,
                hash: prepared.hash,
                location,
                pointer: pointer(&self.catalog.packing, location),
                padded_bytes: self.shape.padded(record.bytes()) as u32,
                replaces: prepared.replaces,
            }
        };
        // Records of the large lane are not in order with those of the main lane, so they are seen when written.
        let wait = matches!(durability, Durability::Sync) || self.stream != Stream::LANE;
        let filling = &mut state.filling;
        let may_take = match durability {
            Durability::Sync => Duration::MAX,
            Durability::Periodic(d) => d.min(MAX_UNWRITTEN),
            Durability::Process | Durability::None => MAX_UNWRITTEN,
        };
        if may_take < filling.shortest {
            let at = self.catalog.space.runtime.now() + may_take;
            if filling.deadline.is_none_or(|before| at < before) {
                filling.deadline = Some(at);
                // The committer may be asleep until the one before.
                self.work.notify_one();
            }
            filling.shortest = may_take;
        }
        filling.sync |= matches!(durability, Durability::Sync);
        let mut reservation = reserved.take_if(|reserved| !reserved.is_shared());
        let answer = if wait || state.unpublished > 0 {
            let records =
                records.iter().enumerate().map(|(i, put)| append(i, put, put.key.clone())).collect();
            let group = Group { records, reservation: reservation.take() };
            if filling.groups.is_empty() {
                state.newest_unpublished = Some(filling.completion.waiter());
                state.unpublished_from.push_back(first_sequence);
            }
            filling.groups.push(group);
            state.unpublished += 1;
            if !filling.due {
                filling.due = true;
                self.work.notify_one();
            }
            Append::Wait(last_sequence, filling.completion.waiter())
        } else if let ([put], None) = (records, &reservation)
            && put.kind == Kind::Put
        {
            // Nobody holds the record any longer than this, so it needs no key of its own.
            self.catalog.publish_put(&append(0, put, Bytes::new()), &put.key);
            Append::Done(last_sequence)
        } else {
            let records: Vec<Appended> =
                records.iter().enumerate().map(|(i, put)| append(i, put, put.key.clone())).collect();
            self.catalog.publish(&records);
            drop(reservation.take());
            Append::Done(last_sequence)
        };
        let open = state.points.open(point).expect("it was appended to");
        if (before..open.tail()).contains(&(self.spare_from_bytes() - 1)) {
            self.spare_taken.notify_one();
        }
        if open.open_frame_bytes() >= u64::from(self.frame_target_bytes) {
            self.close_point(state, point);
        }
        answer
    }
}

/// What is acknowledged from memory is written, and durable, after so long at the latest.
pub(crate) const MAX_UNWRITTEN: Duration = Duration::from_secs(1);
