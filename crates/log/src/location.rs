//! Location of a record in at most 54 bits: up to 50 bits of position and 4 of size class.
//!
//! Positions count *granules*, the unit that records are aligned to, from the start of the tier. In a store of two tiers the
//! lowest bit of the position is the tier. A location in use therefore has no more bits than the highest slot in use needs,
//! and the index keeps it in the bits that its tables have for it ([0043](../../../docs/decisions/0043-locations.md)). The
//! size class bounds the record's length and the pages that it touches, so that one read of the right length fetches it.

use crate::page::{PAGE_BYTES, left_in_page};

/// One of the two tiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// Low latency, small.
    Fast,
    /// Coarse indirection unit, large.
    Capacity,
}

impl Tier {
    /// Returns the name for messages.
    pub fn name(self) -> &'static str {
        match self {
            Tier::Fast => "fast",
            Tier::Capacity => "capacity",
        }
    }
}

const POSITION_BITS: u32 = 50;
const CLASS_BITS: u32 = 4;
/// Maximum number of bits of a packed location.
pub const PACKED_BITS: u32 = POSITION_BITS + CLASS_BITS;
/// Number of granules that the smallest tables of the index can address.
const SMALL_GRANULES: u64 = 1 << 36;
/// Smallest granule in bytes.
pub const MIN_GRANULE_BYTES: u64 = 4;
/// Largest granule that is chosen because of a store's size, in bytes. Larger stores have wider locations instead.
pub const SIZE_GRANULE_BYTES_MAX: u64 = 64;
/// Maximum number of granules per segment: recovery stores a record's length in granules in 24 bits.
pub const SEGMENT_GRANULES_MAX: u64 = 1 << 24;
const CLASS_STEP_BYTES: u64 = 576;
const LAST_CLASS: u8 = (1 << CLASS_BITS) - 1;
/// Number of classes for records that lie in one page.
const ONE_PAGE_CLASSES: u8 = 3;

/// Location of a record: tier, slot of the tier, byte offset in the segment that occupies the slot, and a bound on the
/// record's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Location {
    /// The tier.
    pub tier: Tier,
    /// Index of the segment-sized slot in the tier.
    pub slot: u32,
    /// Byte offset in the slot.
    pub offset: u32,
    /// Size class: the record is at most [`class_bytes`] long. For compressed values, see [`class_with`].
    pub class: u8,
}

/// Returns the length class: how often the step (576 bytes) must be doubled to cover `bytes`, 0 to 15.
#[inline]
pub fn length_class(bytes: u64) -> u8 {
    let times = bytes.saturating_sub(1) / CLASS_STEP_BYTES;
    (u64::BITS - times.leading_zeros()).min(u32::from(LAST_CLASS)) as u8
}

/// Returns the length class that covers every record of a size class, wherever it lies. It also covers the record with
/// its value uncompressed, if that has the same length class. Used to bound the memory of a read.
#[inline]
const fn covers(class: u8) -> u8 {
    match class {
        0..ONE_PAGE_CLASSES => class + 1,
        longer => longer,
    }
}

/// Returns the smallest size class that covers a length class.
#[inline]
const fn class_covering(length_class: u8) -> u8 {
    match length_class {
        0..=ONE_PAGE_CLASSES => length_class.saturating_sub(1),
        longer => longer,
    }
}

/// Returns the size class (0 to 15) of a record of `record_bytes` bytes, with its padding, at an offset in its segment.
#[inline]
pub fn class_of(offset: u32, record_bytes: u64) -> u8 {
    if record_bytes <= longest(0).min(left_in_page(offset.into())) {
        // Fast path: most records are small.
        return 0;
    }
    let mut class = class_covering(length_class(record_bytes));
    while record_bytes > class_bytes(class, offset) {
        class += 1;
    }
    class
}

/// Returns the maximum length of a record of a class, wherever it lies. The last class is bounded only by the segment.
///
/// Bounds are an eighth above powers of two, because values are often powers of two and records slightly longer. The
/// first three classes are for records that lie in one page.
#[inline]
const fn longest(class: u8) -> u64 {
    match class {
        0 | 1 => CLASS_STEP_BYTES << (class + 1),
        2 => PAGE_BYTES as u64,
        3..LAST_CLASS => CLASS_STEP_BYTES << class,
        _ => u64::MAX,
    }
}

/// Returns the maximum length of a record of a class at an offset in its segment.
///
/// No record touches more pages than the longest of its class fills: a record that touches one page more belongs to the
/// next class.
#[inline]
pub fn class_bytes(class: u8, offset: u32) -> u64 {
    let bytes = longest(class);
    if bytes == u64::MAX {
        return bytes;
    }
    let page = PAGE_BYTES as u64;
    bytes.min(left_in_page(offset.into()) + (bytes.div_ceil(page) - 1) * page)
}

/// Maximum number of times that a location's length bound must be doubled to cover the uncompressed record: twice, a
/// factor of four. A read therefore knows its maximum memory before it allocates it, and a short record that claims a
/// huge uncompressed value contradicts its location.
pub const EXPANSION_MAX: u8 = 2;

