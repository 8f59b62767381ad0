//! Values that say where they belong.

use esker_world::Random;

/// A fingerprint of a value: of the key that it belongs to and which write of it made it.
pub fn value(key: &[u8], stamp: u64, bytes: usize) -> Vec<u8> {
    let bytes = bytes.max(VALUE_BYTES_MIN);
    let mut value = Vec::with_capacity(bytes);
    value.extend_from_slice(&stamp.to_le_bytes());
    value.extend_from_slice(&(bytes as u64).to_le_bytes());
    value.extend_from_slice(&checksum(key, stamp, bytes as u64).to_le_bytes());
    let mut fill = Random::new(stamp ^ checksum(key, 1, 2));
    while value.len() < bytes {
        let word = fill.bits().to_le_bytes();
        value.extend_from_slice(&word[..word.len().min(bytes - value.len())]);
    }
    value
}

/// Bytes of the shortest value that says where it belongs.
pub const VALUE_BYTES_MIN: usize = 24;

/// The stamp of a value that was read under a key; panics if it was never written under it.
pub fn stamp_of(key: &[u8], found: &[u8]) -> u64 {
    let named = || String::from_utf8_lossy(&key[..key.len().min(24)]).into_owned();
    assert!(found.len() >= VALUE_BYTES_MIN, "{}: a value of {} bytes", named(), found.len());
    let stamp = u64::from_le_bytes(found[..8].try_into().expect("eight bytes"));
    assert!(value(key, stamp, found.len()) == found, "{}: a value that nobody wrote", named());
    stamp
}

fn checksum(key: &[u8], stamp: u64, bytes: u64) -> u64 {
    let mut sum = stamp.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ bytes.rotate_left(32);
    for byte in key {
        sum = (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(17);
    }
    sum
}
