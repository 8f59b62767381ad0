use esker_device::UNIT_BYTES_MAX;
use esker_log::{FORMAT_VERSION, SUPERBLOCK_COPIES, Secret, Superblock, SuperblockError, Tier};
use proptest::prelude::*;

use crate::world::{random, superblock};

const HEAD_BYTES: usize = esker_log::HEAD_BYTES as usize;
const UNITS: [u64; 5] = [512, 4096, 65_536, 1 << 20, UNIT_BYTES_MAX];

/// Returns the start of a device with these copies.
fn head(copies: &[(usize, &Superblock)]) -> Vec<u8> {
    let mut head = vec![0u8; HEAD_BYTES];
    for (copy, superblock) in copies {
        write(&mut head, *copy, superblock);
    }
    head
}

fn write(head: &mut [u8], copy: usize, superblock: &Superblock) {
    let bytes = superblock.encode(copy);
    let at = copy * Superblock::stride_bytes(superblock.unit_bytes) as usize;
    head[at..at + bytes.len()].copy_from_slice(&bytes);
}

fn full(superblock: &Superblock) -> Vec<u8> {
    head(&[(0, superblock), (1, superblock), (2, superblock), (3, superblock)])
}

#[test]
fn a_superblock_comes_back_from_any_one_copy() {
    for unit in UNITS {
        let written = superblock(unit, 3);
        let whole = full(&written);
        assert_eq!(Superblock::find(&whole).as_ref(), Ok(&written));
        assert_eq!((written.tier(), written.secret()), (Tier::Fast, crate::world::SECRET));
        let stride = Superblock::stride_bytes(unit) as usize;
        for left in 0..SUPERBLOCK_COPIES {
            for damage in [0usize, 9, 30, 100] {
                let mut bytes = whole.clone();
                for copy in (0..SUPERBLOCK_COPIES).filter(|&c| c != left) {
                    bytes[copy * stride + damage] ^= 0x10;
                }
                assert_eq!(Superblock::find(&bytes).as_ref(), Ok(&written), "unit {unit}, copy {left} left");
            }
        }
    }
}

#[test]
fn the_newest_generation_counts() {
    for unit in UNITS {
        let (old, new) = (superblock(unit, 8), Superblock { used_slots: 128, ..superblock(unit, 9) });
        for pair in [[0, 1], [2, 3], [1, 2]] {
            let mut bytes = full(&old);
            pair.iter().for_each(|&copy| write(&mut bytes, copy, &new));
            assert_eq!(Superblock::find(&bytes).as_ref(), Ok(&new), "unit {unit}, {pair:?}");
        }
    }
}

#[test]
fn an_empty_device_has_none_and_a_damaged_one_says_so() {
    assert_eq!(Superblock::find(&[]), Err(SuperblockError::Absent));
    assert_eq!(Superblock::find(&[0; 10]), Err(SuperblockError::Absent));
    assert_eq!(Superblock::find(&vec![0; HEAD_BYTES]), Err(SuperblockError::Absent));
    let mut bytes = full(&superblock(4096, 3));
    for copy in 0..SUPERBLOCK_COPIES {
        bytes[copy * 4096 + 40] ^= 1;
    }
    assert_eq!(Superblock::find(&bytes), Err(SuperblockError::Damaged));
    // The only copy is cut in the middle.
    let whole = superblock(4096, 3).encode(0);
    assert_eq!(Superblock::find(&whole[..60]), Err(SuperblockError::Damaged));
}

