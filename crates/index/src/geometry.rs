//! Maps a stored hash to buckets in a table of any size, and back.
//!
//! The home bucket is the stored hash as a fraction of all stored hashes, scaled to the number of buckets; the tag is the
//! remainder. Bucket, tag and choice bit give the stored hash back for any number of buckets, so a table can be rebuilt in any
//! size from its slots alone. Home buckets keep the order of the stored hashes, so a rebuild reads and writes memory in one
//! direction.
//!
//! Tags are less than the number of stored hashes per bucket, rounded up: 23 bits in the smallest table, 17 in tables of 9,487
//! buckets (70 M keys in all shards). A slot has 63 bits for tag and pointer, so larger tables hold wider pointers.

use crate::hash::{MIN_BUCKETS, STORED_HASHES, TAG_BITS};
use crate::slot::{Choice, Label, Layout, Pointer, Slot};

/// Number of table sizes of a shard. The largest size holds about 30 G keys over all shards.
pub(crate) const GENERATIONS: usize = 109;

/// All table sizes, each a tenth larger than the previous one.
pub(crate) static GEOMETRIES: [Geometry; GENERATIONS] = geometries();

const fn geometries() -> [Geometry; GENERATIONS] {
    let mut all = [Geometry::new(MIN_BUCKETS); GENERATIONS];
    let mut generation = 1;
    while generation < GENERATIONS {
        all[generation] = Geometry::new((all[generation - 1].buckets * 11).div_ceil(10));
        generation += 1;
    }
    all
}

/// Returns the smallest table size whose slots hold a pointer with these bits.
pub(crate) fn generation_for(pointer_bits: u64) -> usize {
    GEOMETRIES.partition_point(|geometry| !geometry.layout.fits(pointer_bits))
}

const _: () = assert!(GEOMETRIES_LAST.layout.pointer_bits() == Pointer::BITS);
const GEOMETRIES_LAST: Geometry = geometries()[GENERATIONS - 1];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Geometry {
    buckets: u32,
    layout: Layout,
    /// 2^64 / `buckets`, rounded up: replaces a division by a multiplication, exact for 32-bit dividends.
    reciprocal: u64,
}

/// The two buckets of a stored hash, and its tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seats {
    pub(crate) home: usize,
    pub(crate) alternate: usize,
    tag: u32,
    layout: Layout,
}

impl Seats {
    #[inline]
    pub(crate) fn label(&self, choice: Choice) -> Label {
        Label::new(self.layout, choice, self.tag)
    }

    #[inline]
    pub(crate) fn bucket(&self, choice: Choice) -> usize {
        match choice {
            Choice::Home => self.home,
            Choice::Alternate => self.alternate,
        }
    }
}

impl Geometry {
    pub(crate) const fn new(buckets: u32) -> Geometry {
        // The upper bound keeps `seats` within 64 bits, and its quotients within 32.
        assert!(buckets >= MIN_BUCKETS && buckets < 1 << TAG_BITS);
        let last_tag = (STORED_HASHES - 1) / buckets;
        let layout = Layout::with_tag_bits(u32::BITS - last_tag.leading_zeros());
        Geometry { buckets, layout, reciprocal: u64::MAX / buckets as u64 + 1 }
    }

    /// Returns the layout of the table's slots.
    #[inline]
    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    #[inline]
    pub(crate) fn buckets(&self) -> usize {
        self.buckets as usize
    }

    #[inline]
    pub(crate) fn seats(&self, stored: u32) -> Seats {
        debug_assert!(stored < STORED_HASHES);
        let scaled = u64::from(stored) * u64::from(self.buckets);
        // Divides by 2^23, then by 139: cheaper than by their product at once.
        let home = (scaled >> TAG_BITS) as u32 / MIN_BUCKETS;
        let rest = scaled - u64::from(home) * u64::from(STORED_HASHES);
        let tag = ((u128::from(rest) * u128::from(self.reciprocal)) >> 64) as u32;
        let alternate = self.forward(home, tag);
        Seats { home: home as usize, alternate: alternate as usize, tag, layout: self.layout }
    }

    /// Returns the stored hash of the entry in this slot of this bucket.
    #[cfg(test)]
    pub(crate) fn stored(&self, bucket: usize, slot: Slot) -> u32 {
        self.first(self.home(bucket, slot)) + slot.tag(self.layout)
    }

    /// Returns the lowest stored hash whose home is this bucket.
    pub(crate) fn first(&self, home: usize) -> u32 {
        (home as u64 * u64::from(STORED_HASHES)).div_ceil(u64::from(self.buckets)) as u32
    }

    /// Returns the home bucket of the entry in this slot of this bucket.
    pub(crate) fn home(&self, bucket: usize, slot: Slot) -> usize {
        match slot.choice() {
            Choice::Home => bucket,
            Choice::Alternate => self.back(bucket as u32, slot.tag(self.layout)) as usize,
        }
    }

