//! Recovers the name of a key whose record does not verify.
//!
//! The summary has the key's digest, and the record states the position of the key. Any byte string with
//! that digest is the key. Candidates are: the bytes that the header names, those with another length,
//! and those with one bit flipped. If all bytes of the record are equal, nothing is tried.

use esker_log::{
    Claim, Databases, Entry, KeyHash, RECORD_HEADER_BYTES_MAX, Secret, SegmentShape, keyspace_bytes,
    record_header_bytes,
};

use crate::key::Key;

/// Longest key for which every length is tried, in bytes.
const LENGTHS: usize = 2048;
/// Longest key for which every bit is flipped, in bytes.
const BITS_OF: usize = 512;

/// Returns the key of the record at the start of `bytes`.
pub(crate) fn key_of(
    entry: &Entry,
    bytes: &[u8],
    secret: &Secret,
    databases: &Databases,
    shape: SegmentShape,
) -> Key {
    // Zeros, or the filler for an unreadable range: the key is lost.
    if bytes.windows(2).all(|pair| pair[0] == pair[1]) {
        return Key::of_digest(databases, &entry.key_hash);
    }
    let keyspace = entry.key_hash.keyspace();
    let is_it = |key: &[u8]| secret.key_hash(keyspace, key) == entry.key_hash;
    let claimed = Claim::key(bytes);
    let tried = (1..=LENGTHS).flat_map(|key| places(entry, key, shape));
    let whole = claimed.into_iter().chain(tried.filter_map(|(at, key)| bytes.get(at..at + key)));
    if let Some(key) = whole.into_iter().find(|key| is_it(key)) {
        return Key::named(databases.database(keyspace), key);
    }
    let short = claimed.filter(|key| key.len() <= BITS_OF);
    match short.and_then(|key| turned(key, secret, entry.key_hash)) {
        Some(key) => Key::named(databases.database(keyspace), &key),
        None => Key::of_digest(databases, &entry.key_hash),
    }
}

/// Returns the possible positions of a key of `key` bytes in a record: after a header whose length
/// matches the rest of the entry, with or without the field for the value's uncompressed length.
fn places(entry: &Entry, key: usize, shape: SegmentShape) -> impl Iterator<Item = (usize, usize)> {
    let Entry { sequence, expires_at_ms, bytes, .. } = *entry;
    let padding = shape.granule_bytes as usize - 1;
    let beside = keyspace_bytes(entry.key_hash.keyspace());
    let fits = move |at: &usize| {
        let Some(longest) = (bytes as usize).checked_sub(at + key) else { return false };
        let plain = |value: usize| beside + record_header_bytes(key, value, sequence, expires_at_ms);
        let fits = |value: usize| (plain(value)..=plain(value) + 5).contains(at);
        fits(longest) || fits(longest.saturating_sub(padding))
    };
    (0..=RECORD_HEADER_BYTES_MAX).filter(fits).map(move |at| (at, key))
}

/// Returns the key with the wanted digest that differs from `key` in one bit.
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
    use esker_log::{Identity, Keyspace, Kind, Record, Tier, TierIdentity};

    use super::*;

    #[test]
    fn a_key_is_named_whatever_hit_its_record() {
        let shape = SegmentShape {
            tier: Tier::Fast,
            segment_bytes: 1 << 20,
            unit_bytes: 4096,
            granule_bytes: 16,
            identity: TierIdentity::NONE,
        };
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
                value_check: None,
                sequence: 7,
                expires_at_ms: Some(5),
                version: None,
                batch_goes_on: false,
                short_lived: false,
            };
            let header = record.encode_header(&Identity { salt: 3, segment: 1, offset: 64 });
            let bytes = [&header[..], key, b"and a value"].concat();
            let entry = Entry {
                key_hash: secret.key_hash(keyspace, key),
                sequence: 7,
                offset: 64,
                bytes: shape.padded(bytes.len()) as u32,
                kind: Kind::Put,
                expansion: 0,
                expires_at_ms: Some(5),
            };
            let named = Key::named(if number == 3 { 4 } else { 0 }, key);
            assert_eq!(key_of(&entry, &bytes, &secret, &databases, shape), named);
            for bit in 0..8 * (header.len() + key.len()) {
                let mut hit = bytes.clone();
                hit[bit / 8] ^= 1 << (bit % 8);
                // With a flipped bit of the key and an unknown length, no name is found.
                assert_eq!(key_of(&entry, &hit, &secret, &databases, shape), named, "bit {bit}");
            }
            let gone = vec![0; bytes.len()];
            let unnamed = Key::of_digest(&databases, &entry.key_hash);
            assert_eq!(key_of(&entry, &gone, &secret, &databases, shape), unnamed);
        }
    }
}
