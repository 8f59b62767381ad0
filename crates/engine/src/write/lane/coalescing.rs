//! Puts that coalesce: appending them to a memtable, and handing memtables over to be written out.

use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_log::Kind;
use esker_seeded_bugs::{Bug, planted};

use super::appending::{Append, Appender};
use super::{Lane, LaneState};

use crate::base::completion::{Completion, Waiter};
use crate::base::durability::Durability;
use crate::base::error::Result;
use crate::write::coalescing::{Coalescing, Memtable, Piece};
use crate::write::prepared::Prepared;
use crate::write::reserve::Reservation;

/// Records longer than a segment divided by this go to the lane's own segment.
const COALESCED_RECORD_DIVISOR: u64 = 8;

/// Destination of appended records.
pub(super) enum Destination {
    /// The open segment of the memtable, which has room for them.
    Memtable,
    /// To be retried when the completion event opens.
    Later(Waiter),
    /// A segment of the lane.
    Lane,
}

impl Lane {
    /// Decides whether records are appended to the memtable.
    pub(super) fn destination(
        &self,
        state: &mut LaneState,
        records: &[Prepared],
        padded: u64,
        durability: Durability,
    ) -> Destination {
        if state.coalescing.plan.is_none() || state.coalescing.ended.is_some() {
            return Destination::Lane;
        }
        let is_single_put = matches!(records, [put] if put.kind == Kind::Put && put.sequence.is_none());
        let waits = is_single_put
            && !matches!(durability, Durability::Sync)
            && (state.unpublished == 0 || planted(Bug::CoalescedPastUnpublished))
            && padded <= u64::from(self.shape.segment_bytes) / COALESCED_RECORD_DIVISOR;
        if waits { self.make_coalescing_room(&mut state.coalescing, padded) } else { Destination::Lane }
    }

    fn make_coalescing_room(&self, coalescing: &mut Coalescing, padded: u64) -> Destination {
        if coalescing.open.as_ref().is_some_and(|(open, _)| open.has_room(1, padded)) {
            return Destination::Memtable;
        }
        coalescing.full.extend(coalescing.open.take());
        self.coalescing_work.notify_one();
        self.coalescing_spare_taken.notify_one();
        let spare = if coalescing.is_full() { None } else { coalescing.spare.take() };
        let Some(piece) = spare else {
            if coalescing.lacks_segments {
                return Destination::Lane;
            }
            // Falling back to the lane would write records to the device that are overwritten a moment later, and take them
            // from the memtable.
            return Destination::Later(coalescing.waiting.get_or_insert_with(Completion::new).waiter());
        };
        let name = piece.0.name();
        let (space, tier) = (&self.catalog.space, self.catalog.space.tier(self.shape.tier));
        let sequence = space.sequence.load(Ordering::Relaxed);
        tier.slots().begin(name.slot, name.stream, sequence);
        tier.slots().open_at(name.slot, name.opened_at);
        tier.slot(name.slot).begin_puts();
        tier.slot(name.slot).set_coalescing(true);
        coalescing.open = Some(piece);
        Destination::Memtable
    }

    /// Appends a put to the open segment of the memtable, and publishes it.
    pub(super) fn append_coalescing(
        &self,
        state: &mut LaneState,
        short_lived: bool,
        records: &[Prepared],
        durability: Durability,
        reservation: Option<Reservation>,
    ) -> Append {
        if state.coalescing.expect(durability, || self.catalog.space.runtime.now()) {
            self.coalescing_work.notify_one();
        }
        let first_sequence = self.catalog.space.next_sequences(records.len());
        let (open, _) = state.coalescing.open.as_mut().expect("there is room");
        self.publish(Appender { lane: self, open, short_lived, records, first_sequence }, reservation)
    }

    /// Returns the maximum number of memtable segments.
    pub(crate) fn coalescing_segments(&self) -> usize {
        self.state.lock().coalescing.plan.map_or(0, |plan| plan.segments)
    }

    /// Notes that `slots` slots of the memtable being written out are free or hold ordinary segments; reserves as many for the
    /// next.
    pub(crate) fn give_coalescing_slots_back(&self, slots: usize) {
        let coalescing = &mut self.state.lock().coalescing;
        coalescing.given_back = slots;
        self.catalog.space.reserve_for_coalescing(coalescing.slots_in_use());
    }

    /// Returns true if another memtable segment is needed.
    pub(crate) fn wants_coalescing_spare(&self) -> bool {
        let state = self.state.lock();
        let coalescing = &state.coalescing;
        let is_wanted = coalescing.plan.is_some_and(|plan| coalescing.in_use() < plan.segments);
        is_wanted && coalescing.spare.is_none() && !state.stopping
    }