    /// Returns the other bucket of the entry in this slot of this bucket.
    pub(crate) fn other(&self, bucket: usize, slot: Slot) -> usize {
        match slot.choice() {
            Choice::Home => self.forward(bucket as u32, slot.tag(self.layout)) as usize,
            Choice::Alternate => self.back(bucket as u32, slot.tag(self.layout)) as usize,
        }
    }

    #[inline]
    fn forward(&self, home: u32, tag: u32) -> u32 {
        let bucket = home + self.distance(tag);
        if bucket < self.buckets { bucket } else { bucket - self.buckets }
    }

    fn back(&self, alternate: u32, tag: u32) -> u32 {
        let distance = self.distance(tag);
        if alternate >= distance { alternate - distance } else { alternate + self.buckets - distance }
    }

    /// Returns a distance from 1 to `buckets - 1`, so that the two buckets differ.
    #[inline]
    fn distance(&self, tag: u32) -> u32 {
        let mixed = tag.wrapping_mul(0x9E37_79B1);
        1 + ((u64::from(mixed) * u64::from(self.buckets - 1)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 50 } else { 20_000 }, ..Default::default() })]

        #[test]
        fn a_slot_gives_its_stored_hash_back(
            stored in prop_oneof![0..STORED_HASHES, Just(0), Just(STORED_HASHES - 1)],
            generation in 0..GENERATIONS,
        ) {
            let geometry = &GEOMETRIES[generation];
            let seats = geometry.seats(stored);
            prop_assert!(seats.home < geometry.buckets() && seats.alternate < geometry.buckets());
            prop_assert_ne!(seats.home, seats.alternate);
            let layout = geometry.layout();
            // All bits of the widest pointer, and no bit but the lowest: neither reaches the tag.
            for bits in [1, (1 << layout.pointer_bits()) - 1] {
                let pointer = Pointer::new(bits).unwrap();
                let slots = [Choice::Home, Choice::Alternate].map(|choice| {
                    let label = seats.label(choice);
                    let slot = Slot::new(layout, label, pointer);
                    assert!(slot.has(layout, label) && slot.pointer(layout) == Some(pointer));
                    assert!(!slot.flipped().has(layout, label) && slot.choice() == choice);
                    slot
                });
                prop_assert_eq!(slots[0].flipped(), slots[1]);
                prop_assert_eq!(geometry.stored(seats.home, slots[0]), stored);
                prop_assert_eq!(geometry.stored(seats.alternate, slots[1]), stored);
                prop_assert_eq!(geometry.other(seats.home, slots[0]), seats.alternate);
                prop_assert_eq!(geometry.other(seats.alternate, slots[1]), seats.home);
            }
        }
    }

    #[test]
    fn neighbours_differ_at_every_border_between_buckets() {
        for geometry in &GEOMETRIES {
            for home in (1..geometry.buckets).step_by(1 + geometry.buckets as usize / 500) {
                let border =
                    (u64::from(home) * u64::from(STORED_HASHES)).div_ceil(geometry.buckets.into()) as u32;
                assert_eq!(geometry.seats(border).home, home as usize);
                assert_eq!(geometry.seats(border).tag, 0);
                assert_eq!(geometry.seats(border - 1).home, home as usize - 1);
            }
        }
    }

    #[test]
    fn bits_that_larger_tables_save_in_tags_belong_to_pointers() {
        let bits = |buckets: usize| {
            let geometry = GEOMETRIES.iter().find(|geometry| geometry.buckets() >= buckets).unwrap();
            (geometry.buckets(), geometry.layout().pointer_bits())
        };
        assert_eq!([139, 302, 9_000].map(bits), [(139, 40), (302, 41), (9_487, 46)]);
        assert!(GEOMETRIES.is_sorted_by_key(|geometry| geometry.layout().pointer_bits()));
        for geometry in &GEOMETRIES {
            let (tags, last) = (1u64 << (63 - geometry.layout().pointer_bits()), geometry.buckets - 1);
            for home in [0, 1, last / 2, last] {
                let end = if home == last { STORED_HASHES } else { geometry.first(home as usize + 1) };
                let tag = geometry.seats(end - 1).tag;
                assert!(u64::from(tag) < tags && u64::from(tag) * 2 + 2 >= tags, "{tag} of {tags}");
            }
        }
    }

    #[test]
    fn generation_for_pointer_is_smallest_that_holds_it() {
        for bits in 1..=Pointer::BITS {
            let widest = (1 << bits) - 1;
            let generation = generation_for(widest);
            assert!(GEOMETRIES[generation].layout().fits(widest));
            assert!(generation == 0 || !GEOMETRIES[generation - 1].layout().fits(widest));
        }
    }

    #[test]
    fn the_largest_tag_fits() {
        let largest = GEOMETRIES[0].seats(STORED_HASHES / MIN_BUCKETS - 1);
        assert_eq!((largest.home, largest.tag), (0, (1 << TAG_BITS) - 1));
    }
}
