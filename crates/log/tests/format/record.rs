use esker_log::{
    Damage, Keyspace, Kind, MAX_KEY_BYTES, RECORD_HEADER_BYTES, Record, RecordView, Secret, claimed_bytes,
    claimed_head_bytes, keyspace_bytes, record_bytes,
};
use proptest::prelude::*;

use crate::world::{SECRET, bytes_of, put, random};

#[track_caller]
fn comes_back(record: &Record<'_>) {
    let bytes = bytes_of(record, 9, 4160);
    assert_eq!(bytes.len(), record.bytes());
    assert_eq!(
        bytes.len(),
        record_bytes(record.key.len(), record.value.len(), record.expires_at_ms.is_some())
            + keyspace_bytes(record.keyspace)
    );
    assert_eq!(claimed_bytes(&bytes), Some(bytes.len()));
    // What follows on the medium does not matter.
    let longer = [&bytes[..], &[0xee; 100]].concat();
    let read = RecordView::parse(&longer, &SECRET.identity(9, 4160)).expect("it is whole");
    assert_eq!(read.verify_value(&SECRET), Ok(()));
    assert_eq!(read.bytes(), bytes.len());
    assert_eq!(
        (
            read.kind,
            read.keyspace,
            read.key,
            read.value,
            read.value_check,
            read.sequence,
            read.expires_at_ms,
            read.batch_goes_on,
            read.short_lived
        ),
        (
            record.kind,
            record.keyspace,
            record.key,
            record.value,
            record.value_check,
            record.sequence,
            record.expires_at_ms,
            record.batch_goes_on,
            record.short_lived
        )
    );
    let moved = read.to_record();
    assert!(!moved.batch_goes_on, "a moved record is in no batch");
    assert_eq!((moved.key, moved.sequence, moved.value_check), (read.key, read.sequence, read.value_check));
    assert_eq!(moved.keyspace, record.keyspace, "it stays in its keyspace");
    // One byte less is an error, wherever it ends.
    for end in [0, 1, 31, 32, 39, 40, bytes.len() / 2, bytes.len() - 1] {
        if end < bytes.len() {
            let cut = RecordView::parse(&bytes[..end], &SECRET.identity(9, 4160));
            assert_eq!(cut.expect_err("it was cut"), Damage::Length, "cut at {end}");
        }
    }
}

#[test]
fn records_come_back_at_every_boundary_of_their_lengths() {
    let bytes: Vec<u8> = (0..1 << 20).map(|i: u32| ((i * 31) >> 3) as u8).collect();
    for key in [1, 2, 7, 8, 15, 16, 255, 256, 257, 4095, 4096, MAX_KEY_BYTES - 1, MAX_KEY_BYTES] {
        for value in [0, 1, 2, 15, 16, 17, 255, 256, 4095, 4096, 4097, 65_535, 65_536, 1 << 20] {
            comes_back(&put(&bytes[..key], &bytes[..value], 1));
        }
    }
    for kind in [Kind::Put, Kind::Tombstone] {
        for sequence in [0, 1, u64::from(u32::MAX), u64::MAX] {
            for expires_at_ms in [None, Some(0), Some(1), Some(u64::MAX)] {
                for (batch_goes_on, short_lived) in
                    [(false, false), (true, false), (false, true), (true, true)]
                {
                    let value: &[u8] = if kind == Kind::Put { b"value" } else { b"" };
                    for keyspace in Keyspace::all().step_by(5) {
                        comes_back(&Record {
                            kind,
                            keyspace,
                            expires_at_ms,
                            batch_goes_on,
                            short_lived,
                            ..put(b"key", value, sequence)
                        });
                    }
                }
            }
        }
    }
}

#[test]
fn any_record_comes_back() {
    let bytes = |most| proptest::collection::vec(any::<u8>(), 0..most);
    let strategy = (
        bytes(300),
        bytes(3000),
        any::<u64>(),
        any::<Option<u64>>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    );
    random(
        "any_record_comes_back",
        256,
        strategy,
        |(mut key, value, sequence, expires_at_ms, goes_on, short_lived, tombstone)| {
            key.push(7);
            let kind = if tombstone { Kind::Tombstone } else { Kind::Put };
            comes_back(&Record {
                kind,
                expires_at_ms,
                batch_goes_on: goes_on,
                short_lived,
                ..put(&key, &value, sequence)
            });
        },
    );
}

#[test]
fn the_first_keyspace_costs_nothing_and_the_others_a_byte() {
    let first = bytes_of(&put(b"key", b"value", 1), 9, 64);
    assert_eq!(first.len(), RECORD_HEADER_BYTES + 3 + 5);
    for keyspace in Keyspace::all().skip(1) {
        let record = Record { keyspace, ..put(b"key", b"value", 1) };
        let mut bytes = bytes_of(&record, 9, 64);
        assert_eq!(bytes.len(), first.len() + 1);
        assert_eq!(bytes[RECORD_HEADER_BYTES], keyspace.number());
        // Beyond sixteen there is none, and the first has no byte.
        for number in [0, 16, 255] {
            bytes[RECORD_HEADER_BYTES] = number;
            let read = RecordView::parse(&bytes, &SECRET.identity(9, 64));
            assert_eq!(read.expect_err("no such keyspace"), Damage::Header);
        }
    }
    let hash = |keyspace| SECRET.key_hash(keyspace, b"key");
    assert!(Keyspace::all().all(|keyspace| hash(keyspace).keyspace() == keyspace));
    assert!(
        Keyspace::all().all(|keyspace| hash(keyspace).in_keyspace(Keyspace::FIRST) == hash(Keyspace::FIRST))
    );
}

