//! All slots of a tier, with the counts and the ordered sets that follow from their states.
//!
//! Changes of a slot go through [`Slots::change`], which keeps counts and sets up to date. Decisions therefore cost the same
//! for any number of slots; [`Slots::visited`] counts the slots that they visit.

use std::ops::Bound;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use esker_log::{Census, SEGMENT_STEP, Secret, SegmentClass, Stream};
use parking_lot::Mutex;

use crate::segments::contents::{Contents, Expiry};
use crate::segments::counts::{Classes, States};
use crate::segments::groups::Groups;
use crate::segments::sets::{Buckets, EvictionOrders, Sets};
use crate::segments::slot::SlotState;
use crate::segments::table::{SlotRef, Table};

/// The slots of a tier.
pub(crate) struct Slots {
    table: Table,
    segment_bytes: u32,
    buckets: Buckets,
    sets: Mutex<Sets>,
    states: [AtomicU32; 5],
    classes: [AtomicU32; SegmentClass::ALL.len()],
    groups: Groups,
    /// True if the store evicts: then each slot keeps the time at which it was taken or last passed.
    keeps_passes: bool,
    visited: AtomicU64,
    /// Memory of the sets, in bytes.
    sets_bytes: AtomicU64,
}

/// Position of the CLOCK hand: number of the newest segment when the segment was sealed or kept, its number, its slot.
pub(crate) type ClockPosition = (u64, u64, u32);

/// Sealed segments of a store that evicts, as far as probation depends on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Probation {
    /// Number of sealed segments.
    pub(crate) sealed: u64,
    /// Number of those of new keys.
    pub(crate) on_probation: u64,
    /// The oldest of those: number and slot.
    pub(crate) oldest: Option<(u64, u32)>,
    /// Highest number of a segment of returned keys; 0 if there is none.
    pub(crate) last_back: u64,
}

impl Slots {
    /// Creates `count` free slots for segments of `segment_bytes`.
    pub(crate) fn new(count: u32, segment_bytes: u32, groups: Groups, keeps_passes: bool) -> Slots {
        let buckets = Buckets::new(segment_bytes);
        let slots = Slots {
            table: Table::new(count),
            segment_bytes,
            buckets,
            sets: Mutex::new(Sets::new(buckets)),
            states: Default::default(),
            classes: Default::default(),
            groups,
            keeps_passes,
            visited: AtomicU64::new(0),
            sets_bytes: AtomicU64::new(0),
        };
        slots.states[SlotState::Free as usize].store(count, Ordering::Relaxed);
        slots
    }

    /// Adds free slots, so that there are `count`. Called by one task at a time.
    pub(crate) fn extend(&self, count: u32) {
        let added = count.saturating_sub(self.len());
        self.table.extend(count);
        self.states[SlotState::Free as usize].fetch_add(added, Ordering::Relaxed);
    }

    /// Excludes this many slots from the count of free slots: they are never taken.
    pub(crate) fn take_out_of_use(&self, count: u32) {
        self.states[SlotState::Free as usize].fetch_sub(count, Ordering::Relaxed);
    }

    /// Returns the number of slots.
    pub(crate) fn len(&self) -> u32 {
        self.table.len()
    }

