use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Written by redis-server 7.0.15: strings in every encoding, and values of every type in most encodings.
const OF_REDIS: &[u8] = include_bytes!("testdata/redis-7.0.15.rdb");

const LIMITS: Limits = Limits { key_bytes_max: 1 << 10, value_bytes_max: 1 << 20 };

fn all(mut file: &[u8], limits: Limits) -> Result<Vec<Entry>> {
    let mut reader = Reader::new(&mut file, limits)?;
    let mut entries = Vec::new();
    while let Some(entry) = reader.read()? {
        entries.push(entry);
    }
    assert_eq!(reader.read().unwrap(), None, "the end stays the end");
    Ok(entries)
}

/// Returns a file without a checksum.
fn file(version: &str, body: &[u8]) -> Vec<u8> {
    [version.as_bytes(), body, &[EOF], &[0; 8]].concat()
}

/// Returns the only value of such a file.
fn value_of(body: &[u8]) -> Value {
    let mut entries = all(&file("REDIS0012", body), LIMITS).unwrap();
    assert_eq!(entries.len(), 1);
    entries.remove(0).value
}

#[test]
fn redis_file_is_read_and_non_strings_are_named() {
    let entries = all(OF_REDIS, LIMITS).unwrap();
    let (mut strings, mut others) = (BTreeMap::new(), BTreeMap::<String, usize>::new());
    for Entry { database, key, value, expires_at_ms } in entries {
        match value {
            Value::String(value) => {
                drop(strings.insert((database, String::from_utf8(key).unwrap()), (value, expires_at_ms)))
            }
            Value::Other(kind) => *others.entry(kind.to_string()).or_default() += 1,
            other => panic!("{other:?}"),
        }
    }
    let take = |strings: &mut BTreeMap<_, _>, database, key: &str| {
        strings.remove(&(database, key.to_owned())).unwrap_or_else(|| panic!("{key} is missing"))
    };
    for number in ["0", "-1", "127", "-128", "32767", "-32768", "2147483647", "-2147483648", "2147483648"] {
        assert_eq!(take(&mut strings, 0, &format!("int:{number}")), (number.as_bytes().to_vec(), None));
    }
    assert_eq!(take(&mut strings, 0, "plain"), (b"hello".to_vec(), None));
    assert_eq!(take(&mut strings, 0, "empty"), (Vec::new(), None));
    assert_eq!(take(&mut strings, 0, "bytes"), (b"a\xff\r\n\"".to_vec(), None));
    assert_eq!(take(&mut strings, 0, "long"), (b"abcdefghij".repeat(200), None));
    assert_eq!(take(&mut strings, 0, "long64"), (vec![b'x'; 20_000], None));
    assert_eq!(take(&mut strings, 0, "noise").0.len(), 300);
    assert_eq!(take(&mut strings, 0, "expiring"), (b"soon".to_vec(), Some(4_102_444_800_123)));
    assert_eq!(take(&mut strings, 3, "other"), (b"db".to_vec(), None));
    assert!(take(&mut strings, 3, "used").1.is_some(), "it expires");
    assert_eq!(strings, BTreeMap::new());
    let expected = [("hash", 2), ("list", 3), ("set", 3), ("sorted set", 2), ("stream", 1)];
    assert_eq!(others, expected.map(|(kind, count)| (kind.to_owned(), count)).into());
    let mut reader = Reader::new(OF_REDIS, LIMITS).unwrap();
    while reader.read().unwrap().is_some() {}
    assert_eq!((reader.version(), reader.functions(), reader.offset()), (10, 1, OF_REDIS.len() as u64));
}

