//! Maps an element to a register of a HyperLogLog, and to a value that is higher the rarer the pattern of its hash.

use super::sketch::REGISTERS;

/// Bits of a hash that select a register.
const REGISTER_BITS: u32 = REGISTERS.trailing_zeros();

/// Highest register value that a hash produces.
pub(super) const VALUE_MAX: u32 = u64::BITS - REGISTER_BITS + 1;

/// The seed of the hash, the same on all servers.
const SEED: u64 = 0xadc8_3b19;

/// Returns the register of an element, and the minimum value that the element gives it.
pub(super) fn place_of(element: &[u8]) -> (usize, u8) {
    let hash = murmur64a(element, SEED);
    let rest = hash >> REGISTER_BITS;
    let zeros = rest.trailing_zeros().min(VALUE_MAX - 1);
    (hash as usize % REGISTERS, zeros as u8 + 1)
}

/// MurmurHash64A by Austin Appleby, of little-endian words.
fn murmur64a(bytes: &[u8], seed: u64) -> u64 {
    const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
    const SHIFT: u32 = 47;
    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(FACTOR);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let mut mixed = u64::from_le_bytes(*word).wrapping_mul(FACTOR);
        mixed ^= mixed >> SHIFT;
        hash = (hash ^ mixed.wrapping_mul(FACTOR)).wrapping_mul(FACTOR);
    }
    if !rest.is_empty() {
        let tail = rest.iter().rev().fold(0, |tail, byte| tail << 8 | u64::from(*byte));
        hash = (hash ^ tail).wrapping_mul(FACTOR);
    }
    hash ^= hash >> SHIFT;
    hash = hash.wrapping_mul(FACTOR);
    hash ^ hash >> SHIFT
}