/// Returns the size class of the location of a record of `record_bytes` bytes, with its padding, whose uncompressed
/// length would be `expansion` length classes larger. It is the smallest class that covers the record in place, and of
/// which four times the bound covers it uncompressed. A value that shrinks to less than a quarter gets a larger class
/// than its length needs, and is over-read.
#[inline]
pub fn class_with(offset: u32, record_bytes: u64, expansion: u8) -> u8 {
    let stored = class_of(offset, record_bytes);
    if expansion == 0 {
        return stored;
    }
    let raw = (length_class(record_bytes) + expansion).min(LAST_CLASS);
    stored.max(class_covering(raw.saturating_sub(EXPANSION_MAX)))
}

/// Returns how often the length bound of a record's location must be doubled to cover the uncompressed record: 0 if the
/// length class is the same, else 1 to [`EXPANSION_MAX`].
pub fn growth_of(class: u8, record_bytes: u64, expansion: u8) -> u8 {
    let raw = length_class(record_bytes) + expansion;
    if expansion == 0 { 0 } else { raw.saturating_sub(covers(class)).clamp(1, EXPANSION_MAX) }
}

/// Returns the maximum memory in bytes of a record of a class whose length bound must be doubled `doubled` times. The
/// last classes are bounded only by the segment.
pub fn memory_bytes(class: u8, doubled: u8) -> u64 {
    let length = covers(class).saturating_add(doubled);
    if length >= LAST_CLASS { u64::MAX } else { CLASS_STEP_BYTES << length }
}

// Consistency of size classes and length classes, checked for all of them.
const _: () = {
    let mut class = 0;
    while class < LAST_CLASS {
        assert!(longest(class) <= CLASS_STEP_BYTES << covers(class), "no record of it is longer");
        assert!(covers(class_covering(class)) >= class, "the least that covers it covers it");
        let less = class_covering(class);
        assert!(less == 0 || covers(less - 1) < class, "and there is no less");
        class += 1;
    }
};

/// The tiers of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tiers {
    /// One tier.
    Only(Tier),
    /// A fast tier and a capacity tier.
    Both,
}

impl Tiers {
    /// Returns the tiers of the store that has this one.
    pub fn of(superblock: &crate::Superblock) -> Tiers {
        if superblock.has_peer { Tiers::Both } else { Tiers::Only(superblock.tier()) }
    }

    /// Returns the number of bits of a position that determine the tier.
    const fn bits(self) -> u32 {
        match self {
            Tiers::Only(_) => 0,
            Tiers::Both => 1,
        }
    }
}

/// Parameters of packed locations in one store. Packed locations are never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packing {
    /// Alignment of records, a power of two.
    pub granule_bytes: u64,
    /// Length of a segment, a power of two.
    pub segment_bytes: u64,
    /// The tiers of the store.
    pub tiers: Tiers,
}

impl Packing {
    /// Returns the smallest granule with which the smallest tables of an index can address `total_bytes` bytes, but at most
    /// [`SIZE_GRANULE_BYTES_MAX`].
    pub fn granule_for(total_bytes: u64) -> u64 {
        let least = total_bytes.div_ceil(SMALL_GRANULES).next_power_of_two();
        least.clamp(MIN_GRANULE_BYTES, SIZE_GRANULE_BYTES_MAX)
    }

    /// Returns the maximum number of slots of a tier.
    pub fn slots_max(&self) -> u64 {
        let granules = 1 << (POSITION_BITS - self.tiers.bits());
        (granules >> self.segment_shift()).min(u64::from(u32::MAX))
    }

    /// Returns log2 of the granule size: both sizes are powers of two.
    fn granule_shift(&self) -> u32 {
        self.granule_bytes.trailing_zeros()
    }

    /// Returns log2 of the granules per segment.
    fn segment_shift(&self) -> u32 {
        self.segment_bytes.trailing_zeros() - self.granule_shift()
    }

    /// Returns the granules of a record of `record_bytes` bytes.
    #[inline]
    pub fn granules(&self, record_bytes: u32) -> u64 {
        (u64::from(record_bytes) + self.granule_bytes - 1) >> self.granule_shift()
    }

    /// Packs a location. Never 0, because no record begins at offset 0 of a segment.
    #[inline]
    pub fn pack(&self, location: Location) -> u64 {
        debug_assert!(u64::from(location.offset).is_multiple_of(self.granule_bytes) && location.offset != 0);
        debug_assert!(self.granule_bytes.is_power_of_two() && self.segment_bytes.is_power_of_two());
        let first = u64::from(location.slot) << self.segment_shift();
        let granule = first + (u64::from(location.offset) >> self.granule_shift());
        let position = match self.tiers {
            Tiers::Only(_) => granule,
            Tiers::Both => granule << 1 | u64::from(location.tier == Tier::Fast),
        };
        position << CLASS_BITS | u64::from(location.class)
    }

