//! Positions of the copies of a superblock far from the start of a device, and which of them count.

use esker_log::{COPY_BYTES, FarSearch, FoundFar, SUPERBLOCK_COPIES, Superblock};

use crate::world::superblock;

const MIB: u64 = 1 << 20;

/// A new store on a device, with its far copies.
fn placed(device_bytes: u64, unit_bytes: u64, segment_bytes: u64) -> Superblock {
    let granule_bytes = 64;
    let mut made = Superblock { granule_bytes, segment_bytes, used_slots: 0, ..superblock(unit_bytes, 3) };
    made.far_copies = made.place_far_copies(device_bytes, |_| false);
    assert_eq!(made.nonsense(), None, "{made:?}");
    made
}

fn slots(s: &Superblock, device_bytes: u64) -> u64 {
    (device_bytes - s.data_offset) / s.segment_bytes
}

#[test]
fn far_copies_in_middle_and_at_end_cost_two_slots() {
    let mut devices = 0;
    for unit in (12..=22).map(|shift| 1u64 << shift) {
        for segment in (16..=29).map(|shift| 1u64 << shift).filter(|segment| *segment >= 8 * unit) {
            for (factor, more) in [(70, 0), (71, 4096), (300, unit), (1 << 20, 12_288), (4_000_001, 65_536)] {
                let bytes = Superblock::data_offset_for(unit) + factor * segment + more;
                let made = placed(bytes, unit, segment);
                let [middle, end] = made.far_copies[..] else { panic!("{bytes}, {unit}: {made:?}") };
                assert!(middle > bytes / 4 && middle < bytes / 4 * 3, "{middle} of {bytes}");
                let alignment = unit.max(64 << 10);
                assert!(end + unit <= bytes && end + 3 * alignment > bytes, "{end} of {bytes}");
                let candidates = Superblock::far_candidates(bytes);
                assert!([middle, end].iter().all(|at| candidates.contains(at)), "{bytes}, {unit}");
                let there = made.slots_within(bytes);
                assert!(there + 2 >= slots(&made, bytes), "{there}, {bytes}");
                assert!(made.data_offset + there * segment <= end, "the slots end before the end copy");
                let out: Vec<u32> = made.slots_out_of_use(there as u32).collect();
                let start = made.data_offset + u64::from(out[0]) * segment;
                assert!(out.len() == 1 && start <= middle && middle + unit <= start + segment, "{out:?}");
                devices += 1;
            }
        }
    }
    assert!(devices > 400, "{devices}");
}

#[test]
fn small_device_has_far_copies_only_if_they_cost_no_slot() {
    let bytes = MIB + 40 * MIB;
    assert_eq!(placed(bytes, 4096, MIB).far_copies, []);
    let made = placed(bytes + (64 << 10), 4096, MIB);
    assert_eq!((made.far_copies.clone(), made.slots_within(bytes + (64 << 10))), (vec![bytes], 40));
    // A file system writes its own metadata at powers of two.
    assert_eq!(placed(16 << 40, 4096, 256 * MIB).far_copies[0], (8 << 40) + 96 * MIB);
}

#[test]
fn far_copies_never_overlap_a_slot_in_use() {
    let bytes = 200 * MIB;
    let made = placed(bytes, 4096, MIB);
    let over = |at: u64| ((at - made.data_offset) / MIB) as u32;
    let [middle, end] = made.far_copies[..] else { panic!("{made:?}") };
    let bare = Superblock { far_copies: Vec::new(), ..made.clone() };
    assert_eq!(bare.place_far_copies(bytes, |slot| slot == over(middle)), [end]);
    assert_eq!(bare.place_far_copies(bytes, |slot| slot == over(end)), [middle]);
    assert_eq!(bare.place_far_copies(bytes, |slot| slot < 199), []);
}

