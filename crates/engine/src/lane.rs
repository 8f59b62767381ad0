//! A lane: the open segment that writers append to, and the order in which its records become visible.
//!
//! See `docs/decisions/0001-one-lane-one-order.md`. The lock of [`LaneState`] is the order: a record's place in the log, its
//! sequence number and the moment it is published follow from who has it. Nothing is awaited under it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use esker_device::SegmentBuffer;
use esker_index::{KeyHash, Pointer};
use esker_log::{ClosedFrame, Kind, Location, OpenSegment, Record, SegmentShape, Stream, class_of};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::gate::Gate;
use crate::memory::{MemoryPool, pointer};
use crate::options::Durability;
use crate::reserve::{Reservation, Reservations};

/// A record ready to be appended.
pub(crate) struct Prepared {
    pub(crate) kind: Kind,
    pub(crate) key: Bytes,
    pub(crate) value: Bytes,
    pub(crate) hash: KeyHash,
    pub(crate) value_check: u64,
    pub(crate) expires_at_ms: Option<u64>,
    /// Drawn before it is appended where the key is reserved for that; else given under the lane's lock.
    pub(crate) sequence: Option<u64>,
    /// For a tombstone: what it removes. For a conditional put: what it was compared with.
    pub(crate) replaces: Option<Replaced>,
}

/// The record that a write was found to replace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replaced {
    pub(crate) pointer: Pointer,
    /// Length of the record, padding included.
    pub(crate) padded_bytes: u32,
}

impl Prepared {
    pub(crate) fn record(&self, sequence: u64, batch_goes_on: bool) -> Record<'_> {
        Record {
            kind: self.kind,
            key: &self.key,
            value: &self.value,
            value_check: self.value_check,
            sequence,
            expires_at_ms: self.expires_at_ms,
            batch_goes_on,
        }
    }

    pub(crate) fn padded_bytes(&self, shape: SegmentShape) -> u64 {
        let expires = self.expires_at_ms.is_some();
        shape.padded(esker_log::record_bytes(self.key.len(), self.value.len(), expires))
    }
}

/// A record that was appended and is to be published.
pub(crate) struct Appended {
    pub(crate) kind: Kind,
    pub(crate) key: Bytes,
    pub(crate) hash: KeyHash,
    pub(crate) location: Location,
    pub(crate) pointer: Pointer,
    pub(crate) padded_bytes: u32,
    pub(crate) replaces: Option<Replaced>,
}

/// Records that become visible at one instant.
pub(crate) struct Group {
    pub(crate) records: Vec<Appended>,
    /// Ends when the group is published.
    pub(crate) reservation: Option<Reservation>,
}

/// What the committer is to do next.
pub(crate) enum Job {
    Frame(FrameJob),
    /// The segment's frames were all queued before: write its summary.
    Seal(OpenSegment, usize),
    /// Make everything written so far durable.
    Flush(Arc<Gate>),
}

/// A closed frame on its way to the device.
pub(crate) struct FrameJob {
    pub(crate) slot: u32,
    pub(crate) segment: u64,
    pub(crate) buffer: Arc<SegmentBuffer>,
    pub(crate) closed: ClosedFrame,
    pub(crate) sync: bool,
    pub(crate) groups: Vec<Group>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) deadline: Option<Duration>,
}

/// The frame that is being filled.
struct Filling {
    gate: Arc<Gate>,
    /// Records that the committer is to publish.
    groups: Vec<Group>,
    /// Someone waits for it to be durable.
    sync: bool,
    /// Someone waits for it, so it is to be written at once.
    due: bool,
    /// When it is to be written at the latest, and be durable.
    deadline: Option<Duration>,
}

impl Filling {
    fn new() -> Filling {
        Filling { gate: Gate::new(), groups: Vec::new(), sync: false, due: false, deadline: None }
    }
}

/// What the lane's lock protects.
pub(crate) struct LaneState {
    open: Option<(OpenSegment, usize)>,
    spare: Option<(OpenSegment, usize)>,
    /// Opened when there is a spare segment again.
    room: Arc<Gate>,
    filling: Filling,
    jobs: VecDeque<Job>,
    /// Groups that the committer still has to publish. While there are any, nobody else publishes.
    unpublished: usize,
    /// Gate of the newest frame that has any.
    newest_unpublished: Option<Arc<Gate>>,
    /// Offset in the open segment below which everything is durable.
    durable_through: (u64, u32),
    /// First sequence number of each frame that has any.
    unpublished_from: VecDeque<u64>,
    reservations: Reservations,
    stopping: bool,
    /// How the committer ended, if it has.
    ended: Option<Result<()>>,
}

/// How an append went.
pub(crate) enum Append {
    /// It is acknowledged: in memory and visible.
    Done(u64),
    /// It is acknowledged when the gate opens.
    Wait(u64, Arc<Gate>),
    /// Try again when the gate opens.
    Blocked(Arc<Gate>),
}

