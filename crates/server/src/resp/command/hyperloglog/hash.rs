//! What an element is in a HyperLogLog: one of the registers, and how rare a pattern its hash has.

use super::sketch::REGISTERS;

/// The bits of a hash that choose a register.
const REGISTER_BITS: u32 = REGISTERS.trailing_zeros();

/// The highest value of a register that a hash leads to.
pub(super) const VALUE_MAX: u32 = u64::BITS - REGISTER_BITS + 1;

/// By which all servers hash elements.
const SEED: u64 = 0xadc8_3b19;

/// The register of an element, and the value that it must have at least.
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