#[test]
fn a_key_has_1_to_65536_bytes() {
    for len in [0, MAX_KEY_BYTES + 1] {
        let key = vec![1; len];
        let refused =
            std::panic::catch_unwind(|| put(&key, b"", 1).encode_header(&SECRET.identity(1, 64)).len());
        assert!(refused.is_err(), "a key of {len} bytes");
    }
}

#[test]
fn every_flipped_bit_of_a_record_is_noticed() {
    let fifth = Keyspace::new(5).expect("one of sixteen");
    for (expires_at_ms, keyspace, value) in [
        (None, Keyspace::FIRST, vec![]),
        (None, fifth, vec![0x5a; 100]),
        (Some(77), Keyspace::FIRST, vec![0; 40]),
        (Some(77), fifth, vec![]),
    ] {
        let record = Record { expires_at_ms, keyspace, ..put(b"some key", &value, 1 << 40) };
        let whole = bytes_of(&record, 9, 64);
        let header_end = whole.len() - value.len();
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            // Enough behind it for a length that grew: a record is not saved by the end of the buffer.
            bytes.resize(bytes.len() + (1 << 17), 0);
            match RecordView::parse(&bytes, &SECRET.identity(9, 64)) {
                Err(_) => assert!(bit / 8 < header_end, "bit {bit} of the value made the header unreadable"),
                Ok(read) => {
                    assert!(bit / 8 >= header_end, "bit {bit} of the header was not noticed");
                    assert_eq!(read.verify_value(&SECRET), Err(Damage::Value), "bit {bit}");
                    assert_eq!(read.key, record.key, "the error can name the key");
                }
            }
        }
    }
}

#[test]
fn a_record_verifies_only_where_it_was_written() {
    let bytes = bytes_of(&put(b"key", b"value", 5), 9, 4160);
    let header_error = |secret: &Secret, segment, offset| {
        RecordView::parse(&bytes, &secret.identity(segment, offset)).expect_err("not its place")
    };
    assert!(RecordView::parse(&bytes, &SECRET.identity(9, 4160)).is_ok());
    for bit in 0..64 {
        assert_eq!(header_error(&SECRET, 9 ^ 1 << bit, 4160), Damage::Header);
        let other_store = Secret { salt: SECRET.salt ^ 1 << bit, ..SECRET };
        assert_eq!(header_error(&other_store, 9, 4160), Damage::Header);
    }
    for bit in 0..32 {
        assert_eq!(header_error(&SECRET, 9, 4160 ^ 1 << bit), Damage::Header);
    }
    // Segment and offset do not stand in for each other.
    assert_eq!(header_error(&SECRET, 4160, 9), Damage::Header);
}

#[test]
fn a_value_of_another_store_does_not_verify() {
    let record = put(b"key", b"value", 5);
    let header = record.encode_header(&SECRET.identity(9, 64));
    let bytes = [&header, record.key, record.value].concat();
    let read = RecordView::parse(&bytes, &SECRET.identity(9, 64)).expect("it is whole");
    let other = Secret { salt: SECRET.salt + 1, ..SECRET };
    assert_eq!(read.verify_value(&other), Err(Damage::Value));
}

#[test]
fn what_is_not_known_is_refused() {
    // A third way of compression, one without a length, a length without one, and a length that is not longer.
    for (at, value) in [(0, 0), (0, 3), (1, 0x18), (1, 0x20), (1, 0x80), (24, 1), (27, 1), (1, 8)] {
        let mut bytes = bytes_of(&put(b"key", b"value", 5), 9, 64);
        bytes[at] = value;
        // With a checksum that agrees: written so, not rotten.
        let crc = SECRET.identity(9, 64).crc(&[&bytes[..28], b"key"]);
        bytes[28..32].copy_from_slice(&crc.to_le_bytes());
        let read = RecordView::parse(&bytes, &SECRET.identity(9, 64));
        assert_eq!(read.expect_err("unknown"), Damage::Header, "byte {at} = {value}");
    }
}

#[test]
fn claims_of_hostile_headers_are_only_numbers() {
    assert_eq!(claimed_bytes(&[0xff; RECORD_HEADER_BYTES - 1]), None);
    let largest = RECORD_HEADER_BYTES + 8 + 1 + MAX_KEY_BYTES + u32::MAX as usize;
    assert_eq!(claimed_bytes(&[0xff; RECORD_HEADER_BYTES]), Some(largest));
    assert_eq!(claimed_bytes(&[0; RECORD_HEADER_BYTES]), Some(RECORD_HEADER_BYTES + 1));
    assert_eq!(claimed_head_bytes(&[0xff; RECORD_HEADER_BYTES - 1]), None);
    let longest = RECORD_HEADER_BYTES + 8 + 1 + MAX_KEY_BYTES;
    assert_eq!(claimed_head_bytes(&[0xff; RECORD_HEADER_BYTES]), Some(longest));
}
