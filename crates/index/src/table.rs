//! A shard's table: buckets, two candidate buckets per key, displacement when both are full.

use std::hint::select_unpredictable;

use crate::bucket::{Bucket, SLOTS};
use crate::geometry::{Geometry, Seats};
use crate::memory::{candidates, prefetch};
use crate::slot::{Choice, Pointer, Slot};

/// Number of buckets that an insertion examines before it fails. At a load of 0.95 every third bucket has a free slot.
const SEARCH_BUCKETS: usize = 128;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Table<'a> {
    buckets: &'a [Bucket],
    geometry: &'a Geometry,
}

/// An occupied slot: its position, and its content when it was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    bucket: usize,
    position: usize,
    slot: Slot,
    pointer: Pointer,
}

impl Found {
    pub(crate) fn pointer(&self) -> Pointer {
        self.pointer
    }
}

/// A bucket reached by the search for a free slot, and the entry that could be moved into it.
#[derive(Clone, Copy)]
struct Step {
    bucket: usize,
    /// Index of the preceding step, and the position of the entry in its bucket. `None` for the first two steps.
    from: Option<(usize, usize)>,
}

impl<'a> Table<'a> {
    #[inline]
    pub(crate) fn new(buckets: &'a [Bucket], geometry: &'a Geometry) -> Table<'a> {
        debug_assert_eq!(buckets.len(), geometry.buckets());
        Table { buckets, geometry }
    }

    /// Returns the number of slots, occupied or not.
    pub(crate) fn capacity(&self) -> usize {
        self.buckets.len() * SLOTS
    }

    /// Returns true if the table's slots can hold a pointer with these bits.
    #[inline]
    pub(crate) fn fits(&self, pointer_bits: u64) -> bool {
        self.geometry.layout().fits(pointer_bits)
    }

    #[inline]
    pub(crate) fn find(&self, stored: u32) -> Option<Found> {
        let (seats, layout) = (self.geometry.seats(stored), self.geometry.layout());
        for choice in [Choice::Home, Choice::Alternate] {
            let bucket = seats.bucket(choice);
            if let Some(position) = self.buckets[bucket].find(layout, seats.label(choice)) {
                let slot = self.buckets[bucket].load(position);
                let pointer = slot.pointer(layout).expect("a found slot is not empty");
                return Some(Found { bucket, position, slot, pointer });
            }
        }
        None
    }

    /// Returns the pointer of this stored hash: `find` for readers, without a branch that depends on the position.
    #[inline]
    pub(crate) fn get(&self, stored: u32) -> Option<Pointer> {
        let (seats, layout) = (self.geometry.seats(stored), self.geometry.layout());
        let labels = [seats.label(Choice::Home), seats.label(Choice::Alternate)];
        let buckets = [&self.buckets[seats.home], &self.buckets[seats.alternate]];
        let mut candidates = candidates(buckets, labels, layout);
        while candidates != 0 {
            let first = candidates.trailing_zeros() as usize;
            let is_home = first < SLOTS;
            let slot = select_unpredictable(is_home, buckets[0], buckets[1]).load(first % SLOTS);
            if slot.has(layout, select_unpredictable(is_home, labels[0], labels[1])) {
                return slot.pointer(layout);
            }
            candidates &= candidates - 1;
        }
        None
    }

    /// Prefetches the cache lines that `get` examines.
    #[inline]
    pub(crate) fn prefetch(&self, stored: u32) {
        let seats = self.geometry.seats(stored);
        prefetch(&self.buckets[seats.home]);
        prefetch(&self.buckets[seats.alternate]);
    }

    /// Swings an entry to another record, whose pointer fits.
    pub(crate) fn swing(&self, found: Found, pointer: Pointer) {
        let slot = found.slot.at(self.geometry.layout(), pointer);
        self.buckets[found.bucket].store(found.position, slot);
    }

    pub(crate) fn remove(&self, found: Found) {
        self.buckets[found.bucket].store(found.position, Slot::EMPTY);
    }

    /// Inserts a stored hash that is not present. Returns false if the pointer does not fit or no slot can be freed. Calls `moved` whenever an entry is in
    /// both its buckets, before the older copy is overwritten.
    pub(crate) fn insert(&self, stored: u32, pointer: Pointer, moved: impl FnMut()) -> bool {
        if !self.fits(pointer.get()) {
            return false;
        }
        let seats = self.geometry.seats(stored);
        let Some((bucket, position)) = self.vacancy(&seats).or_else(|| self.make_room(&seats, moved)) else {
            return false;
        };
        let choice = if bucket == seats.home { Choice::Home } else { Choice::Alternate };
        self.buckets[bucket].store(position, self.slot(&seats, choice, pointer));
        true
    }

    /// Inserts a stored hash that is not present into its home bucket. Returns false if the pointer does not fit or the
    /// bucket is full.
    pub(crate) fn insert_home(&self, stored: u32, pointer: Pointer) -> bool {
        let seats = self.geometry.seats(stored);
        match self.buckets[seats.home].vacancy().filter(|_| self.fits(pointer.get())) {
            Some(position) => {
                self.buckets[seats.home].store(position, self.slot(&seats, Choice::Home, pointer));
                true
            }
            None => false,
        }
    }

    /// Prefetches the home bucket of a stored hash.
    #[inline]
    pub(crate) fn prefetch_home(&self, stored: u32) {
        prefetch(&self.buckets[self.geometry.seats(stored).home]);
    }

    /// Adds a stored hash to a table from which nothing was removed since it was empty. Returns `Some(false)` if it is present
    /// already, and `None` if it is not and the pointer does not fit or no slot is free without moving other entries.
    ///
    /// Slots of a bucket are filled in order, an entry goes to its alternate bucket only when its home is full, and a full
    /// bucket stays full. A free slot therefore ends the search.
    #[inline]
    pub(crate) fn add(&self, stored: u32, pointer: Pointer) -> Option<bool> {
        let (seats, layout) = (self.geometry.seats(stored), self.geometry.layout());
        for choice in [Choice::Home, Choice::Alternate] {
            let (bucket, label) = (&self.buckets[seats.bucket(choice)], seats.label(choice));
            let (taken, is_there) = bucket.look_through(layout, label);
            if is_there {
                return Some(false);
            }
            if taken < SLOTS {
                if !layout.fits(pointer.get()) {
                    return None;
                }
                bucket.store(taken, Slot::new(layout, label, pointer));
                return Some(true);
            }
        }
        None
    }

    fn slot(&self, seats: &Seats, choice: Choice, pointer: Pointer) -> Slot {
        Slot::new(self.geometry.layout(), seats.label(choice), pointer)
    }

    fn vacancy(&self, seats: &Seats) -> Option<(usize, usize)> {
        let at = |bucket: usize| self.buckets[bucket].vacancy().map(|position| (bucket, position));
        at(seats.home).or_else(|| at(seats.alternate))
    }

    /// Moves entries to their other buckets along the shortest path that ends at a free slot.
    fn make_room(&self, seats: &Seats, moved: impl FnMut()) -> Option<(usize, usize)> {
        let mut steps = Vec::with_capacity(16);
        steps.push(Step { bucket: seats.home, from: None });
        steps.push(Step { bucket: seats.alternate, from: None });
        let mut next = 0;
        while next < steps.len() {
            let bucket = steps[next].bucket;
            for (position, slot) in self.buckets[bucket].slots().enumerate() {
                let other = self.geometry.other(bucket, slot);
                // A bucket twice on a path could move the same slot twice.
                if steps.iter().any(|step| step.bucket == other) {
                    continue;
                }
                let step = Step { bucket: other, from: Some((next, position)) };
                if let Some(vacancy) = self.buckets[other].vacancy() {
                    return Some(self.walk_back(&steps, step, vacancy, moved));
                }
                if steps.len() < SEARCH_BUCKETS {
                    steps.push(step);
                }
            }
            next += 1;
        }
        None
    }

    /// Moves the entries of a path, last one first. Returns the slot that was freed at its start.
    fn walk_back(
        &self,
        steps: &[Step],
        last: Step,
        vacancy: usize,
        mut moved: impl FnMut(),
    ) -> (usize, usize) {
        let (mut step, mut free) = (last, vacancy);
        while let Some((from, position)) = step.from {
            let entry = self.buckets[steps[from].bucket].load(position);
            self.buckets[step.bucket].store(free, entry.flipped());
            moved();
            (step, free) = (steps[from], position);
        }
        (step.bucket, free)
    }

    /// Iterates over stored hash and pointer of all entries; those in their home bucket in the order of their stored hashes.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u32, Pointer)> {
        self.entries_with_home(0..self.buckets.len())
    }

    /// Iterates over the entries whose home is one of these buckets, in whichever bucket they are.
    fn entries_with_home(&self, homes: std::ops::Range<usize>) -> impl Iterator<Item = (u32, Pointer)> {
        let (geometry, layout) = (self.geometry, self.geometry.layout());
        self.buckets.iter().enumerate().flat_map(move |(number, bucket)| {
            let homes = homes.clone();
            let first = geometry.first(number);
            bucket.slots().filter_map(move |slot| {
                let pointer = slot.pointer(layout)?;
                let home = geometry.home(number, slot);
                // Most entries are at home: one division per bucket, not per slot.
                let first = if home == number { first } else { geometry.first(home) };
                homes.contains(&home).then(|| (first + slot.tag(layout), pointer))
            })
        })
    }

    /// Iterates over the entries whose stored hash is in this range.
    pub(crate) fn entries_in(&self, range: std::ops::Range<u32>) -> impl Iterator<Item = (u32, Pointer)> {
        let first = self.geometry.seats(range.start).home;
        let last = self.geometry.seats(range.end - 1).home;
        self.entries_with_home(first..last + 1).filter(move |(stored, _)| range.contains(stored))
    }

    pub(crate) fn zero(&self) {
        self.buckets.iter().for_each(Bucket::zero);
    }
}