/// From version 80 on, Valkey has type numbers of its own: 22 is a hash with an expiry after each field.
#[test]
fn valkey_types_are_named() {
    let field = |name: u8, expires_at: i64| [&[1, name, 1, b'v'][..], &expires_at.to_le_bytes()].concat();
    let hash = [&[22, 1, b'k', 2][..], &field(b'f', -1), &field(b'g', 4_102_444_800_123)].concat();
    // Slots in migration: a name, and ranges.
    let slots = [243, 1, b'j', 2, 0, 0x40, 99, 0x40, 200, 0x41, 0];
    let string = [STRING, 1, b's', 1, b'v'];
    let entries = all(&file("VALKEY080", &[&slots[..], &hash, &string].concat()), LIMITS).unwrap();
    let values: Vec<_> = entries.into_iter().map(|entry| entry.value).collect();
    assert_eq!(values, [Value::Other(Kind::Hash), Value::String(b"v".to_vec())]);
    for unknown in [23, 24, 25, 26] {
        let body = [&[unknown, 1, b'k', 1, 7][..], &string].concat();
        let error = all(&file("VALKEY081", &body), LIMITS).unwrap_err();
        assert!(matches!(error, Error::Unknown { version: 81, .. }), "{error}");
    }
}

/// Contents that Redis 7.0 does not write: older and newer encodings, and module values.
#[test]
fn values_of_other_versions_are_skipped() {
    let of = |kind: u8, value: &[u8]| value_of(&[&[kind, 1, b'k'][..], value].concat());
    for (kind, name) in
        [(9, Kind::Hash), (10, Kind::List), (11, Kind::Set), (12, Kind::SortedSet), (23, Kind::Hash)]
    {
        assert_eq!(of(kind, &[2, 7, 7]), Value::Other(name));
    }
    // Decimal scores, and one that is not a number.
    assert_eq!(of(3, &[2, 1, b'a', 3, b'1', b'.', b'5', 1, b'b', 253]), Value::Other(Kind::SortedSet));
    assert_eq!(of(14, &[2, 1, 7, 1, 8]), Value::Other(Kind::List));
    // A field with an expiry, and one without.
    let fields = [2, 0, 1, b'f', 1, b'v', 0x40, 200, 1, b'g', 1, b'w'];
    assert_eq!(of(22, &fields), Value::Other(Kind::Hash));
    assert_eq!(of(24, &[&[9; 8][..], &fields].concat()), Value::Other(Kind::Hash));
    assert_eq!(of(25, &[&[9; 8][..], &[1, 7]].concat()), Value::Other(Kind::Hash));
    // Streams: a listpack; lengths; a group with an entry pending at a consumer.
    let group = |of: usize, times: usize| {
        let lengths = vec![1; if of == 15 { 3 } else { 8 }];
        let group = [&[1, 1, b'g'][..], &vec![1; if of == 15 { 2 } else { 3 }]].concat();
        let pending = [&[1][..], &[7; 24], &[1]].concat();
        let consumer = [&[1, 1, b'c'][..], &vec![7; times * 8], &[1], &[7; 16]].concat();
        [&[1, 1, 7, 1, 7][..], &lengths, &group, &pending, &consumer].concat()
    };
    assert_eq!(of(15, &group(15, 1)), Value::Other(Kind::Stream));
    assert_eq!(of(19, &group(19, 1)), Value::Other(Kind::Stream));
    assert_eq!(of(21, &group(21, 2)), Value::Other(Kind::Stream));
    // Producers with their entries, as in Redis 8.6; and entries without a consumer, as in 8.8.
    let producers = [9, 0x40, 100, 1, 1, b'p', 2, 1, b'a', 7, 0, 1, b'b', 8, 1, 2, 0];
    assert_eq!(of(26, &[&group(21, 2)[..], &producers].concat()), Value::Other(Kind::Stream));
    let free = [&[2][..], &[7; 32]].concat();
    assert_eq!(of(27, &[&group(21, 2)[..], &free, &producers].concat()), Value::Other(Kind::Stream));
    // A module's value, of every type of piece: "ReJSON-RL", version 3.
    let id = "ReJSON-RL".bytes().fold(0_u64, |id, byte| {
        let characters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        id << 6 | characters.iter().position(|&one| one == byte).unwrap() as u64
    });
    let id = [&[0x81][..], &(id << 10 | 3).to_be_bytes()].concat();
    let pieces = [1, 5, 2, 6, 3, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 5, 1, b's', 0];
    assert_eq!(of(7, &[&id[..], &pieces].concat()), Value::Other(Kind::Module("ReJSON-RL".to_owned())));
    // Opcodes between entries.
    let between = [
        &[RESIZE, 1, 1, AUX, 1, b'a', 0xc0, 1, SLOT_INFO, 1, 1, 1, FUNCTION, 1, b'f', MODULE_AUX][..],
        &id,
        &[2, 2],
        &pieces,
        &[FUNCTION_EARLY, 1, b'n', 1, b'e', 1, 1, b'd', 1, b'c'],
        // Module metadata of the key that follows.
        &[243, 2, 1, 2, 3, 4],
        &pieces,
        &[5, 6, 7, 8, 0],
        &[EXPIRES_AT_S, 1, 0, 0, 0, IDLE, 0x40, 100, FREQUENCY, 9, STRING, 1, b'k', 1, b'v'],
    ]
    .concat();
    let entry = &all(&file("REDIS0011", &between), LIMITS).unwrap()[0];
    assert_eq!((entry.expires_at_ms, &entry.value), (Some(1000), &Value::String(b"v".to_vec())));
}

