//! Appending records: everything here happens under the lane's lock, and waits for nothing.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use esker_log::{KeyHash, Kind, Location, OpenSegment, Stream};
use esker_seeded_bugs::{Bug, planted};

use super::coalescing::Destination;
use super::{Lane, LaneState};

use crate::base::completion::Waiter;
use crate::base::durability::Durability;
use crate::base::error::{Error, Result};
use crate::catalog::Catalog;
use crate::catalog::appended::{Appended, pointer};
use crate::write::append_points::AppendPoint;
use crate::write::prepared::{Group, Prepared};
use crate::write::reserve::{Reservation, Unpublished};

/// How an append went.
pub(crate) enum Append {
    /// It is acknowledged: in memory and visible.
    Done(u64),
    /// It is acknowledged when the completion event opens.
    Wait(u64, Waiter),
    /// There is no room: try again when the completion event opens.
    Blocked(Waiter),
    /// Others have a key reserved, or are waiting to, or two databases were swapped: wait for a turn.
    Reserved,
}

/// Appends the records of one group to an open segment, one after the other. Their sequence numbers follow one another.
pub(super) struct Appender<'a> {
    pub(super) lane: &'a Lane,
    pub(super) open: &'a mut OpenSegment,
    /// What is expected of them.
    pub(super) short_lived: bool,
    pub(super) records: &'a [Prepared],
    pub(super) first_sequence: u64,
}

impl Appender<'_> {
    /// Appends the record with a number.
    fn append(&mut self, at: usize, key: Bytes) -> Appended {
        let (prepared, lane) = (&self.records[at], self.lane);
        let sequence = self.first_sequence + at as u64;
        let record = prepared.record(sequence, at + 1 < self.records.len(), self.short_lived);
        let offset = self.open.append(&record, prepared.hash);
        let entry = self.open.entries().last().expect("it was appended");
        if !planted(Bug::ExpansionNotNoted) {
            lane.catalog.expansions.note(entry);
        }
        let class = entry.class();
        let location = Location { tier: lane.shape.tier, slot: self.open.name().slot, offset, class };
        Appended {
            kind: prepared.kind,
            key,
            hash: prepared.hash,
            location,
            pointer: pointer(&lane.catalog.packing, location),
            sequence,
            padded_bytes: entry.bytes,
            replaces: prepared.replaces,
            expires_at_ms: prepared.expires_at_ms,
            origin: prepared.origin,
        }
    }

    fn last_sequence(&self) -> u64 {
        self.first_sequence + self.records.len() as u64 - 1
    }

    /// Appends all of them, with keys of their own.
    fn append_all(&mut self) -> Vec<Appended> {
        (0..self.records.len()).map(|at| self.append(at, self.records[at].key.clone())).collect()
    }
}

impl Lane {
    /// Appends records as one atomic group, publishes them if they may be seen, and says how they are acknowledged.
    ///
    /// `reserved` is the reservation under which they are written, if any. It ends when they are published; one that ends early
    /// and that of plain puts are left to the caller, since they are of no use any more once they are appended.
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
            if blocked && !planted(Bug::RowGoesOnPastBlocked) {
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
        if reserved.is_none() && !planted(Bug::ReservationIgnored) {
            let keys = records.iter().map(|r| self.catalog.index.stored_hash(&r.hash));
            if state.reservations.conflict(keys) || records.iter().any(|r| self.catalog.has_moved(r)) {
                return Ok(Append::Reserved);
            }
        }
        let padded: u64 = records.iter().map(|r| r.padded_bytes(self.shape)).sum();
        // A batch goes to one segment: by its first record.
        let short_lived = self.expects_short_life(&records[0].hash);
        let usual =
            if short_lived || !self.separates(state) { AppendPoint::MAIN } else { AppendPoint::LONG_LIVED };
        let after = reserved.as_mut().and_then(|reserved| reserved.after.take());
        let wanted = after.as_ref().map_or(usual, |after| after.point);
        if after.is_none() {
            match self.destination(state, records, padded, durability) {
                Destination::Memtable => {
                    let reservation = take_reservation(reserved);
                    let answer = self.append_coalescing(state, short_lived, records, durability, reservation);
                    self.expire(records);
                    return Ok(answer);
                }
                Destination::Later(room) => return Ok(Append::Blocked(room)),
                Destination::Lane => {}
            }
        }
        let Some(point) = self.make_room(state, wanted, records.len(), padded) else {
            if let (Some(after), Some(reserved)) = (after, reserved) {
                reserved.after = Some(after);
            }
            return Ok(Append::Blocked(state.room.waiter()));
        };
        if let Some(after) = after.filter(|after| after.point != point) {
            // What it follows would not have to be durable before it.
            return Ok(Append::Blocked(after.published));
        }
        if reserved.as_ref().is_none_or(Reservation::is_shared) && state.unpublished > 0 {
            let keys = records.iter().map(|r| self.catalog.index.stored_hash(&r.hash));
            state.reservations.forget_unpublished(keys);
        }
        let answer = self.append_to_open(state, point, short_lived, records, durability, reserved);
        self.expire(records);
        Ok(answer)
    }

    /// Sees to it that appended records are taken out of the index when they expire.
    fn expire(&self, records: &[Prepared]) {
        if let Some(at_ms) = records.iter().filter_map(|record| record.expires_at_ms).min()
            && self.expires_from_at_most(at_ms)
        {
            self.catalog.space.reclaim.notify_one();
        }
    }