    /// Returns a slot.
    ///
    /// # Panics
    /// If the tier has no such slot.
    #[inline]
    pub(crate) fn slot(&self, slot: u32) -> SlotRef<'_> {
        self.table.slot(slot)
    }

    /// Iterates over all slots; `None` for slots of which no neighbour was ever taken.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, Option<SlotRef<'_>>)> {
        (0..self.len()).map(|slot| (slot, self.table.peek(slot)))
    }

    /// Iterates over the slots that hold a segment. Visits all of them, so no decision may depend on it.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = (u32, SlotRef<'_>)> {
        self.table.in_use()
    }

    /// Iterates over the sealed segments with their slots. Visits all slots in use, so no decision may depend on it.
    pub(crate) fn sealed(&self) -> impl Iterator<Item = (u32, SlotRef<'_>)> {
        self.in_use().filter(|(_, slot)| slot.state() == SlotState::Sealed)
    }

    /// Returns the memory of the slot table and its sets, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.table.memory_bytes() + self.sets_bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of slots that decisions have visited so far.
    #[cfg(test)]
    pub(crate) fn visited(&self) -> u64 {
        self.visited.load(Ordering::Relaxed)
    }

    fn visit(&self, slots: usize) {
        self.visited.fetch_add(slots as u64, Ordering::Relaxed);
    }

    /// Changes a slot, and its counts and sets accordingly.
    fn change<T>(&self, slot: u32, change: impl FnOnce(&mut Sets, SlotRef<'_>) -> T) -> T {
        let (at, mut sets) = (self.slot(slot), self.sets.lock());
        let old = at.label();
        sets.remove(slot, at);
        let changed = change(&mut sets, at);
        sets.add(slot, at);
        self.sets_bytes.store(sets.memory_bytes(), Ordering::Relaxed);
        let new = at.label();
        if new.state() != old.state() {
            self.states[new.state() as usize].fetch_add(1, Ordering::Relaxed);
            self.states[old.state() as usize].fetch_sub(1, Ordering::Relaxed);
        }
        if new.class() != old.class() {
            if let Some(class) = new.class() {
                self.classes[class].fetch_add(1, Ordering::Relaxed);
            }
            if let Some(class) = old.class() {
                self.classes[class].fetch_sub(1, Ordering::Relaxed);
            }
        }
        changed
    }

    /// Assigns a slot to a segment, or frees it if `segment` is 0.
    pub(crate) fn occupy(&self, slot: u32, segment: u64, state: SlotState, opened_at: u64, now: Duration) {
        self.change(slot, |sets, at| {
            sets.unpark(slot);
            at.forget_sides(Some(now).filter(|_| self.keeps_passes));
            at.occupy(segment, opened_at);
            at.relabel(|label| label.with_state(state));
        });
    }

    /// Sets stream and start of a slot's segment before its first record; `sequence` is the highest number assigned so far.
    pub(crate) fn begin(&self, slot: u32, stream: Stream, sequence: u64) {
        self.change(slot, |_, at| {
            at.begin_at(sequence);
            at.relabel(|label| label.with_stream(stream));
        });
    }

    /// Marks a segment with `used_bytes` of frames as sealed, when `sealed_at` was the highest segment number. It may be
    /// relocated from now on.
    pub(crate) fn seal(
        &self,
        slot: u32,
        stream: Stream,
        used_bytes: u32,
        sealed_at: u64,
        contents: &Contents,
    ) {
        self.change(slot, |_, at| {
            at.set_used_bytes(used_bytes);
            if !self.groups.are_single() {
                at.set_group(self.groups.next(stream));
            }
            at.set_expires(contents);
            at.set_tombstones_through(contents.tombstones_through);
            let age = sealed_at.saturating_sub(at.segment()) / SEGMENT_STEP;
            at.relabel(|label| label.with_stream(stream).with_age(age).with_state(SlotState::Sealed));
        });
    }

    /// Returns the assignment of segments to reclaim groups.
    pub(crate) fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Regroups the sealed segments in the order of their numbers, because an opening finds them in the order of their slots.
    pub(crate) fn regroup(&self) {
        if self.groups.are_single() {
            return;
        }
        let mut sealed: Vec<_> = self.sealed().map(|(_, slot)| slot).collect();
        sealed.sort_unstable_by_key(|slot| slot.segment());
        self.groups.forget();
        for slot in sealed {
            slot.set_group(self.groups.next(slot.stream()));
        }
    }

    pub(crate) fn set_state(&self, slot: u32, state: SlotState) {
        self.change(slot, |_, at| at.relabel(|label| label.with_state(state)));
    }

    /// Moves a slot from one state to another. Returns false if it was not in the first.
    pub(crate) fn advance(&self, slot: u32, from: SlotState, to: SlotState) -> bool {
        self.change(slot, |_, at| {
            let is_in = at.state() == from;
            at.relabel(|label| if is_in { label.with_state(to) } else { label });
            is_in
        })
    }

    /// Sets the sequence number at which a segment counts as opened.
    pub(crate) fn open_at(&self, slot: u32, sequence: u64) {
        self.change(slot, |_, at| at.open_at(sequence));
    }

    /// Declares that a segment's versions also exist in another segment, which counts: a relocation was interrupted, or gave up,
    /// before the victim was freed. When the other segment is evicted, a tombstone of the same number must hide the versions
    /// here, regardless of when this segment was opened. It therefore counts as opened before all tombstones until it is freed.
    pub(crate) fn hold_copies(&self, slot: u32) {
        if self.slot(slot).opened_at() != 0 {
            self.open_at(slot, 0);
        }
    }

    /// Sets the next expiry times of a segment's records.
    pub(crate) fn set_expires(&self, slot: u32, contents: &Contents) {
        self.change(slot, |_, at| at.set_expires(contents));
    }

    /// Lowers the bounds of tombstone sequence numbers to the highest number there is.
    pub(crate) fn bound_tombstones(&self, sequence: u64) {
        for (slot, at) in self.in_use().filter(|(_, at)| at.tombstone_bytes() > 0) {
            let through = at.tombstones_through().min(sequence);
            self.change(slot, |_, at| at.set_tombstones_through(through));
        }
    }

    /// Notes that the CLOCK hand passed and kept a segment; `newest` is the number of the newest segment.
    pub(crate) fn pass(&self, slot: u32, newest: u64, now: Duration) {
        self.change(slot, |_, at| at.pass(newest, now));
    }

    /// Excludes a segment from collection until noticeably more of it is dead.
    pub(crate) fn do_not_collect(&self, slot: u32) {
        let at = self.slot(slot);
        self.sets.lock().park(slot, at);
    }

    /// Adds bytes of records that became current, or subtracts (if negative) bytes that ceased to be.
    #[inline]
    pub(crate) fn add_live(&self, slot: u32, bytes: i64) {
        let at = self.slot(slot);
        let before = at.add_live(bytes);
        if self.buckets.of(before) != self.buckets.of(before + bytes) {
            self.sets.lock().move_to_bucket(slot, at);
        }
    }

    /// Adds tombstone bytes, or subtracts them, without the live bytes.
    pub(crate) fn add_tombstones(&self, slot: u32, bytes: i64) {
        let before = self.slot(slot).add_tombstones(bytes);
        if (before > 0) != (before + bytes > 0) {
            self.change(slot, |_, _| ());
        }
    }

    /// Sets live and tombstone bytes of a slot to zero. Returns the previous values.
    pub(crate) fn forget_live(&self, slot: u32) -> (i64, i64) {
        let Some(at) = self.table.peek(slot) else { return (0, 0) };
        let forgotten = (at.forget_live(), at.forget_tombstones());
        if forgotten != (0, 0) {
            self.change(slot, |_, _| ());
        }
        forgotten
    }

    /// Returns the bytes that freeing a sealed segment gives back.
    pub(crate) fn gives_back_bytes(&self, slot: u32) -> u64 {
        self.slot(slot).gives_back_bytes(self.segment_bytes)
    }

    /// Returns the number of slots in a state.
    pub(crate) fn count(&self, state: SlotState) -> u32 {
        self.states[state as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn states(&self) -> States {
        let count = |state| u64::from(self.count(state));
        States {
            free: count(SlotState::Free),
            open: count(SlotState::Open),
            sealed: count(SlotState::Sealed),
            relocating: count(SlotState::Victim),
            damaged: count(SlotState::Damaged),
        }
    }

    pub(crate) fn classes(&self) -> Classes {
        Classes::of(std::array::from_fn(|class| self.classes[class].load(Ordering::Relaxed).into()))
    }

    /// Returns the census of the tier, to be taken after all segments are sealed.
    pub(crate) fn census(&self, secret: &Secret) -> Census {
        let mut census = Census::default();
        // A segment that is still open is empty.
        for (at, slot) in self.in_use().filter(|(_, slot)| slot.state() != SlotState::Open) {
            census.count(secret, slot.segment(), at, slot.used_bytes());
        }
        census
    }

    /// Returns the next expiry of a sealed segment.
    pub(crate) fn expires_from(&self, expiry: Expiry) -> Option<u64> {
        self.visit(1);
        self.sets.lock().expiring[expiry as usize].first().map(|(at_ms, _)| *at_ms)
    }

    /// Returns the sealed segment that expired first, and the time, if one has expired by `now_ms`.
    pub(crate) fn expired(&self, expiry: Expiry, now_ms: u64) -> Option<(u64, u32)> {
        self.visit(1);
        self.sets.lock().expiring[expiry as usize].first().copied().filter(|&(at_ms, _)| at_ms <= now_ms)
    }

    /// Returns the sealed segments that have expired by `now_ms`, in the order of their slots.
    pub(crate) fn all_expired(&self, expiry: Expiry, now_ms: u64) -> Vec<u32> {
        let through = (Bound::Unbounded, Bound::Included((now_ms, u32::MAX)));
        let sets = self.sets.lock();
        let mut all: Vec<u32> =
            sets.expiring[expiry as usize].range(through).map(|(_, slot)| *slot).collect();
        drop(sets);
        self.visit(all.len());
        all.sort_unstable();
        all
    }

    /// Returns the slots that hold a segment that is not sealed.
    pub(crate) fn unsealed(&self) -> Vec<u32> {
        let all: Vec<u32> = self.sets.lock().unsealed.iter().copied().collect();
        self.visit(all.len());
        all
    }

    /// Returns `opened_at` and slot of the `count` segments opened first.
    pub(crate) fn opened_first(&self, count: usize) -> Vec<(u64, u32)> {
        self.visit(count);
        self.sets.lock().opened.iter().take(count).copied().collect()
    }

    /// Returns the sealed segments with tombstones, all of which have sequence numbers below `sequence`.
    pub(crate) fn with_tombstones_below(&self, sequence: u64) -> Vec<u32> {
        let all: Vec<u32> =
            self.sets.lock().tombstones.range(..(sequence, 0)).map(|(_, slot)| *slot).collect();
        self.visit(all.len());
        all
    }

    /// Returns all sealed segments with tombstones.
    pub(crate) fn with_tombstones(&self) -> Vec<u32> {
        let all: Vec<u32> = self.sets.lock().tombstones.iter().map(|(_, slot)| *slot).collect();
        self.visit(all.len());
        all
    }

    /// Returns sealed segments of at most about `most_bytes` live bytes that `fits` accepts: of each 64th of live bytes the
    /// `count` segments sealed first, among the `visits` sealed first and as many sealed last. Those excluded from collection come
    /// last, and only if `with_excluded`.
    pub(crate) fn least_live(
        &self,
        most_bytes: u64,
        (count, visits): (usize, usize),
        with_excluded: bool,
        fits: impl Fn(u32, SlotRef<'_>) -> bool,
    ) -> Vec<u32> {
        let (mut visited, mut found) = (0, Vec::new());
        let sets = self.sets.lock();
        let mut accepts = |slot: &u32| {
            visited += 1;
            fits(*slot, self.slot(*slot))
        };
        for order in sets.by_live(most_bytes) {
            let last = order.len().saturating_sub(visits).min(visits);
            let ends = order.iter().take(visits).chain(order.iter().rev().take(last));
            found.extend(ends.map(|(_, slot)| *slot).filter(&mut accepts).take(count));
        }
        let excluded = sets.parked().filter(|slot| self.slot(*slot).state() == SlotState::Sealed);
        found.extend(excluded.filter(|_| with_excluded).filter(&mut accepts));
        drop(sets);
        self.visit(visited);
        found
    }

    /// Returns a number that changes whenever a segment becomes, or ceases to be, sealed.
    pub(crate) fn sealed_sum(&self) -> u64 {
        self.sets.lock().sealed_sum
    }

    /// Reads the orders for eviction; builds them at the first call.
    fn eviction<T>(&self, read: impl FnOnce(&EvictionOrders) -> T) -> T {
        let mut sets = self.sets.lock();
        let orders = sets.eviction.get_or_insert_with(|| {
            let mut orders = EvictionOrders::default();
            self.sealed().for_each(|(slot, at)| orders.add(slot, at));
            orders
        });
        read(orders)
    }

    /// Returns the position of the sealed segment that the CLOCK hand reaches next after `position`.
    pub(crate) fn next_by_clock(&self, position: Option<ClockPosition>) -> Option<ClockPosition> {
        let from = position.map_or(Bound::Unbounded, Bound::Excluded);
        self.visit(1);
        self.eviction(|orders| orders.clock.range((from, Bound::Unbounded)).next().copied())
    }

    /// Returns the figures that decide whether a segment on probation is evicted, without the segments that `left_alone` accepts.
    pub(crate) fn probation(&self, left_alone: impl Fn(u32) -> bool) -> Probation {
        let mut visited = 0;
        let probation = self.eviction(|orders| {
            let mut probation = Probation::default();
            for (class, order) in orders.classes.iter().enumerate() {
                let mut others = order.iter().filter(|(_, slot)| {
                    visited += 1;
                    !left_alone(*slot)
                });
                probation.sealed += order.len() as u64;
                if Stream(class as u8).is_short_lived() {
                    probation.on_probation += order.len() as u64;
                    let oldest = others.next().copied();
                    probation.oldest = probation.oldest.into_iter().chain(oldest).min();
                } else if Stream(class as u8) == Stream::LONG_LIVED {
                    probation.last_back = others.next_back().map_or(0, |(segment, _)| *segment);
                }
            }
            probation
        });
        self.visit(visited);
        probation
    }
}

#[cfg(test)]
#[path = "slots_tests.rs"]
mod tests;
