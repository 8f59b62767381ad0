use esker_log::{
    Claim, Codec, Compressed, Damage, Keyspace, Kind, MAX_KEY_BYTES, RECORD_HEADER_BYTES_MAX, Record,
    RecordHead, RecordView, SMALL_VALUE_BYTES, Secret, keyspace_bytes, raw_field_bytes, record_bytes_max,
    record_header_bytes,
};
use proptest::prelude::*;

use crate::world::{SECRET, bytes_of, put, random};

#[track_caller]
fn comes_back(record: &Record<'_>) {
    let bytes = bytes_of(record, 9, 4160);
    assert_eq!(bytes.len(), record.bytes());
    let (key, value) = (record.key.len(), record.value.len());
    let raw = raw_field_bytes(record.compressed);
    let version =
        record.version.map_or(0, |version| (u64::BITS - (version | 1).leading_zeros()).div_ceil(7) as usize);
    assert!(bytes.len() <= record_bytes_max(key, value, record.expires_at_ms.is_some()) + raw + version);
    let header = record_header_bytes(key, value, record.sequence, record.expires_at_ms)
        + keyspace_bytes(record.keyspace)
        + version
        + raw;
    assert!(header <= RECORD_HEADER_BYTES_MAX);
    let claim = Claim::of(&bytes).expect("a header");
    assert_eq!((claim.bytes, claim.header_bytes, claim.key_bytes), (bytes.len(), header, key));
    assert_eq!(claim.sequence, record.sequence);
    let head = RecordHead::parse(&bytes[..claim.key_known_bytes], &SECRET.identity(9, 4160));
    let head = head.expect("its key can be known");
    assert_eq!((head.key, head.value_offset, head.value_bytes), (record.key, header + key, value));
    assert_eq!((head.keyspace, head.compressed), (record.keyspace, record.compressed));
    let less = RecordHead::parse(&bytes[..claim.key_known_bytes - 1], &SECRET.identity(9, 4160));
    assert_eq!(less.expect_err("it was cut"), Damage::Length);
    // Bytes that follow on the medium do not matter.
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
    // One byte less is an error, wherever it is cut.
    for end in (0..42).chain([bytes.len() / 2, bytes.len() - 1]) {
        if end < bytes.len() {
            let cut = RecordView::parse(&bytes[..end], &SECRET.identity(9, 4160));
            assert_eq!(cut.expect_err("it was cut"), Damage::Length, "cut at {end}");
        }
    }
}