/// A lane.
pub(crate) struct Lane {
    pub(crate) stream: Stream,
    pub(crate) shape: SegmentShape,
    pub(crate) pool: MemoryPool,
    state: Mutex<LaneState>,
    /// The committer has something to do.
    pub(crate) work: Notify,
    /// The provisioner has something to do.
    pub(crate) spare_taken: Notify,
    /// A frame this long is written without waiting for more.
    frame_target_bytes: u32,
}

impl Lane {
    pub(crate) fn new(stream: Stream, shape: SegmentShape, pool: MemoryPool) -> Lane {
        Lane {
            stream,
            shape,
            pool,
            state: Mutex::new(LaneState {
                open: None,
                spare: None,
                room: Gate::new(),
                filling: Filling::new(),
                jobs: VecDeque::new(),
                unpublished: 0,
                newest_unpublished: None,
                durable_through: (0, 0),
                unpublished_from: VecDeque::new(),
                reservations: Reservations::default(),
                stopping: false,
                ended: None,
            }),
            work: Notify::new(),
            spare_taken: Notify::new(),
            frame_target_bytes: (shape.segment_bytes / 16).clamp(shape.unit_bytes, 1 << 20),
        }
    }

    /// Appends records as one atomic group, publishes them if they may be seen, and says how they are acknowledged.
    ///
    /// `reserved` is the reservation under which they are written, if any. It ends when they are published.
    pub(crate) fn append(
        &self,
        engine: &Engine,
        records: &[Prepared],
        durability: Durability,
        reserved: &mut Option<Reservation>,
    ) -> Result<Append> {
        self.append_locked(engine, &mut self.state.lock(), records, durability, reserved)
    }

    /// Appends records that have nothing to do with each other, each as a group of its own, as far as it gets: what is left
    /// is to be tried again when the last answer says so.
    pub(crate) fn append_each(
        &self,
        engine: &Engine,
        records: &[Prepared],
        durability: Durability,
        answers: &mut Vec<Append>,
    ) -> Result<()> {
        let mut state = self.state.lock();
        for record in records {
            let record = std::slice::from_ref(record);
            let answer = self.append_locked(engine, &mut state, record, durability, &mut None)?;
            let blocked = matches!(answer, Append::Blocked(_));
            answers.push(answer);
            if blocked {
                break;
            }
        }
        Ok(())
    }

    fn append_locked(
        &self,
        engine: &Engine,
        state: &mut LaneState,
        records: &[Prepared],
        durability: Durability,
        reserved: &mut Option<Reservation>,
    ) -> Result<Append> {
        engine.check_writable()?;
        if state.stopping {
            return Err(Error::Closed { reason: "it was closed".into() });
        }
        if reserved.is_none() {
            let keys = records.iter().map(|r| engine.index.stored_hash(&r.hash));
            if let Some(gate) = state.reservations.conflict(keys) {
                return Ok(Append::Blocked(gate));
            }
        }
        let padded: u64 = records.iter().map(|r| r.padded_bytes(self.shape)).sum();
        let target = u64::from(self.frame_target_bytes);
        let runs_over = |(open, _): &(OpenSegment, usize)| {
            open.open_records() > 0 && open.open_frame_bytes() + padded > target
        };
        if state.open.as_ref().is_some_and(runs_over) {
            // Before it would run over into another write unit, which would be mostly padding.
            self.close_frame(state);
            self.work.notify_one();
        }
        let fits = |open: &(OpenSegment, usize)| open.0.has_room(records.len(), padded);
        if !state.open.as_ref().is_some_and(fits) {
            self.close_frame(state);
            if let Some((segment, piece)) = state.open.take() {
                state.jobs.push_back(Job::Seal(segment, piece));
                self.work.notify_one();
            }
            state.open = state.spare.take();
            self.spare_taken.notify_one();
            if state.open.is_none() {
                return Ok(Append::Blocked(state.room.clone()));
            }
        }
        Ok(self.append_to_open(engine, state, records, durability, reserved))
    }