    /// Whether a put of a key is expected to live briefly: by the life of what it displaces, or, where a full store evicts what
    /// nobody asks for, unless the key was dropped of late and is back.
    fn expects_short_life(&self, key: &KeyHash) -> bool {
        let Catalog { recency, space, .. } = &*self.catalog;
        if recency.when_full().evicts() {
            return !recency.was_evicted(key);
        }
        self.catalog.expects_short_life(key, space.sequence.load(Ordering::Relaxed) + 1)
    }

    /// Whether records that are expected to last go to a segment of their own. Not if the frames are so short that those of
    /// two segments would be mostly padding.
    fn separates(&self, state: &LaneState) -> bool {
        let Catalog { recency, placement, .. } = &*self.catalog;
        let wanted = recency.when_full().evicts() || placement.parts();
        self.may_separate && wanted && state.points.frames_may_separate(self.shape)
    }

    /// Sees to it that an append point has room for records, and says which: the one wanted, if there is a segment for it.
    fn make_room(
        &self,
        state: &mut LaneState,
        wanted: AppendPoint,
        records: usize,
        padded: u64,
    ) -> Option<AppendPoint> {
        if state.points.runs_over(wanted, records, padded, self.frame_target_bytes) {
            // Before it would run over into another write unit, which would be mostly padding.
            self.close_point(state, wanted);
        }
        if state.points.has_room(wanted, records, padded) {
            return Some(wanted);
        }
        self.seal_point(state, wanted);
        // The other one may be less than half full, and nobody provides anything as long as it is.
        state.spare_wanted = false;
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
        let (space, tier) = (&self.catalog.space, self.catalog.space.tier(self.shape.tier));
        tier.slots().begin(name.slot, name.stream, space.sequence.load(Ordering::Relaxed));
        tier.slot(name.slot).open_at(name.opened_at);
        tier.slot(name.slot).begin_puts();
        state.points.put(wanted, segment, piece);
        Some(wanted)
    }

    /// Appends records to an open segment that has room for them.
    fn append_to_open(
        &self,
        state: &mut LaneState,
        point: AppendPoint,
        short_lived: bool,
        records: &[Prepared],
        durability: Durability,
        reserved: &mut Option<Reservation>,
    ) -> Append {
        if state.filling.expect(durability, || self.catalog.space.runtime.now()) {
            // The committer may be asleep until the deadline before.
            self.work.notify_one();
        }
        let open = state.points.open(point).expect("the caller saw to it");
        // Only a record that is alone has a number before.
        let first_sequence =
            records[0].sequence.unwrap_or_else(|| self.catalog.space.next_sequences(records.len()));
        let mut appender = Appender { lane: self, open, short_lived, records, first_sequence };
        let ends_early = reserved.as_ref().is_some_and(|reserved| reserved.ends_early);
        let reservation = take_reservation(reserved);
        // Records of the large lane are not in order with those of the main lane, so they are seen when written.
        let is_other_lane = self.stream != Stream::LANE && !planted(Bug::LargeSeenFromMemory);
        let waits = matches!(durability, Durability::Sync) || is_other_lane;
        let answer = if waits || state.unpublished > 0 {
            let mut group = Group { records: appender.append_all(), reservation, unpublished: None };
            if ends_early {
                let published = state.filling.completion.waiter();
                let unpublished = |record: &Appended| {
                    let Appended { pointer, sequence, .. } = *record;
                    let unpublished = Unpublished { pointer, sequence, point, published: published.clone() };
                    (self.catalog.index.stored_hash(&record.hash), unpublished)
                };
                group.unpublished = Some(state.reservations.note(group.records.iter().map(unpublished)));
            }
            if planted(Bug::SeenBeforeDurable) {
                self.catalog.publish(&std::mem::take(&mut group.records), &[]);
            }
            let (first, last) = (first_sequence, appender.last_sequence());
            self.leave_to_committer(state, group, first, last)
        } else {
            self.publish(appender, reservation)
        };
        let open = state.points.open(point).expect("it was appended to");
        // Not when it passes that point: it may do so by the padding of a frame.
        if open.tail() >= self.spare_from_bytes() && state.spare.is_none() && !state.spare_wanted {
            state.spare_wanted = true;
            self.spare_taken.notify_one();
        }
        if open.open_frame_bytes() >= u64::from(self.frame_target_bytes) {
            self.close_point(state, point);
        }
        answer
    }

    /// Appends records and publishes them at once.
    pub(super) fn publish(&self, mut appender: Appender<'_>, reservation: Option<Reservation>) -> Append {
        if let ([put], None) = (appender.records, &reservation)
            && put.kind == Kind::Put
        {
            // Nobody holds the record any longer than this, so it needs no key of its own.
            self.catalog.publish_one(&appender.append(0, Bytes::new()), &put.key);
        } else {
            self.catalog.publish(&appender.append_all(), Reservation::ephemeral_of(reservation.as_ref()));
            drop(reservation);
        }
        Append::Done(appender.last_sequence())
    }

    /// Has the committer publish records that were appended, with these first and last sequence numbers, when their frame is
    /// written.
    fn leave_to_committer(&self, state: &mut LaneState, group: Group, first: u64, last: u64) -> Append {
        let filling = &mut state.filling;
        if filling.groups.is_empty() {
            state.newest_unpublished = Some(filling.completion.waiter());
            state.unpublished_from.push_back(first);
            filling.waited_from = self.catalog.space.runtime.now();
        }
        filling.groups.push(group);
        state.unpublished += 1;
        if filling.groups.len() == state.wakes_at {
            self.work.notify_one();
        }
        Append::Wait(last, filling.completion.waiter())
    }
}

/// The reservation under which records are written, if it ends when they are published.
fn take_reservation(reserved: &mut Option<Reservation>) -> Option<Reservation> {
    reserved.take_if(|reserved| !reserved.is_shared() && !reserved.ends_early)
}
