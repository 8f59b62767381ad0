//! Appending records: everything here runs under the lane's lock, and never waits.

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

/// Result of an append.
pub(crate) enum Append {
    /// Acknowledged: in memory and visible.
    Done(u64),
    /// Acknowledged when the completion event opens.
    Wait(u64, Waiter),
    /// No room: retry when the completion event opens.
    Blocked(Waiter),
    /// A key is reserved or waited for by another writer, or two databases were swapped: wait for a turn.
    Reserved,
}

/// Appends the records of one group to an open segment, with consecutive sequence numbers.
pub(super) struct Appender<'a> {
    pub(super) lane: &'a Lane,
    pub(super) open: &'a mut OpenSegment,
    /// True if the records are expected to be short-lived.
    pub(super) short_lived: bool,
    pub(super) records: &'a [Prepared],
    pub(super) first_sequence: u64,
}

impl Appender<'_> {
    /// Appends the record with this number in the group.
    fn append(&mut self, at: usize, key: Bytes) -> Appended {
        let (prepared, lane) = (&self.records[at], self.lane);
        let sequence = self.first_sequence + at as u64;
        let record = prepared.record(sequence, at + 1 < self.records.len(), self.short_lived);
        let offset = self.open.append(&record, prepared.hash);
        let entry = self.open.entries().last().expect("a record was just appended");
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

    /// Appends all records, with copies of their keys.
    fn append_all(&mut self) -> Vec<Appended> {
        (0..self.records.len()).map(|at| self.append(at, self.records[at].key.clone())).collect()
    }
}

impl Lane {
    /// Appends records as one atomic group, publishes them if they may be visible, and returns how they are acknowledged.
    ///
    /// `reserved` is the reservation under which they are written, if any. It ends when they are published; a reservation that
    /// ends early and a turn of plain puts are left to the caller, because they have no use after the append.
    pub(crate) fn append(
        &self,
        records: &[Prepared],
        durability: Durability,
        reserved: &mut Option<Reservation>,
    ) -> Result<Append> {
        self.append_locked(&mut self.state.lock(), records, durability, reserved, false)
    }

