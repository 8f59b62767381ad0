//! Properties of the codec of entries.

use esker_simulated::Random;

use esker_engine::{Codec, Compressed, StoredValue};

use super::*;
use crate::changes::{COMPRESSED_PUT, DELETE, EXPIRES, PUT};

const VERSION: u8 = 1;

fn bytes(random: &mut Random, most: u64) -> Bytes {
    let length = random.below(most) as usize;
    (0..length).map(|_| random.bits() as u8).collect()
}

fn change(random: &mut Random) -> StoredChange {
    let key = bytes(random, 40);
    let compressed = random.one_in(3).then(|| Compressed {
        codec: if random.one_in(2) { Codec::Lz4 } else { Codec::Zstd },
        raw_bytes: random.bits() as u32,
    });
    let expires_at_ms = random.one_in(3).then(|| random.bits());
    let value =
        (!random.one_in(4)).then(|| StoredValue { bytes: bytes(random, 300), compressed, expires_at_ms });
    StoredChange { key, value, origin: 0 }
}

fn steps(random: &mut Random) -> Vec<Step> {
    let step = |random: &mut Random| match random.one_in(6) {
        true => Step::Clear,
        false => Step::Changes((0..random.below(5)).map(|_| change(random)).collect()),
    };
    (0..random.below(6)).map(|_| step(random)).collect()
}

#[test]
fn every_entry_is_decoded_as_it_was() {
    let mut random = esker_simulated::SimRuntime::new(7).fork_random();
    for _ in 0..2000 {
        let steps = steps(&mut random);
        let entry = encode_entry(VERSION, steps.iter());
        assert!(entry.len() <= HEAD_BYTES + steps.iter().map(step_bytes).sum::<usize>());
        assert_eq!(decode_entry(&entry).as_ref(), Some(&steps));
        assert_eq!(decode_entry(&encode_entry(2, steps.iter())).as_ref(), Some(&steps));
    }
}

#[test]
fn entry_encoding_is_unique_and_cut_entry_is_damage() {
    let mut random = esker_simulated::SimRuntime::new(8).fork_random();
    for _ in 0..300 {
        let steps = steps(&mut random);
        let entry = encode_entry(VERSION, steps.iter());
        for end in 0..entry.len() {
            assert!(decode_entry(&entry.slice(..end)).is_none(), "cut at {end}: {steps:?}");
        }
        assert!(decode_entry(&[&entry[..], &[0]].concat().into()).is_none());
        let mut changed = entry.to_vec();
        let at = random.below(changed.len() as u64) as usize;
        changed[at] ^= 1 << random.below(8);
        let changed = Bytes::from(changed);
        if let Some(decoded) = decode_entry(&changed) {
            assert_eq!(encode_entry(changed[0], decoded.iter()), changed, "one form for each entry");
        }
    }
}

#[test]
fn lengths_beyond_the_entry_and_unknown_kinds_are_damage() {
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    let long = |head: &[u8]| Bytes::from([head, &huge[..]].concat());
    for damaged in [
        long(&[VERSION]),
        long(&[VERSION, 1]),
        long(&[VERSION, 1, 1, PUT]),
        long(&[VERSION, 1, 1, PUT, 1, b'k']),
        Bytes::from_static(&[0, 0]),
        Bytes::from(vec![Levels::supported().highest + 1, 0]),
        Bytes::from_static(&[VERSION, 1, 1, 3, 0, 0]),
        Bytes::from_static(&[VERSION, 1, 1, DELETE + EXPIRES, 0]),
        Bytes::from_static(&[VERSION, 1, 2, CLEAR, CLEAR]),
        Bytes::from_static(&[VERSION, 1, 1, COMPRESSED_PUT, 0, 9, 0, 0, 0, 0, 0]),
        Bytes::from_static(&[VERSION, 0x80, 0]),
    ] {
        assert!(decode_entry(&damaged).is_none(), "{damaged:?}");
    }
}