#[test]
fn end_copy_follows_device_length_and_middle_copy_stays() {
    let mut made = placed(200 * MIB, 4096, MIB);
    let [middle, end] = made.far_copies[..] else { panic!("{made:?}") };
    made.used_slots = 150;
    let grown = made.place_far_copies(900 * MIB, |slot| slot < 150);
    assert_eq!(grown, [middle, 900 * MIB - (64 << 10)]);
    let shrunk = made.place_far_copies(160 * MIB, |slot| slot < 150);
    assert_eq!(shrunk, [middle, 160 * MIB - (64 << 10)]);
    // There is no slot to spare behind those in use.
    assert_eq!(made.place_far_copies(151 * MIB, |slot| slot < 150), [middle]);
    // The former end copy lies in slots that were never used.
    assert!((end - made.data_offset) / MIB >= made.slots_within(200 * MIB));
}

#[test]
fn far_copy_counts_at_its_own_place_only() {
    let made = placed(200 * MIB, 4096, MIB);
    for (number, at) in (SUPERBLOCK_COPIES..).zip(made.far_copies.clone()) {
        let bytes = made.encode(number);
        assert_eq!(Superblock::decode_far(&bytes, at).as_ref(), Ok(&made));
        for other in [0, 4096, at + 4096, made.far_copies[5 - number]] {
            assert!(Superblock::decode_far(&bytes, other).is_err(), "{number} at {other}");
            let mut start = vec![0; 4096];
            start.extend(&bytes);
            assert!(Superblock::find(&start).is_err());
        }
        for bit in 0..8 * 100 {
            let mut rotten = bytes.clone();
            rotten[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode_far(&rotten, at).is_err(), "bit {bit}");
        }
    }
    assert!(Superblock::decode_far(&made.encode(0), 0).is_err(), "a copy of the start is not a far one");
}

#[test]
fn each_group_has_copies_at_the_start_and_far_from_it() {
    for generation in [4, 5] {
        let made = Superblock { generation, ..placed(200 * MIB, 4096, MIB) };
        let groups =
            made.copy_groups().map(|group| group.iter().map(|place| place.number).collect::<Vec<_>>());
        let mut wanted = [vec![0, 1, 4], vec![2, 3, 5]];
        if generation % 2 == 1 {
            wanted.reverse();
        }
        assert_eq!(groups, wanted);
    }
}

/// Searches a device whose positions have these bytes.
fn search(device_bytes: u64, copies: &[(u64, Vec<u8>)]) -> FoundFar {
    let mut search = FarSearch::of(device_bytes);
    while let Some(offset) = search.next_offset() {
        if let Some((_, bytes)) = copies.iter().find(|(at, _)| *at == offset) {
            assert!(bytes.len() >= COPY_BYTES);
            search.add(offset, bytes);
        }
    }
    search.finish()
}

#[test]
fn grown_device_finds_the_old_end_copy_through_the_middle_one() {
    let old = placed(200 * MIB, 4096, MIB);
    let [middle, end] = old.far_copies[..] else { panic!("{old:?}") };
    let newer = Superblock { generation: 9, ..old.clone() };
    let copies = [(middle, old.encode(4)), (end, newer.encode(5))];
    assert_eq!(search(900 * MIB, &copies), FoundFar::One(end, Box::new(newer)));
    assert_eq!(search(900 * MIB, &copies[..1]), FoundFar::One(middle, Box::new(old)));
    assert_eq!(search(900 * MIB, &[]), FoundFar::Nothing);
}

#[test]
fn far_copies_of_different_stores_are_not_believed() {
    let mine = placed(200 * MIB, 4096, MIB);
    let [middle, end] = mine.far_copies[..] else { panic!("{mine:?}") };
    let others = [
        Superblock { store_id: 99, ..mine.clone() },
        Superblock { device_id: 99, ..mine.clone() },
        Superblock { salt: 99, ..mine.clone() },
    ];
    for other in others {
        assert!(!mine.is_of_same_device(&other));
        let found = search(200 * MIB, &[(middle, mine.encode(4)), (end, other.encode(5))]);
        assert!(matches!(found, FoundFar::Several(..)), "{found:?}");
    }
}
