use esker_log::{Location, MIN_GRANULE_BYTES, PACKED_BITS, Packing, Tier, Tiers, class_bytes, class_of};
use proptest::prelude::*;

use crate::world::random;

#[test]
fn any_location_comes_back_and_no_two_are_alike() {
    let strategy = (0..9u32, 16..25u32, any::<[u64; 4]>(), any::<bool>(), 0..16u8);
    random("any_location_comes_back", 2000, strategy, |(granule, segment, numbers, fast, class)| {
        let granule_bytes = MIN_GRANULE_BYTES << granule;
        let segment_bytes = 1u64 << segment;
        let per_segment = segment_bytes / granule_bytes;
        let tier = if fast { Tier::Fast } else { Tier::Capacity };
        let tiers = if numbers[0] % 2 == 0 { Tiers::Both } else { Tiers::Only(tier) };
        let packing = Packing { granule_bytes, segment_bytes, tiers };
        let in_tier = packing.slots_max();
        let at = |slot: u64, granule: u64| Location {
            tier,
            slot: slot.min(u64::from(u32::MAX)) as u32,
            offset: (granule * granule_bytes) as u32,
            class,
        };
        let one = at(numbers[1] % in_tier, 1 + numbers[2] % (per_segment - 1));
        let ends = [at(0, 1), at(in_tier - 1, per_segment - 1), at(0, per_segment - 1), at(in_tier - 1, 1)];
        for location in ends.into_iter().chain([one]) {
            let packed = packing.pack(location);
            assert!(packed != 0 && packed < 1 << PACKED_BITS, "{packed:#x}");
            assert_eq!(packing.unpack(packed), location);
            let other = Location { tier: if fast { Tier::Capacity } else { Tier::Fast }, ..location };
            assert!(tiers != Tiers::Both || packing.pack(other) != packed);
        }
    });
}

#[test]
fn anything_of_54_bits_unpacks() {
    let strategy = (0..9u32, 12..32u32, any::<bool>(), 0..1u64 << PACKED_BITS);
    random("anything_of_54_bits_unpacks", 2000, strategy, |(granule, segment, both, packed)| {
        let segment_bytes = 1 << segment;
        let tiers = if both { Tiers::Both } else { Tiers::Only(Tier::Capacity) };
        let packing = Packing { granule_bytes: MIN_GRANULE_BYTES << granule, segment_bytes, tiers };
        assert!(u64::from(packing.unpack(packed).offset) < segment_bytes);
    });
}

#[test]
fn a_class_is_the_least_that_covers_its_records() {
    for offset in [64, 1000, 4092, 8192] {
        for class in 0..15 {
            let bound = class_bytes(class, offset);
            assert!(class_of(offset, bound) <= class && class_of(offset, bound + 1) > class);
            assert_eq!(class_bytes(class_of(offset, bound), offset), bound);
            let end = u64::from(offset) + bound;
            assert!(
                bound.is_multiple_of(64) || end.is_multiple_of(4096),
                "it ends with a cache line or a page"
            );
        }
    }
    assert_eq!((class_of(0, 0), class_of(0, u64::MAX), class_bytes(15, 0)), (0, 15, u64::MAX));
    // A value with a power of two as length and a short key is over-read by less than an eighth.
    for shift in 12..20 {
        let record = esker_log::record_bytes_max(16, 1 << shift, true) as u64;
        assert!(class_bytes(class_of(0, record), 0) <= (1 << shift) + (1 << shift) / 8, "2^{shift}");
    }
}
