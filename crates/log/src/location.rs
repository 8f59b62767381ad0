//! Where a record lies, in 40 bits: 36 of location and 4 of size class.
//!
//! Locations count *granules*, the unit that records are aligned to. The capacity tier counts up from 0, the fast tier
//! down from the top, so both can grow until they meet and no bit is spent on the tier. The size class bounds the
//! record's length, and the pages that it lies in, so that one read of the right length fetches it.

use crate::page::{PAGE_BYTES, left_in_page};

/// Which of the two media.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// Low latency, small.
    Fast,
    /// Coarse indirection unit, large.
    Capacity,
}

impl Tier {
    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Tier::Fast => "fast",
            Tier::Capacity => "capacity",
        }
    }
}

const LOCATION_BITS: u32 = 36;
const CLASS_BITS: u32 = 4;
/// Bits of a packed location.
pub const PACKED_BITS: u32 = LOCATION_BITS + CLASS_BITS;
/// Granules that the two tiers can have together.
pub const MAX_GRANULES: u64 = 1 << LOCATION_BITS;
/// Smallest granule.
pub const MIN_GRANULE_BYTES: u64 = 4;
/// Granules of a segment at most: recovery counts those of a record in 23 bits.
pub const SEGMENT_GRANULES_MAX: u64 = 1 << 23;
const CLASS_STEP_BYTES: u64 = 576;
/// Classes of records that lie in one page.
const ONE_PAGE_CLASSES: u8 = 3;

/// Where a record lies: tier, slot of the tier, byte offset in the segment that occupies the slot, and a bound on its
/// length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Location {
    /// The tier.
    pub tier: Tier,
    /// Which segment-sized slot of the tier.
    pub slot: u32,
    /// Byte offset in the slot.
    pub offset: u32,
    /// Size class: the record is at most [`class_bytes`] long.
    pub class: u8,
}

/// The class of a record of so many bytes, with its padding, at an offset of its segment: 0 to 15.
#[inline]
pub fn class_of(offset: u32, record_bytes: u64) -> u8 {
    // How often the step has to be doubled.
    let times = record_bytes.saturating_sub(1) / CLASS_STEP_BYTES;
    let mut class = (u64::BITS - times.leading_zeros()).min(15) as u8;
    if class <= ONE_PAGE_CLASSES {
        class = class.saturating_sub(1);
    }
    while record_bytes > class_bytes(class, offset) {
        class += 1;
    }
    class
}

/// The most that a record of a class has at an offset of its segment. The last class has no bound but the segment.
///
/// Bounds lie an eighth above powers of two, because values are powers of two and records a little more. The first three are
/// of records that lie in one page. No other reaches into more pages than the longest of its records fills: a record that
/// lies in a page more is of the next class.
#[inline]
pub fn class_bytes(class: u8, offset: u32) -> u64 {
    if class >= 15 {
        return u64::MAX;
    }
    let page = PAGE_BYTES as u64;
    let bytes = if class < ONE_PAGE_CLASSES {
        (CLASS_STEP_BYTES << (class + 1)).min(page)
    } else {
        CLASS_STEP_BYTES << class
    };
    bytes.min(left_in_page(offset.into()) + (bytes.div_ceil(page) - 1) * page)
}

/// How locations are packed in one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packing {
    /// Alignment of records, a power of two.
    pub granule_bytes: u64,
    /// Length of a segment, a power of two.
    pub segment_bytes: u64,
    /// Slots that the capacity tier has in this opening: what lies above belongs to the fast tier. Packed locations are
    /// never stored, so this may differ from one opening to the next, as limits and devices grow.
    pub capacity_slots: u32,
}

impl Packing {
    /// The smallest granule with which so many bytes can be addressed.
    pub fn granule_for(total_bytes: u64) -> u64 {
        (total_bytes.div_ceil(MAX_GRANULES)).next_power_of_two().max(MIN_GRANULE_BYTES)
    }

    /// Slots that both tiers can have together.
    pub fn slots_max(granule_bytes: u64, segment_bytes: u64) -> u64 {
        MAX_GRANULES / (segment_bytes / granule_bytes)
    }

    /// Bits of an offset in granules: both sizes are powers of two.
    fn granule_shift(&self) -> u32 {
        self.granule_bytes.trailing_zeros()
    }

    /// Bits of a segment's number of granules.
    fn segment_shift(&self) -> u32 {
        self.segment_bytes.trailing_zeros() - self.granule_shift()
    }

    /// Granules that a record of so many bytes takes.
    #[inline]
    pub fn granules(&self, record_bytes: u32) -> u64 {
        (u64::from(record_bytes) + self.granule_bytes - 1) >> self.granule_shift()
    }

    /// Packs a location. Never 0, since no record begins at offset 0 of a segment.
    #[inline]
    pub fn pack(&self, location: Location) -> u64 {
        debug_assert!(u64::from(location.offset).is_multiple_of(self.granule_bytes) && location.offset != 0);
        debug_assert!(self.granule_bytes.is_power_of_two() && self.segment_bytes.is_power_of_two());
        let first = u64::from(location.slot) << self.segment_shift();
        let granule = first + (u64::from(location.offset) >> self.granule_shift());
        let granule = match location.tier {
            Tier::Capacity => granule,
            Tier::Fast => MAX_GRANULES - 1 - granule,
        };
        granule << CLASS_BITS | u64::from(location.class)
    }

    /// The location that was packed.
    #[inline]
    pub fn unpack(&self, packed: u64) -> Location {
        let granule = packed >> CLASS_BITS;
        let (tier, granule) = if granule < u64::from(self.capacity_slots) << self.segment_shift() {
            (Tier::Capacity, granule)
        } else {
            (Tier::Fast, MAX_GRANULES - 1 - granule)
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
        let packing = Packing { granule_bytes: 16, segment_bytes: 1 << 24, capacity_slots: 1000 };
        for tier in [Tier::Fast, Tier::Capacity] {
            for slot in [0, 1, 999] {
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
    fn the_granule_grows_with_the_devices() {
        assert_eq!(Packing::granule_for(1 << 38), 4);
        assert_eq!(Packing::granule_for((1 << 38) + 1), 8);
        assert_eq!(Packing::granule_for(1 << 40), 16);
        assert_eq!(Packing::granule_for((1 << 40) + 1), 32);
        assert_eq!(Packing::granule_for(16 << 40), 256);
    }
}