    /// Appends committed commands, each as a group of its own, until one is blocked, as
    /// [`append_each`](Self::append_each). They pass by reservations, which belong to writers that wait for them.
    pub(crate) fn append_committed<'r>(
        &self,
        commands: impl Iterator<Item = &'r [Prepared]>,
        answers: &mut Vec<Append>,
    ) -> Result<()> {
        let mut state = self.state.lock();
        for command in commands {
            let answer = self.append_locked(&mut state, command, Durability::None, &mut None, true)?;
            let blocked = matches!(answer, Append::Blocked(_) | Append::Reserved);
            answers.push(answer);
            if blocked {
                break;
            }
        }
        Ok(())
    }

    /// Appends unrelated records, each as a group of its own, until one is blocked: it and the rest must be retried as the last
    /// answer says.
    pub(crate) fn append_each(
        &self,
        records: &[Prepared],
        durability: Durability,
        answers: &mut Vec<Append>,
    ) -> Result<()> {
        let mut state = self.state.lock();
        for record in records {
            let record = std::slice::from_ref(record);
            let answer = self.append_locked(&mut state, record, durability, &mut None, false)?;
            let blocked = matches!(answer, Append::Blocked(_) | Append::Reserved);
            answers.push(answer);
            if blocked && !planted(Bug::RowGoesOnPastBlocked) {
                break;
            }
        }
        Ok(())
    }

    /// `is_committed`: the records are a command of a replicated store, which passes by reservations.
    fn append_locked(
        &self,
        state: &mut LaneState,
        records: &[Prepared],
        durability: Durability,
        reserved: &mut Option<Reservation>,
        is_committed: bool,
    ) -> Result<Append> {
        self.catalog.space.health.check_writable()?;
        if state.stopping {
            return Err(Error::Closed { reason: "it was closed".into() });
        }
        if reserved.is_none() && !is_committed && !planted(Bug::ReservationIgnored) {
            let keys = records.iter().map(|r| self.catalog.index.stored_hash(&r.hash));
            if state.reservations.conflict(keys) || records.iter().any(|r| self.catalog.has_moved(r)) {
                return Ok(Append::Reserved);
            }
        }
        let padded: u64 = records.iter().map(|r| r.padded_bytes(self.shape)).sum();
        // A batch goes to one segment, chosen by its first record.
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
            // The record that it follows would not have to be durable before it.
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

    /// Ensures that appended records are removed from the index when they expire.
    fn expire(&self, records: &[Prepared]) {
        if let Some(at_ms) = records.iter().filter_map(|record| record.expires_at_ms).min()
            && self.expires_from_at_most(at_ms)
        {
            self.catalog.space.reclaim.notify_one();
        }
    }

    /// Returns true if a put of a key is expected to be short-lived: by the life of the record that it displaces or, in a full
    /// store that evicts cold keys, unless the key was evicted recently and returns.
    fn expects_short_life(&self, key: &KeyHash) -> bool {
        let Catalog { recency, space, .. } = &*self.catalog;
        if recency.when_full().evicts() {
            return !recency.was_evicted(key);
        }
        self.catalog.expects_short_life(key, space.sequence.load(Ordering::Relaxed) + 1)
    }

    /// Returns true if long-lived records go to a segment of their own. False if frames are so short that those of two segments
    /// would be mostly padding.
    fn separates(&self, state: &LaneState) -> bool {
        let Catalog { recency, placement, .. } = &*self.catalog;
        let wanted = recency.when_full().evicts() || placement.parts();
        self.may_separate && wanted && state.points.frames_may_separate(self.shape)
    }

    /// Makes room for records at an append point, and returns it: the wanted one, if there is a segment for it.
    fn make_room(
        &self,
        state: &mut LaneState,
        wanted: AppendPoint,
        records: usize,
        padded: u64,
    ) -> Option<AppendPoint> {
        if state.points.runs_over(wanted, records, padded, self.frame_target_bytes) {
            // Close the frame before it extends into another write unit, which would be mostly padding.
            self.close_point(state, wanted);
        }
        if state.points.has_room(wanted, records, padded) {
            return Some(wanted);
        }
        self.seal_point(state, wanted);
        // The other segment may be less than half full, and no spare is provided while it is.
        state.spare_wanted = false;
        let other = wanted.other();
        let other_has_room = state.points.has_room(other, records, padded);
        // If records are not separated, the rest of the other segment is filled first.
        if other_has_room && !self.separates(state) {
            return Some(other);
        }
        self.spare_taken.notify_one();
        let Some((mut segment, piece)) = state.spare.take() else {
            if other_has_room {
                return Some(other);
            }
            // Sealed so that `is_out_of_room` reports the lack of room.
            self.seal_point(state, other);
            state.lacks_room = true;
            self.catalog.space.reclaim.notify_one();
            return None;
        };
        segment.set_stream(if wanted == AppendPoint::LONG_LIVED { Stream::LONG_LIVED } else { self.stream });
        let name = segment.name();
        let (space, tier) = (&self.catalog.space, self.catalog.space.tier(self.shape.tier));
        tier.slots().begin(name.slot, name.stream, space.sequence.load(Ordering::Relaxed));
        tier.slots().open_at(name.slot, name.opened_at);
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
            // The committer may be asleep until the previous deadline.
            self.work.notify_one();
        }
        let open = state.points.open(point).expect("the caller made room at this append point");
        // Only a single record can have a number in advance.
        let first_sequence =
            records[0].sequence.unwrap_or_else(|| self.catalog.space.next_sequences(records.len()));
        let mut appender = Appender { lane: self, open, short_lived, records, first_sequence };
        let ends_early = reserved.as_ref().is_some_and(|reserved| reserved.ends_early);
        let reservation = take_reservation(reserved);
        // Records of the large lane are not ordered with those of the main lane, so they become visible when written.
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
        let open = state.points.open(point).expect("the frame was just appended to");
        // Tested at every append, not only when a record passes that point, because the padding of a frame may pass it.
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
            // The record is not kept beyond this call, so it needs no copy of the key.
            self.catalog.publish_one(&appender.append(0, Bytes::new()), &put.key);
        } else {
            self.catalog.publish(&appender.append_all(), Reservation::ephemeral_of(reservation.as_ref()));
            drop(reservation);
        }
        Append::Done(appender.last_sequence())
    }

    /// Leaves appended records, with these first and last sequence numbers, to the committer for publication when their frame
    /// is written.
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

/// Takes the reservation under which records are written, if it ends when they are published.
fn take_reservation(reserved: &mut Option<Reservation>) -> Option<Reservation> {
    reserved.take_if(|reserved| !reserved.is_shared() && !reserved.ends_early)
}
