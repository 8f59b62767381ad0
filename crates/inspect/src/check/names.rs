//! The name of a key whose record does not verify.
//!
//! The summary says the key's digest, and the record where the key should be. So whatever gives that digest is the key: the
//! bytes there as the header says, or with another length, or with one bit turned back.

use esker_log::{Databases, Entry, KeyHash, RECORD_HEADER_BYTES, Secret, claimed_head_bytes, keyspace_bytes};

use crate::key::Key;

/// Longest key of which every length is tried.
const LENGTHS: usize = 2048;
/// Longest key of which every bit is tried.
const BITS_OF: usize = 512;

/// The key of a record that begins at the start of `bytes`.
pub(super) fn key_of(entry: &Entry, bytes: &[u8], secret: &Secret, databases: &Databases) -> Key {
    let keyspace = entry.key_hash.keyspace();
    let head =
        RECORD_HEADER_BYTES + if entry.expires_at_ms.is_some() { 8 } else { 0 } + keyspace_bytes(keyspace);
    let space = bytes.get(head..entry.bytes as usize).unwrap_or(&[]);
    let claimed = claimed_head_bytes(bytes).and_then(|bytes| bytes.checked_sub(head)).unwrap_or(0);
    let is_it = |key: &[u8]| secret.key_hash(keyspace, key) == entry.key_hash;
    let lengths = std::iter::once(claimed).chain(1..=space.len().min(LENGTHS));
    let whole = lengths.filter_map(|length| space.get(..length)).find(|key| is_it(key));
    if let Some(key) = whole {
        return Key::named(databases.database(keyspace), key);
    }
    let turned = space
        .get(..claimed)
        .filter(|key| key.len() <= BITS_OF)
        .and_then(|key| turned(key, secret, entry.key_hash));
    match turned {
        Some(key) => Key::named(databases.database(keyspace), &key),
        None => Key::of_digest(databases, &entry.key_hash),
    }
}

/// The key that differs in one bit.
fn turned(key: &[u8], secret: &Secret, wanted: KeyHash) -> Option<Vec<u8>> {
    let mut key = key.to_vec();
    for bit in 0..8 * key.len() {
        key[bit / 8] ^= 1 << (bit % 8);
        if secret.key_hash(wanted.keyspace(), &key) == wanted {
            return Some(key);
        }
        key[bit / 8] ^= 1 << (bit % 8);
    }
    None
}

#[cfg(test)]
mod tests {
    use esker_log::{Identity, Keyspace, Kind, Record};

    use super::*;

    #[test]
    fn a_key_is_named_whatever_hit_its_record() {
        for number in [0, 3] {
            let keyspace = Keyspace::new(number).expect("one of sixteen");
            let (secret, databases) =
                (Secret { digest_key: [1, 2], salt: 3 }, Databases::default().swapped(3, 4));
            let key = b"a key of some length";
            let record = Record {
                kind: Kind::Put,
                keyspace,
                key,
                value: b"and a value",
                compressed: None,
                value_check: 0,
                sequence: 7,
                expires_at_ms: Some(5),
                batch_goes_on: false,
                short_lived: false,
            };
            let header = record.encode_header(&Identity { salt: 3, segment: 1, offset: 64 });
            let bytes = [&header[..], key, b"and a value"].concat();
            let entry = Entry {
                key_hash: secret.key_hash(keyspace, key),
                sequence: 7,
                offset: 64,
                bytes: bytes.len() as u32,
                kind: Kind::Put,
                expansion: 0,
                expires_at_ms: Some(5),
            };
            let named = Key::named(if number == 3 { 4 } else { 0 }, key);
            assert_eq!(key_of(&entry, &bytes, &secret, &databases), named);
            for bit in 0..8 * (header.len() + key.len()) {
                let mut hit = bytes.clone();
                hit[bit / 8] ^= 1 << (bit % 8);
                // With a bit of the key and its length both unknown there is no name.
                assert_eq!(key_of(&entry, &hit, &secret, &databases), named, "bit {bit}");
            }
            let gone = vec![0; bytes.len()];
            let unnamed = Key::of_digest(&databases, &entry.key_hash);
            assert_eq!(key_of(&entry, &gone, &secret, &databases), unnamed);
        }
    }
}