    fn append_to_open(
        &self,
        engine: &Engine,
        state: &mut LaneState,
        records: &[Prepared],
        durability: Durability,
        reserved: &mut Option<Reservation>,
    ) -> Append {
        let (open, _) = state.open.as_mut().expect("the caller saw to it");
        let name = open.name();
        let before = open.tail();
        let (mut first_sequence, mut last_sequence) = (0, 0);
        let mut append = |i: usize, prepared: &Prepared, key: Bytes| {
            let sequence = prepared.sequence.unwrap_or_else(|| engine.next_sequence());
            if i == 0 {
                first_sequence = sequence;
            }
            last_sequence = sequence;
            let record = prepared.record(sequence, i + 1 < records.len());
            let digest = esker_log::KeyDigest { slot: prepared.hash.slot, check: prepared.hash.check };
            let offset = open.append(&record, digest);
            let class = class_of(record.bytes() as u64);
            let location = Location { tier: self.shape.tier, slot: name.slot, offset, class };
            Appended {
                kind: prepared.kind,
                key,
                hash: prepared.hash,
                location,
                pointer: pointer(&engine.packing, location),
                padded_bytes: self.shape.padded(record.bytes()) as u32,
                replaces: prepared.replaces,
            }
        };
        // Records of the large lane are not in order with those of the main lane, so they are seen when written.
        let wait = matches!(durability, Durability::Sync) || self.stream != Stream::LANE;
        let filling = &mut state.filling;
        let deadline = match durability {
            Durability::Sync => None,
            Durability::Periodic(d) => Some(d.min(MAX_UNWRITTEN)),
            Durability::Process | Durability::None => Some(MAX_UNWRITTEN),
        };
        if let Some(age) = deadline {
            let at = engine.runtime.now() + age;
            if filling.deadline.is_none_or(|d| at < d) {
                if filling.deadline.is_none() {
                    self.work.notify_one();
                }
                filling.deadline = Some(at);
            }
        }
        filling.sync |= matches!(durability, Durability::Sync);
        let answer = if wait || state.unpublished > 0 {
            let records =
                records.iter().enumerate().map(|(i, put)| append(i, put, put.key.clone())).collect();
            let group = Group { records, reservation: reserved.take() };
            if filling.groups.is_empty() {
                state.newest_unpublished = Some(filling.gate.clone());
                state.unpublished_from.push_back(first_sequence);
            }
            filling.groups.push(group);
            state.unpublished += 1;
            if !filling.due {
                filling.due = true;
                self.work.notify_one();
            }
            Append::Wait(last_sequence, filling.gate.clone())
        } else if let ([put], None) = (records, &reserved)
            && put.kind == Kind::Put
        {
            // Nobody holds the record any longer than this, so it needs no key of its own.
            engine.publish_put(&append(0, put, Bytes::new()), &put.key);
            Append::Done(last_sequence)
        } else {
            let records =
                records.iter().enumerate().map(|(i, put)| append(i, put, put.key.clone())).collect();
            engine.publish(Group { records, reservation: reserved.take() });
            Append::Done(last_sequence)
        };
        if (before..open.tail()).contains(&(self.spare_from_bytes() - 1)) {
            self.spare_taken.notify_one();
        }
        if open.open_frame_bytes() >= u64::from(self.frame_target_bytes) {
            self.close_frame(state);
            self.work.notify_one();
        }
        answer
    }

    /// Closes the frame that is being filled and queues it.
    fn close_frame(&self, state: &mut LaneState) {
        let Some((open, _)) = &mut state.open else { return };
        let name = open.name();
        let durable_through =
            if state.durable_through.0 == name.segment { state.durable_through.1 } else { 0 };
        let Some(closed) = open.close_frame(durable_through) else { return };
        let filling = std::mem::replace(&mut state.filling, Filling::new());
        state.jobs.push_back(Job::Frame(FrameJob {
            slot: name.slot,
            segment: name.segment,
            buffer: open.memory().buffer(),
            closed,
            sync: filling.sync,
            groups: filling.groups,
            gate: filling.gate,
            deadline: filling.deadline,
        }));
    }

    /// The committer's next job. `may_close`: the open frame may be closed if someone waits for it, or it is due.
    pub(crate) fn next_job(&self, may_close: bool, now: Duration) -> Option<Job> {
        let mut state = self.state.lock();
        let filling = &state.filling;
        let due = filling.due || filling.deadline.is_some_and(|d| d <= now) || state.stopping;
        if state.jobs.is_empty() && may_close && due {
            self.close_frame(&mut state);
        }
        state.jobs.pop_front()
    }