#[test]
fn values_beyond_limits_are_skipped() {
    let limits = Limits { key_bytes_max: 9, value_bytes_max: 1999 };
    let entries = all(OF_REDIS, limits).unwrap();
    let lengths = |entry: &Entry| match entry.value {
        Value::TooLong { bytes } => Some(bytes),
        Value::KeyTooLong { bytes } => Some(bytes),
        _ => None,
    };
    let mut lengths: Vec<_> = entries.iter().filter_map(lengths).collect();
    lengths.sort_unstable();
    assert_eq!(lengths, [10, 14, 14, 15, 2000, 20_000]);
}

#[test]
fn invalid_files_are_refused_with_reason() {
    let refused = |file: &[u8]| all(file, LIMITS).unwrap_err().to_string();
    for other in [&b""[..], b"REDIS", b"REDIS00x1", b"\x7fELF\x02\x01\x01\0\0\0"] {
        assert!(refused(other).contains("not an RDB file"), "{other:?}");
    }
    assert!(all(&file("VALKEY080", &[]), LIMITS).unwrap().is_empty());
    let newer = refused(&file("REDIS0099", &[99, 1, b'k', 1]));
    assert!(newer.contains("unknown value type 99 at byte 9") && newer.contains("version 99"), "{newer}");
    assert!(refused(&file("REDIS0012", &[242])).contains("opcode 242 at byte 9"));
    let mut damaged = OF_REDIS.to_vec();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    assert!(refused(&damaged).contains("checksum"));
    // A length without content, of a string and of a list.
    for body in [
        &[STRING, 1, b'k', 0x81, 0, 0xff, 0, 0, 0, 0, 0, 0][..],
        &[1, 1, b'k', 0x81, 0xff, 0, 0, 0, 0, 0, 0, 0],
    ] {
        assert!(refused(&[b"REDIS0012", body].concat()).contains("ends early, at byte 21"));
    }
}

#[test]
fn truncated_file_ends_early() {
    for end in 9..OF_REDIS.len() {
        let error = all(&OF_REDIS[..end], LIMITS).unwrap_err();
        assert!(matches!(error, Error::EndsEarly { offset } if offset <= end as u64), "{end}: {error}");
    }
}

proptest! {
    /// Without the checksum, so that the bytes after a change are parsed.
    #[test]
    fn mutated_file_is_read_or_refused(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut changed = OF_REDIS.to_vec();
        let checksum = changed.len() - 8;
        changed[checksum..].fill(0);
        for (at, byte) in changes {
            let at = at.index(changed.len());
            changed[at] = byte;
        }
        check_bounds(&changed)?;
    }

    #[test]
    fn arbitrary_bytes_are_read_or_refused(body: Vec<u8>) {
        check_bounds(&file("REDIS0012", &body))?;
    }
}

fn check_bounds(file: &[u8]) -> Result<(), TestCaseError> {
    for entry in all(file, LIMITS).unwrap_or_default() {
        prop_assert!(entry.key.len() as u64 <= LIMITS.key_bytes_max);
        if let Value::String(value) = entry.value {
            prop_assert!(value.len() as u64 <= LIMITS.value_bytes_max);
        }
    }
    Ok(())
}