    /// Unpacks a location.
    #[inline]
    pub fn unpack(&self, packed: u64) -> Location {
        let position = packed >> CLASS_BITS;
        let (tier, granule) = match self.tiers {
            Tiers::Only(tier) => (tier, position),
            Tiers::Both if position & 1 == 0 => (Tier::Capacity, position >> 1),
            Tiers::Both => (Tier::Fast, position >> 1),
        };
        Location {
            tier,
            slot: (granule >> self.segment_shift()) as u32,
            offset: ((granule << self.granule_shift()) & (self.segment_bytes - 1)) as u32,
            class: (packed & 15) as u8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_survive_packing_on_both_tiers() {
        let packing = Packing { granule_bytes: 16, segment_bytes: 1 << 24, tiers: Tiers::Both };
        for tier in [Tier::Fast, Tier::Capacity] {
            for slot in [0, 1, 999, packing.slots_max() as u32 - 1] {
                for offset in [64, 4096 + 16, (1 << 24) - 16] {
                    let location = Location { tier, slot, offset, class: 7 };
                    let packed = packing.pack(location);
                    assert!(packed > 0 && packed < 1 << PACKED_BITS);
                    assert_eq!(packing.unpack(packed), location);
                }
            }
        }
    }

    #[test]
    fn a_class_covers_its_records_and_no_smaller_class_does() {
        for bytes in [1, 132, 576, 577, 1152, 4144, 4608, 4609, 9 << 20, 100 << 20] {
            for offset in [0, 64, 2000, 3800, 4092, 4096, 4096 + 3964] {
                let class = class_of(offset, bytes);
                assert!(bytes <= class_bytes(class, offset));
                assert!(class == 0 || bytes > class_bytes(class - 1, offset));
            }
        }
    }

    #[test]
    fn four_times_what_a_place_says_covers_every_value() {
        let lengths = |most: u64| {
            (4..11_000).step_by(52).chain((0..16).map(|shift| 4604u64 << shift)).filter(move |b| *b <= most)
        };
        for offset in [64, 2000, 3800, 4092, 4096 + 3964] {
            for raw in lengths(u64::MAX) {
                for stored in lengths(raw) {
                    let expansion = length_class(raw) - length_class(stored);
                    let class = class_with(offset, stored, expansion);
                    assert!(stored <= class_bytes(class, offset), "it is read with its value");
                    assert!(raw <= memory_bytes(class, EXPANSION_MAX), "{raw} as {stored} at {offset}");
                    assert!(raw <= memory_bytes(class, growth_of(class, stored, expansion)));
                    let is_least = class == class_of(offset, stored)
                        || CLASS_STEP_BYTES << length_class(raw) > memory_bytes(class - 1, EXPANSION_MAX);
                    assert!(is_least, "no smaller one does");
                }
            }
        }
    }

    #[test]
    fn a_record_in_one_page_is_read_with_one_page() {
        for offset in (0..4096).step_by(4) {
            for bytes in (4..=4096 - u64::from(offset)).step_by(4) {
                let most = class_bytes(class_of(offset, bytes), offset);
                let end = u64::from(offset) + most;
                assert!(end <= 4096, "{bytes} bytes at {offset}: up to {end}");
            }
        }
    }

    #[test]
    fn granule_grows_with_the_devices_up_to_64_bytes() {
        assert_eq!(Packing::granule_for(1 << 38), 4);
        assert_eq!(Packing::granule_for((1 << 38) + 1), 8);
        assert_eq!(Packing::granule_for(1 << 40), 16);
        assert_eq!(Packing::granule_for((1 << 40) + 1), 32);
        assert_eq!([4 << 40, 16 << 40, 1 << 50, u64::MAX].map(Packing::granule_for), [64; 4]);
    }

    #[test]
    fn locations_take_as_many_bits_as_the_highest_slot_in_use_needs() {
        let packed = |tiers, slot| {
            let packing = Packing { granule_bytes: 64, segment_bytes: 16 << 20, tiers };
            let offset = (16 << 20) - 64;
            let locations =
                [Tier::Fast, Tier::Capacity].map(|tier| Location { tier, slot, offset, class: 15 });
            locations.into_iter().map(|location| 64 - packing.pack(location).leading_zeros()).max()
        };
        // The last segment of the first 4 TiB, of the first PiB, and the last that can be addressed.
        let slots = [(1 << 18) - 1, (1 << 26) - 1, u32::MAX];
        assert_eq!(
            slots.map(|slot| packed(Tiers::Only(Tier::Capacity), slot)),
            [Some(40), Some(48), Some(54)]
        );
        assert_eq!(
            slots[..2].iter().map(|slot| packed(Tiers::Both, *slot)).collect::<Vec<_>>(),
            [Some(41), Some(49)]
        );
        let most = |tiers| Packing { granule_bytes: 64, segment_bytes: 16 << 20, tiers }.slots_max();
        assert_eq!([most(Tiers::Only(Tier::Fast)), most(Tiers::Both)], [u64::from(u32::MAX), 1 << 31]);
    }
}