    /// Provides the next memtable segment.
    pub(crate) fn put_coalescing_spare(&self, piece: Piece) {
        let waiting = {
            let coalescing = &mut self.state.lock().coalescing;
            coalescing.spare = Some(piece);
            coalescing.lacks_segments = false;
            self.catalog.space.reserve_for_coalescing(coalescing.slots_in_use());
            // If the memtable is full, they wait until it is taken.
            if coalescing.is_full() { None } else { coalescing.waiting.take() }
        };
        if let Some(waiting) = waiting {
            waiting.open(Ok(()));
        }
    }

    /// Notes that there is no slot or memory for another segment. If puts need one, the memtable is written out, so that both
    /// are returned; if there is no memtable, puts go to the lane's own segment.
    pub(crate) fn lacks_coalescing_spare(&self) {
        let waiting = {
            let coalescing = &mut self.state.lock().coalescing;
            if coalescing.open.is_none() && !coalescing.full.is_empty() {
                coalescing.is_wanted = true;
                self.coalescing_work.notify_one();
            }
            coalescing.lacks_segments =
                coalescing.open.is_none() && coalescing.full.is_empty() && coalescing.leaving.is_none();
            if coalescing.lacks_segments { coalescing.waiting.take() } else { None }
        };
        if let Some(waiting) = waiting {
            waiting.open(Ok(()));
        }
    }

    /// Returns the memtable, if it is due to be written out.
    pub(crate) fn next_memtable(&self, now: Duration) -> Option<Memtable> {
        let (memtable, waiting) = {
            let mut state = self.state.lock();
            if !state.coalescing.is_due(now) && (!state.stopping || state.coalescing.is_empty()) {
                return None;
            }
            let coalescing = &mut state.coalescing;
            let memtable = coalescing.take_memtable();
            // Otherwise a segment becomes available when those of the previous memtable are returned.
            (memtable, coalescing.waiting.take_if(|_| coalescing.spare.is_some()))
        };
        if let Some(waiting) = waiting {
            waiting.open(Ok(()));
        }
        self.coalescing_spare_taken.notify_one();
        Some(memtable)
    }

    /// Returns the time at which the memtable is due.
    pub(crate) fn coalescing_deadline(&self) -> Option<Duration> {
        self.state.lock().coalescing.deadline.at()
    }

    /// Notes that the memtable was written out. `output_ends`: the open segments for survivors, with the end of their durable
    /// parts.
    pub(crate) fn memtable_written(&self, output_ends: Vec<(u64, u32)>) {
        let mut state = self.state.lock();
        let coalescing = &mut state.coalescing;
        (coalescing.leaving, coalescing.given_back) = (None, 0);
        coalescing.output_ends = output_ends;
        self.catalog.space.reserve_for_coalescing(coalescing.slots_in_use());
        drop(state);
        self.coalescing_spare_taken.notify_one();
    }

    /// Requests that all memtables be written out. Returns the waiter for that, if there is any record.
    pub(crate) fn flush_coalescing(&self) -> Option<Waiter> {
        let mut state = self.state.lock();
        let coalescing = &mut state.coalescing;
        if let Some(ended) = &coalescing.ended {
            return Some(Waiter::at_open(ended.clone()));
        }
        if coalescing.is_empty() {
            return coalescing.leaving.as_ref().map(|(_, done)| done.clone());
        }
        coalescing.is_wanted = true;
        self.coalescing_work.notify_one();
        Some(coalescing.completion.waiter())
    }

    /// Returns the waiter for the memtable being written out, if there is one.
    pub(crate) fn leaving_memtable(&self) -> Option<Waiter> {
        self.state.lock().coalescing.leaving.as_ref().map(|(_, done)| done.clone())
    }

    /// Returns the waiter for all records that coalesce now, if there are any, without hastening their write-out.
    pub(crate) fn coalescing_memtable(&self) -> Option<Waiter> {
        let state = self.state.lock();
        let coalescing = &state.coalescing;
        match coalescing.is_empty() {
            true => coalescing.leaving.as_ref().map(|(_, done)| done.clone()),
            false => Some(coalescing.completion.waiter()),
        }
    }

    /// Ends coalescing.
    pub(crate) fn coalescing_ended(&self, how: Result<()>) {
        let (completion, waiting) = {
            let coalescing = &mut self.state.lock().coalescing;
            coalescing.ended.get_or_insert_with(|| how.clone());
            (std::mem::replace(&mut coalescing.completion, Completion::new()), coalescing.waiting.take())
        };
        completion.open(how);
        // Waiting writers get the result when they retry.
        if let Some(waiting) = waiting {
            waiting.open(Ok(()));
        }
    }
}