#[test]
fn records_come_back_at_every_boundary_of_their_lengths() {
    let bytes: Vec<u8> = (0..1 << 20).map(|i: u32| ((i * 31) >> 3) as u8).collect();
    for key in [1, 2, 15, 16, 128, 129, 256, 4096, 16_384, 16_385, MAX_KEY_BYTES - 1, MAX_KEY_BYTES] {
        for value in
            [0, 1, 127, 128, SMALL_VALUE_BYTES, SMALL_VALUE_BYTES + 1, 4096, 16_383, 16_384, 65_536, 1 << 20]
        {
            comes_back(&put(&bytes[..key], &bytes[..value], 1));
        }
    }
    for kind in [Kind::Put, Kind::Tombstone] {
        for sequence in [0, 1, (1 << 40) - 1, 1 << 40, 3 << 40 | 1 << 28, u64::MAX] {
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
        any::<[bool; 3]>(),
        (0..16u8, any::<Option<u16>>()),
    );
    random(
        "any_record_comes_back",
        256,
        strategy,
        |(mut key, value, sequence, expires_at_ms, [goes_on, short_lived, tombstone], (keyspace, longer))| {
            key.push(7);
            let how = |longer: u16| Compressed {
                codec: if longer & 1 == 0 { Codec::Lz4 } else { Codec::Zstd },
                raw_bytes: value.len() as u32 + 1 + u32::from(longer),
            };
            let can_be = !value.is_empty() && !tombstone;
            let kind = if tombstone { Kind::Tombstone } else { Kind::Put };
            comes_back(&Record {
                kind,
                keyspace: Keyspace::new(keyspace).expect("one of sixteen"),
                compressed: longer.filter(|_| can_be).map(how),
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
    assert_eq!(first.len(), record_header_bytes(3, 5, 1, None) + 3 + 5);
    // Behind the flags, two lengths and two numbers.
    const AT: usize = 5;
    for keyspace in Keyspace::all().skip(1) {
        let record = Record { keyspace, ..put(b"key", b"value", 1) };
        let mut bytes = bytes_of(&record, 9, 64);
        assert_eq!(bytes.len(), first.len() + 1);
        assert_eq!(bytes[AT], keyspace.number());
        // This version has sixteen keyspaces, and the first is not written.
        for number in [0, 16, 255] {
            bytes[AT] = number;
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
fn record_version_comes_back_and_is_kept_when_the_record_moves() {
    let without = bytes_of(&put(b"key", b"value", 3 << 40 | 5), 9, 64);
    for (version, bytes) in [(0, 1), (127, 1), (128, 2), (u64::MAX, 10)] {
        let record = Record { version: Some(version), ..put(b"key", b"value", 3 << 40 | 5) };
        comes_back(&record);
        let written = bytes_of(&record, 9, 64);
        assert_eq!((written.len(), record.bytes()), (without.len() + bytes, without.len() + bytes));
        let read = RecordView::parse(&written, &SECRET.identity(9, 64)).expect("a record");
        assert_eq!(
            (read.version, read.sequence, read.to_record().version),
            (Some(version), 3 << 40 | 5, Some(version))
        );
        assert_eq!(Claim::epoch_of(&written), Some(3));
    }
    let read = RecordView::parse(&without, &SECRET.identity(9, 64)).expect("a record");
    assert_eq!(read.version, None);
}

#[test]
fn record_of_the_log_is_read_as_written_and_kind_0_is_refused() {
    let mut bytes = bytes_of(&Record { kind: Kind::Log, ..put(b"key", b"value", 1) }, 9, 64);
    let read = RecordView::parse(&bytes, &SECRET.identity(9, 64)).expect("a record");
    assert_eq!((read.kind, read.key, read.value), (Kind::Log, &b"key"[..], &b"value"[..]));
    bytes[0] &= !3;
    assert_eq!(RecordView::parse(&bytes, &SECRET.identity(9, 64)).expect_err("kind 0"), Damage::Header);
    assert_eq!((Claim::of(&bytes), Claim::epoch_of(&bytes)), (None, None));
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
    let shrunk = Some(Compressed { codec: Codec::Zstd, raw_bytes: 5000 });
    for (expires_at_ms, keyspace, compressed, value) in [
        (None, Keyspace::FIRST, None, vec![]),
        (None, fifth, shrunk, vec![0x5a; 100]),
        (Some(77), Keyspace::FIRST, None, vec![0; 40]),
        (Some(77), fifth, None, vec![]),
        (None, Keyspace::FIRST, shrunk, vec![0; 600]),
        (Some(77), fifth, None, vec![9; 513]),
    ] {
        let record = Record { expires_at_ms, keyspace, compressed, ..put(b"some key", &value, 1 << 40) };
        let whole = bytes_of(&record, 9, 64);
        let value_at = whole.len() - value.len();
        let is_long = value.len() > SMALL_VALUE_BYTES;
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            // Adds enough bytes for a length that grew, so that the end of the buffer does not detect the damage.
            bytes.resize(bytes.len() + (1 << 17), 0);
            match RecordView::parse(&bytes, &SECRET.identity(9, 64)) {
                Err(_) => assert!(bit / 8 < value_at || !is_long, "bit {bit} of the value hid its key"),
                Ok(read) => {
                    assert!(bit / 8 >= value_at && is_long, "bit {bit} was not noticed");
                    assert_eq!(read.verify_value(&SECRET), Err(Damage::Value), "bit {bit}");
                    assert_eq!(read.key, record.key, "the error can name the key");
                }
            }
        }
    }
}

/// A part of the bytes read may be older than the rest: a block whose write was lost. An older value of the same key in
/// the same place must not be accepted as the current one.
#[test]
fn older_value_of_same_key_and_place_does_not_verify() {
    for bytes in [100, 600] {
        let (older, newer) = (vec![1; bytes], vec![2; bytes]);
        let old = bytes_of(&put(b"key", &older, 5), 9, 4160);
        for (segment, sequence) in [(9, 6), (10, 5), (10, 6)] {
            let new = bytes_of(&put(b"key", &newer, sequence), segment, 4160);
            assert_eq!(old.len(), new.len());
            for from in 1..new.len() {
                let mixed = [&new[..from], &old[from..]].concat();
                if segment == 9 && mixed == old {
                    continue;
                }
                let read = RecordView::parse(&mixed, &SECRET.identity(segment, 4160));
                let read = read.and_then(|read| read.verify_value(&SECRET));
                assert!(read.is_err(), "{bytes} bytes, older from byte {from} on");
            }
        }
    }
}

#[test]
fn a_record_verifies_only_where_it_was_written() {
    for (value, damage) in [(&[7; 5][..], Damage::Record), (&[7; 600], Damage::Header)] {
        let bytes = bytes_of(&put(b"key", value, 5), 9, 4160);
        let header_error = |secret: &Secret, segment, offset| {
            RecordView::parse(&bytes, &secret.identity(segment, offset)).expect_err("not its place")
        };
        assert!(RecordView::parse(&bytes, &SECRET.identity(9, 4160)).is_ok());
        for bit in 0..64 {
            assert_eq!(header_error(&SECRET, 9 ^ 1 << bit, 4160), damage);
            let other_store = Secret { salt: SECRET.salt ^ 1 << bit, ..SECRET };
            assert_eq!(header_error(&other_store, 9, 4160), damage);
        }
        for bit in 0..32 {
            assert_eq!(header_error(&SECRET, 9, 4160 ^ 1 << bit), damage);
        }
        // Segment and offset cannot be swapped.
        assert_eq!(header_error(&SECRET, 4160, 9), damage);
    }
}

#[test]
fn a_value_of_another_store_does_not_verify() {
    let value = [3; 600];
    let bytes = bytes_of(&put(b"key", &value, 5), 9, 64);
    let read = RecordView::parse(&bytes, &SECRET.identity(9, 64)).expect("it is whole");
    let other = Secret { salt: SECRET.salt + 1, ..SECRET };
    assert_eq!(read.verify_value(&other), Err(Damage::Value));
}

#[test]
fn record_with_unknown_flags_is_refused() {
    let whole = bytes_of(&put(b"key", b"value", 5), 9, 64);
    // No kind, without and with an expiry, and a value with the long flag.
    for flags in [0, 1 << 2, 1 << 5 | 1] {
        let mut bytes = whole.clone();
        bytes[0] = flags;
        bytes.resize(100, 0);
        let read = RecordView::parse(&bytes, &SECRET.identity(9, 64));
        assert_eq!(read.expect_err("unknown"), Damage::Header, "flags {flags}");
    }
}

/// A header with flags and numbers, followed by more bytes than any header has.
fn header_of(flags: u8, numbers: &[u64]) -> Vec<u8> {
    let mut bytes = vec![flags];
    for &number in numbers {
        let mut number = number;
        while number >= 0x80 {
            bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
    }
    bytes.resize(100, 7);
    bytes
}

#[test]
fn claims_of_hostile_headers_are_only_numbers() {
    for byte in 0..=u8::MAX {
        for len in [0, 1, 12, RECORD_HEADER_BYTES_MAX, 100] {
            let bytes = vec![byte; len];
            if let Some(claim) = Claim::of(&bytes) {
                assert!(claim.header_bytes <= RECORD_HEADER_BYTES_MAX.min(len));
                assert!(claim.bytes <= RECORD_HEADER_BYTES_MAX + MAX_KEY_BYTES + u32::MAX as usize);
            }
        }
    }
    // A key of 65,537 bytes, a value of 4 GiB, a number of more than 40 bits, an opening of more than 24.
    let numbers: [&[u64]; 4] =
        [&[65_536, 1, 1, 2], &[1, 1 << 32, 1, 2], &[1, 1, 1 << 40, 2], &[1, 1, 1, 1 << 25]];
    for numbers in numbers {
        assert_eq!(Claim::of(&header_of(1, numbers)), None, "{numbers:?}");
    }
    let most = header_of(1, &[65_535, (1 << 32) - 1, (1 << 40) - 1, 2 * ((1 << 24) - 1)]);
    assert_eq!(Claim::of(&most), None, "it is not called long");
    assert!(
        Claim::of(&header_of(1 | 1 << 5, &[65_535, (1 << 32) - 1, (1 << 40) - 1, 2 * ((1 << 24) - 1)]))
            .is_some()
    );
    // Compressed: without a codec, with an unknown codec, without a length, to a length that is not shorter, an empty
    // value, a length of 4 GiB, and a tombstone.
    let compressed = |kind: u8, value_bytes: u64, raw: u64| {
        Claim::of(&header_of(kind | 1 << 7, &[2, value_bytes, 5, 2, raw])).is_some()
    };
    for raw in [200 << 2, 200 << 2 | 3, 1, 100 << 2 | 1, 1 << 34 | 1] {
        assert!(!compressed(1, 100, raw), "{raw}");
    }
    assert!(!compressed(1, 0, 200 << 2 | 1) && !compressed(2, 100, 200 << 2 | 1));
    for raw in [200 << 2 | 1, 101 << 2 | 2, u64::from(u32::MAX) << 2 | 2] {
        assert!(compressed(1, 100, raw), "{raw}");
    }
}