/// Writes a field of the prefix and recomputes the checksum.
fn forge(copy: &mut [u8], at: usize, value: u32) {
    copy[at..at + 4].copy_from_slice(&value.to_le_bytes());
    let payload = u32::from_le_bytes(copy[20..24].try_into().expect("four bytes")) as usize;
    let no_secret = Secret { digest_key: [0; 2], salt: 0 };
    let crc = no_secret.identity(0, 0).crc(&[&copy[12..24 + payload]]);
    copy[8..12].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn forged_length_of_a_list_is_damage() {
    let mut copy = superblock(4096, 3).encode(0);
    let payload = u32::from_le_bytes(copy[20..24].try_into().expect("four bytes")) as usize;
    // The upper half of the length of the last list, which is empty.
    forge(&mut copy, 24 + payload - 4, 1 << 28);
    assert_eq!(Superblock::find(&copy), Err(SuperblockError::Damaged));
}

#[test]
fn another_version_is_refused() {
    let mut bytes = full(&superblock(4096, 3));
    for copy in 0..SUPERBLOCK_COPIES {
        forge(&mut bytes[copy * 4096..], 12, FORMAT_VERSION as u32 + 1);
    }
    let refused = Err(SuperblockError::Version { found: FORMAT_VERSION + 1 });
    assert_eq!(Superblock::find(&bytes), refused);
    // Damage to some copies does not hide it.
    bytes[2 * 4096 + 40] ^= 1;
    bytes[3 * 4096 + 40] ^= 1;
    assert_eq!(Superblock::find(&bytes), refused);
}

#[test]
fn every_flipped_bit_of_a_copy_is_noticed() {
    let copy = superblock(4096, 3).encode(0);
    let used = 24 + u32::from_le_bytes(copy[20..24].try_into().expect("four bytes")) as usize;
    for bit in 0..used * 8 {
        let mut bytes = copy.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(Superblock::find(&bytes).is_err(), "bit {bit}");
    }
}

#[test]
fn a_copy_counts_only_in_its_place() {
    let mut bytes = vec![0; HEAD_BYTES];
    let copy = superblock(4096, 3).encode(1);
    bytes[8192..8192 + copy.len()].copy_from_slice(&copy);
    assert_eq!(Superblock::find(&bytes), Err(SuperblockError::Absent));
    let mut copy = superblock(4096, 3).encode(0);
    forge(&mut copy, 16, 4);
    assert!(Superblock::find(&copy).is_err(), "there is no copy 4");
}

#[test]
fn values_and_earlier_stores_are_not_taken_for_superblocks() {
    let mine = superblock(4096, 3);
    let foreign = Superblock { store_id: 99, ..superblock(1 << 20, 1000) };
    // At the positions of copies for large units, a store with small units has records.
    for left in 0..SUPERBLOCK_COPIES {
        let mut bytes = full(&mine);
        (1..SUPERBLOCK_COPIES).for_each(|copy| write(&mut bytes, copy, &foreign));
        for copy in (0..SUPERBLOCK_COPIES).filter(|&c| c != left) {
            bytes[copy * 4096..][..4096].fill(0);
        }
        assert_eq!(Superblock::find(&bytes).as_ref(), Ok(&mine), "copy {left} left");
    }
    // Even one with the store's own identity.
    let mut bytes = full(&mine);
    write(&mut bytes, 2, &Superblock { store_id: mine.store_id, ..foreign });
    assert_eq!(Superblock::find(&bytes).as_ref(), Ok(&mine));
}

#[test]
fn superblock_copy_of_another_store_is_not_newer() {
    let mine = superblock(65_536, 3);
    let mut bytes = full(&mine);
    let foreign = Superblock { store_id: 99, ..superblock(4096, 1000) };
    (1..SUPERBLOCK_COPIES).for_each(|copy| write(&mut bytes, copy, &foreign));
    assert_eq!(Superblock::find(&bytes).as_ref(), Ok(&mine));
}

#[test]
fn a_unit_beyond_all_measure_is_refused() {
    let mut copy = superblock(4096, 3).encode(0);
    // Offset of the write unit in the payload.
    assert_eq!(copy[106..114], 4096u64.to_le_bytes());
    forge(&mut copy, 106, u32::MAX);
    forge(&mut copy, 110, u32::MAX);
    assert_eq!(Superblock::find(&copy), Err(SuperblockError::Damaged));
}

#[test]
fn any_payload_that_verifies_is_a_superblock_or_an_error() {
    let strategy = (proptest::collection::vec(any::<u8>(), 0..200), any::<u32>());
    random("any_payload_that_verifies", 2000, strategy, |(payload, length)| {
        let mut copy = superblock(4096, 3).encode(0);
        copy[24..24 + payload.len()].copy_from_slice(&payload);
        forge(&mut copy, 20, length % 400);
        let _ = Superblock::find(&copy);
        copy[20..24].copy_from_slice(&length.to_le_bytes());
        assert!(Superblock::find(&copy).is_err());
    });
}
