//! Values that identify their key and their write.

use esker_simulated::Random;

/// Content of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    /// Incompressible.
    Noise,
    /// Every other word is noise: compresses to about half.
    Half,
    /// One repeated word: compresses to almost nothing.
    Word,
}

/// Returns an incompressible value that identifies its key and its write.
pub fn value(key: &[u8], stamp: u64, bytes: usize) -> Vec<u8> {
    filled(key, stamp, bytes, Fill::Noise)
}

/// As [`value`], with content of any kind, determined by the stamp.
pub fn any_value(key: &[u8], stamp: u64, bytes: usize) -> Vec<u8> {
    filled(key, stamp, bytes, fill_of(stamp))
}

/// Returns the kind of content that [`any_value`] generates for a stamp.
pub(crate) fn fill_of(stamp: u64) -> Fill {
    [Fill::Noise, Fill::Half, Fill::Word][(stamp.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as usize % 3]
}

fn filled(key: &[u8], stamp: u64, bytes: usize, fill: Fill) -> Vec<u8> {
    let bytes = bytes.max(VALUE_BYTES_MIN);
    let length = bytes as u64 | (fill as u64) << FILL_SHIFT;
    let mut value = vec![0; bytes];
    let (head, rest) = value.split_at_mut(VALUE_BYTES_MIN);
    head[..8].copy_from_slice(&stamp.to_le_bytes());
    head[8..16].copy_from_slice(&length.to_le_bytes());
    head[16..].copy_from_slice(&checksum(key, stamp, length).to_le_bytes());
    let mut words = Random::new(stamp ^ checksum(key, 1, 2));
    let repeated = words.bits();
    for (number, place) in rest.chunks_mut(8).enumerate() {
        let is_noise = match fill {
            Fill::Noise => true,
            Fill::Half => (VALUE_BYTES_MIN + 8 * number) % 128 < 64,
            Fill::Word => false,
        };
        let word = if is_noise { words.bits() } else { repeated }.to_le_bytes();
        place.copy_from_slice(&word[..place.len()]);
    }
    value
}

/// Position of the content kind in a value's second word, in bits.
const FILL_SHIFT: u32 = 56;

/// Minimum length in bytes of a value that identifies its key.
pub const VALUE_BYTES_MIN: usize = 24;

/// Returns the stamp of a value that was read under a key. Panics if that value was never written under the key.
pub fn stamp_of(key: &[u8], found: &[u8]) -> u64 {
    let named = || String::from_utf8_lossy(&key[..key.len().min(24)]).into_owned();
    assert!(found.len() >= VALUE_BYTES_MIN, "{}: a value of {} bytes", named(), found.len());
    let stamp = u64::from_le_bytes(found[..8].try_into().expect("eight bytes"));
    let fill = [Fill::Noise, Fill::Half, Fill::Word].into_iter().find(|fill| *fill as u8 == found[15]);
    let wrote = |fill| filled(key, stamp, found.len(), fill) == found;
    assert!(fill.is_some_and(wrote), "{}: a value that nobody wrote", named());
    stamp
}

fn checksum(key: &[u8], stamp: u64, bytes: u64) -> u64 {
    let mut sum = stamp.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ bytes.rotate_left(32);
    for byte in key {
        sum = (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(17);
    }
    sum
}