    /// When the open frame is to be written at the latest.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.state.lock().filling.deadline
    }

    /// The committer has published so many groups.
    pub(crate) fn published(&self, groups: usize) {
        if groups == 0 {
            return;
        }
        let mut state = self.state.lock();
        state.unpublished -= groups;
        state.unpublished_from.pop_front();
        if state.unpublished == 0 {
            state.newest_unpublished = None;
        }
    }

    /// The highest sequence number up to which everything that was appended is published.
    pub(crate) fn published_through(&self, engine: &Engine) -> u64 {
        let state = self.state.lock();
        let given_out = engine.sequence.load(Ordering::Acquire);
        state.unpublished_from.front().map_or(given_out, |first| first - 1)
    }

    /// A segment is durable below an offset.
    pub(crate) fn set_durable(&self, segment: u64, through: u32) {
        self.state.lock().durable_through = (segment, through);
    }

    /// Reserves keys. When it returns, everything that was appended before is published, and no one else can write the
    /// keys until the reservation is dropped.
    pub(crate) async fn reserve(&self, engine: &Engine, keys: Vec<u64>) -> Result<Reservation> {
        self.reserve_by(engine, |reservations| reservations.take(keys.clone())).await
    }

    /// Reserves every key.
    pub(crate) async fn reserve_all(&self, engine: &Engine) -> Result<Reservation> {
        self.reserve_by(engine, Reservations::take_all).await
    }

    async fn reserve_by(
        &self,
        engine: &Engine,
        take: impl Fn(&Reservations) -> std::result::Result<Reservation, Arc<Gate>>,
    ) -> Result<Reservation> {
        loop {
            let (taken, earlier) = {
                let state = self.state.lock();
                engine.check_writable()?;
                (take(&state.reservations), state.newest_unpublished.clone())
            };
            match taken {
                Ok(reservation) => {
                    if let Some(earlier) = earlier {
                        earlier.wait().await?;
                    }
                    return Ok(reservation);
                }
                Err(gate) => gate.wait().await?,
            }
        }
    }

    /// Queues a flush: the gate opens when everything appended so far is durable.
    pub(crate) fn flush(&self) -> Arc<Gate> {
        let mut state = self.state.lock();
        let gate = Gate::new();
        if let Some(ended) = &state.ended {
            gate.open(ended.clone());
            return gate;
        }
        self.close_frame(&mut state);
        state.jobs.push_back(Job::Flush(gate.clone()));
        self.work.notify_one();
        gate
    }

    /// How full the open segment is when the next one is made ready: early enough that nobody waits for it, and not
    /// before, so that a store that holds little takes little room.
    fn spare_from_bytes(&self) -> u32 {
        self.shape.segment_bytes / 2
    }

    /// Whether a spare segment is missing.
    pub(crate) fn wants_spare(&self) -> bool {
        let state = self.state.lock();
        let nearly_full = |open: &(OpenSegment, usize)| open.0.tail() >= self.spare_from_bytes();
        state.spare.is_none() && !state.stopping && state.open.as_ref().is_none_or(nearly_full)
    }

    /// Provides the next segment.
    pub(crate) fn put_spare(&self, segment: OpenSegment, piece: usize) {
        let room = {
            let mut state = self.state.lock();
            state.spare = Some((segment, piece));
            std::mem::replace(&mut state.room, Gate::new())
        };
        room.open(Ok(()));
    }

    /// Tells writers who wait for room that there will be none.
    pub(crate) fn refuse_waiting(&self, error: Error) {
        let room = std::mem::replace(&mut self.state.lock().room, Gate::new());
        room.open(Err(error));
    }

    /// Whether writers wait for room, or soon will.
    pub(crate) fn is_out_of_room(&self) -> bool {
        let state = self.state.lock();
        state.open.is_none() && state.spare.is_none()
    }

    /// No more appends. What was appended is still written.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        state.stopping = true;
        self.close_frame(&mut state);
        drop(state);
        self.work.notify_one();
        self.spare_taken.notify_one();
    }

    /// The open segment of a lane that has stopped, if there is anything in it.
    pub(crate) fn take_open(&self) -> Option<(OpenSegment, usize)> {
        self.state.lock().open.take().filter(|(segment, _)| !segment.entries().is_empty())
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.state.lock().stopping
    }

    /// The committer has ended; what it was still asked for is answered as it ended.
    pub(crate) fn ended(&self, how: Result<()>) {
        let jobs = {
            let mut state = self.state.lock();
            state.ended.get_or_insert(how.clone());
            std::mem::take(&mut state.jobs)
        };
        for job in jobs {
            if let Job::Flush(gate) = job {
                gate.open(how.clone());
            }
        }
    }

    /// Ends everybody's waiting after the store was latched.
    pub(crate) fn fail(&self, error: &Error) {
        let (gates, groups) = {
            let mut state = self.state.lock();
            state.ended.get_or_insert_with(|| Err(error.clone()));
            let mut gates = vec![state.room.clone(), state.filling.gate.clone()];
            let mut groups = std::mem::take(&mut state.filling.groups);
            for job in std::mem::take(&mut state.jobs) {
                match job {
                    Job::Frame(frame) => {
                        gates.push(frame.gate);
                        groups.extend(frame.groups);
                    }
                    Job::Flush(gate) => gates.push(gate),
                    Job::Seal(..) => {}
                }
            }
            (gates, groups)
        };
        // Reservations end here, outside the lock.
        drop(groups);
        gates.iter().for_each(|gate| gate.open(Err(error.clone())));
    }
}

/// What is acknowledged from memory is written, and durable, after so long at the latest.
pub(crate) const MAX_UNWRITTEN: Duration = Duration::from_secs(1);
