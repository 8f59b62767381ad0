//! All slots of a tier. The counts by state and by kind of records are updated with each change, so that reading them costs the
//! same for any number of slots.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use esker_log::{Census, Secret, SegmentClass, Stream};

use crate::segments::contents::{Contents, Expiry, NEVER_MS};
use crate::segments::counts::{Classes, States};
use crate::segments::groups::Groups;
use crate::segments::slot::{Label, Slot, SlotState};

/// The slots of a tier.
pub(crate) struct Slots {
    all: Vec<Slot>,
    states: [AtomicU32; 5],
    classes: [AtomicU32; SegmentClass::ALL.len()],
    groups: Groups,
    /// Lower bound of the expiry times of sealed segments, by [`Expiry`].
    expires_from: [AtomicU64; 2],
}

impl Slots {
    pub(crate) fn new(count: u32, groups: Groups) -> Slots {
        let slots = Slots {
            all: (0..count).map(|_| Slot::default()).collect(),
            states: Default::default(),
            classes: Default::default(),
            groups,
            expires_from: [const { AtomicU64::new(NEVER_MS) }; 2],
        };
        slots.states[SlotState::Free as usize].store(count, Ordering::Relaxed);
        slots
    }

    pub(crate) fn all(&self) -> &[Slot] {
        &self.all
    }

    /// Assigns a slot to a segment, or frees it if `segment` is 0.
    pub(crate) fn occupy(&self, slot: u32, segment: u64, state: SlotState, opened_at: u64, now: Duration) {
        self.all[slot as usize].occupy(segment, opened_at, now);
        self.relabel(slot, |_| Some(Label::new(state, Stream::LANE)));
    }

    /// Sets stream and start of a slot's segment before its first record; `sequence` is the highest number assigned so far.
    pub(crate) fn begin(&self, slot: u32, stream: Stream, sequence: u64) {
        let at = &self.all[slot as usize];
        at.stream.store(stream.0, Ordering::Relaxed);
        at.began_at.store(sequence, Ordering::Relaxed);
        self.relabel(slot, |label| Some(Label::new(label.state(), stream)));
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
        let at = &self.all[slot as usize];
        at.stream.store(stream.0, Ordering::Relaxed);
        at.used_bytes.store(used_bytes, Ordering::Relaxed);
        at.sealed_at.store(sealed_at, Ordering::Relaxed);
        at.group.store(self.groups.next(stream).0, Ordering::Relaxed);
        at.set_expires(contents);
        at.set_tombstones_through(contents.tombstones_through);
        self.relabel(slot, |_| Some(Label::new(SlotState::Sealed, stream)));
    }

    /// Returns the assignment of segments to reclaim groups.
    pub(crate) fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Regroups the sealed segments in the order of their numbers, because an opening finds them in the order of their slots.
    pub(crate) fn regroup(&self) {
        let mut sealed: Vec<&Slot> = self.sealed().map(|(_, slot)| slot).collect();
        sealed.sort_unstable_by_key(|slot| slot.segment());
        self.groups.forget();
        for slot in sealed {
            slot.group.store(self.groups.next(slot.stream()).0, Ordering::Relaxed);
        }
    }

    pub(crate) fn set_state(&self, slot: u32, state: SlotState) {
        let label = Label::new(state, self.all[slot as usize].stream());
        self.relabel(slot, |_| Some(label));
    }

    /// Moves a slot from one state to another. Returns false if it was not in the first.
    pub(crate) fn advance(&self, slot: u32, from: SlotState, to: SlotState) -> bool {
        let stream = self.all[slot as usize].stream();
        self.relabel(slot, |label| (label.state() == from).then(|| Label::new(to, stream)))
    }

    /// Sets the next expiry times of a segment's records.
    pub(crate) fn set_expires(&self, slot: u32, contents: &Contents) {
        let at = &self.all[slot as usize];
        at.set_expires(contents);
        self.note_expires(at);
    }

    fn note_expires(&self, slot: &Slot) {
        for (from, at_ms) in self.expires_from.iter().zip(&slot.expires_ms) {
            from.fetch_min(at_ms.load(Ordering::Acquire), Ordering::AcqRel);
        }
    }

    /// Changes a slot's label, and the counts accordingly. Returns false if `change` returns `None`.
    fn relabel(&self, slot: u32, change: impl Fn(Label) -> Option<Label>) -> bool {
        let at = &self.all[slot as usize];
        let changed = at.label.fetch_update(Ordering::AcqRel, Ordering::Acquire, |label| {
            change(Label(label)).map(|label| label.0)
        });
        let Ok(old) = changed.map(Label) else { return false };
        let Some(new) = change(old) else { return false };
        self.states[new.state() as usize].fetch_add(1, Ordering::Relaxed);
        self.states[old.state() as usize].fetch_sub(1, Ordering::Relaxed);
        if let Some(class) = new.class() {
            self.classes[class].fetch_add(1, Ordering::Relaxed);
        }
        if let Some(class) = old.class() {
            self.classes[class].fetch_sub(1, Ordering::Relaxed);
        }
        if new.state() == SlotState::Sealed {
            self.note_expires(at);
        }
        true
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
        for (at, slot) in self.all.iter().enumerate() {
            // A segment that is still open is empty.
            if !matches!(slot.state(), SlotState::Free | SlotState::Open) {
                census.count(secret, slot.segment(), at as u32, slot.used_bytes());
            }
        }
        census
    }

    /// Iterates over the sealed segments with their slots.
    pub(crate) fn sealed(&self) -> impl Iterator<Item = (u32, &Slot)> {
        let all = self.all.iter().enumerate();
        all.filter(|(_, slot)| slot.state() == SlotState::Sealed).map(|(at, slot)| (at as u32, slot))
    }

    /// Returns a lower bound of the next expiry of a sealed segment.
    pub(crate) fn expires_from(&self, expiry: Expiry) -> Option<u64> {
        Some(self.expires_from[expiry as usize].load(Ordering::Acquire)).filter(|&at| at != NEVER_MS)
    }

    /// Returns the sealed segment that expired first, and the time, if one has expired by `now_ms`.
    pub(crate) fn expired(&self, expiry: Expiry, now_ms: u64) -> Option<(u64, u32)> {
        let mut first: Option<(u64, u32)> = None;
        self.each_expired(expiry, now_ms, |at_ms, slot| {
            first = Some(first.map_or((at_ms, slot), |first| first.min((at_ms, slot))));
        });
        first
    }

    /// Returns the sealed segments that have expired by `now_ms`.
    pub(crate) fn all_expired(&self, expiry: Expiry, now_ms: u64) -> Vec<u32> {
        let mut all = Vec::new();
        self.each_expired(expiry, now_ms, |_, slot| all.push(slot));
        all
    }

    fn each_expired(&self, expiry: Expiry, now_ms: u64, mut see: impl FnMut(u64, u32)) {
        if self.expires_from(expiry).is_none_or(|at_ms| at_ms > now_ms) {
            return;
        }
        // Reset before the walk, so that the expiry of a segment sealed during the walk is kept.
        let from = &self.expires_from[expiry as usize];
        from.swap(NEVER_MS, Ordering::AcqRel);
        let mut next_ms = NEVER_MS;
        for (slot, at_ms) in self.sealed().filter_map(|(at, slot)| Some((at, slot.expires_ms(expiry)?))) {
            next_ms = next_ms.min(at_ms);
            if at_ms <= now_ms {
                see(at_ms, slot);
            }
        }
        from.fetch_min(next_ms, Ordering::AcqRel);
    }
}

#[cfg(test)]
#[path = "slots_tests.rs"]
mod tests;
