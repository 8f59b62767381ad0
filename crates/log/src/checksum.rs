//! Checksums and key digests, all keyed by the store's secret.
//!
//! *Headers* (record, frame, footer, superblock) carry a CRC32C over their bytes and their **identity**: store,
//! segment, offset. A block that the device returned from the wrong place, or that an earlier segment left behind,
//! fails the check. *Long values* carry an XXH3-64 seeded with the store's salt, bound to the record by its header. The
//! XXH3-64 of a *small value* is seeded with the CRC of its header as well, and covers both. *Keys* are digested by
//! SipHash-1-3-128, of which 112 bits are used, so that a client cannot choose colliding keys.

use esker_index::{KeyHash, Keyspace};
use std::hash::Hasher;

use esker_seeded_bugs::{Bug, planted};
use siphasher::sip128::SipHasher13;
use twox_hash::{XxHash3_64, xxhash3_64};

/// Maximum length in bytes of a value that is checked together with its header.
pub const SMALL_VALUE_BYTES: usize = 512;

/// Secret that makes the checksums of one store differ from those of every other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Secret {
    /// SipHash key of the key digest.
    pub digest_key: [u64; 2],
    /// Seed of the checksums.
    pub salt: u64,
}

/// Position of a header, which its checksum covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The store's salt.
    pub salt: u64,
    /// The segment's number, never reused.
    pub segment: u64,
    /// Byte offset in the segment.
    pub offset: u32,
}

impl Secret {
    /// Returns the digest of a key in a keyspace.
    pub fn key_hash(&self, keyspace: Keyspace, key: &[u8]) -> KeyHash {
        let bits = SipHasher13::new_with_keys(self.digest_key[0], self.digest_key[1]).hash(key);
        kept(bits.h1, bits.h2).in_keyspace(keyspace)
    }

    /// Returns the checksum of a value, or `None` for a small value, which has none of its own.
    pub fn value_check(&self, value: &[u8]) -> Option<u64> {
        (value.len() > SMALL_VALUE_BYTES).then(|| self.check(value))
    }

    /// Returns the checksum of bytes, bound only to the store.
    pub(crate) fn check(&self, bytes: &[u8]) -> u64 {
        XxHash3_64::oneshot_with_seed(self.salt, bytes)
    }

    /// Returns a hasher for the checksum of a value that arrives in pieces.
    pub fn value_hasher(&self) -> ValueHasher {
        ValueHasher(xxhash3_64::Hasher::with_seed(self.salt))
    }

    /// Returns the checksum of a summary's entries, bound to their segment.
    pub fn summary_check(&self, segment: u64, entries: &[u8]) -> u64 {
        XxHash3_64::oneshot_with_seed(self.salt ^ segment.wrapping_mul(0x9e37_79b9_7f4a_7c15), entries)
    }

    /// Returns the identity of the header at `offset` of segment `segment`.
    pub fn identity(&self, segment: u64, offset: u32) -> Identity {
        Identity { salt: self.salt, segment, offset }
    }
}

/// Incremental checksum of a value.
pub struct ValueHasher(xxhash3_64::Hasher);

impl ValueHasher {
    /// Adds the next piece.
    pub fn add(&mut self, piece: &[u8]) {
        self.0.write(piece);
    }

    /// Returns the checksum of all pieces, as [`Secret::value_check`] computes it for a long value.
    pub fn finish(&self) -> u64 {
        self.0.finish()
    }
}

/// Builds a digest from the two halves of a hash. Only 48 bits of the first half are kept, to shorten summaries. They
/// choose shard and stored hash, which need 41 bits. The lowest bits repeat the highest, because tests use them alone.
#[inline]
pub fn kept(first: u64, check: u64) -> KeyHash {
    let slot = first & !0xffff;
    KeyHash { slot: slot | slot >> 48, check }
}

impl Identity {
    /// Returns the checksum of a record with a small value, whose head and key have the CRC `crc` here.
    #[inline]
    pub(crate) fn small_check(&self, crc: u32, value: &[u8]) -> u64 {
        let seed = self.salt.wrapping_add(u64::from(crc).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        XxHash3_64::oneshot_with_seed(seed, value)
    }

    /// Returns the CRC32C over the identity and `parts`.
    #[inline]
    pub fn crc(&self, parts: &[&[u8]]) -> u32 {
        crc(self.salt, self.segment, self.offset, parts)
    }
}

/// The numbers are passed in registers, for the reason given at [`Words`]: callers store the fields of an identity one
/// by one, and inlined code would load two of them at once.
#[inline(never)]
fn crc(salt: u64, segment: u64, offset: u32, parts: &[&[u8]]) -> u32 {
    let mut words = Words::new();
    if planted(Bug::UnsaltedChecksum) {
        words.add(&[0; 20]);
    } else {
        words.add_word(salt);
        words.add_word(segment);
        words.add_bits(u64::from(offset), u32::BITS);
    }
    parts.iter().for_each(|part| words.add(part));
    words.take()
}

const WORD_BYTES: usize = 8;
const TOGETHER_BYTES: usize = 128;

/// Bytes to be fed into a CRC32C. Short parts are joined first, because starting the checksum costs as much as a
/// hundred bytes of it. They are joined in whole words, because the checksum reads whole words: loading a word that was
/// stored in two pieces stalls until both stores, and all stores before them, have reached the cache.
struct Words {
    together: Aligned,
    /// Number of bytes in `together`: whole words.
    bytes: usize,
    /// Incomplete word, and its number of bits.
    rest: u64,
    rest_bits: u32,
    /// CRC of all words that were flushed before.
    crc: u32,
}

#[repr(align(8))]
struct Aligned([u8; TOGETHER_BYTES]);

impl Words {
    fn new() -> Words {
        Words { together: Aligned([0; TOGETHER_BYTES]), bytes: 0, rest: 0, rest_bits: 0, crc: 0 }
    }

    #[inline]
    fn add(&mut self, part: &[u8]) {
        if part.len() > TOGETHER_BYTES {
            self.crc = crc32c::crc32c_append(self.take(), part);
            return;
        }
        let (words, tail) = part.as_chunks::<WORD_BYTES>();
        words.iter().for_each(|word| self.add_word(u64::from_le_bytes(*word)));
        if tail.is_empty() {
            return;
        }
        let bits = tail.len() as u32 * u8::BITS;
        match part.last_chunk::<WORD_BYTES>() {
            // One load instead of one per byte.
            Some(last) => self.add_bits(u64::from_le_bytes(*last) >> (u64::BITS - bits), bits),
            None => {
                self.add_bits(tail.iter().rev().fold(0, |all, &byte| all << u8::BITS | u64::from(byte)), bits)
            }
        }
    }

    #[inline]
    fn add_word(&mut self, word: u64) {
        self.store(self.rest | word << self.rest_bits);
        // Shifted in two steps, because a shift by all 64 bits is invalid.
        self.rest = word >> 1 >> (u64::BITS - 1 - self.rest_bits);
    }

    /// Adds less than a word: the lowest `bits` bits of `word`; the others are zero.
    #[inline]
    fn add_bits(&mut self, word: u64, bits: u32) {
        if self.rest_bits + bits < u64::BITS {
            self.rest |= word << self.rest_bits;
            self.rest_bits += bits;
        } else {
            self.add_word(word);
            self.rest_bits = self.rest_bits + bits - u64::BITS;
        }
    }

    #[inline]
    fn store(&mut self, word: u64) {
        if self.bytes == TOGETHER_BYTES {
            self.crc = crc32c::crc32c_append(self.crc, &self.together.0);
            self.bytes = 0;
        }
        self.together.0[self.bytes..self.bytes + WORD_BYTES].copy_from_slice(&word.to_le_bytes());
        self.bytes += WORD_BYTES;
    }

    /// Returns the checksum so far, and leaves no byte buffered.
    fn take(&mut self) -> u32 {
        let bits = std::mem::take(&mut self.rest_bits) as usize;
        if bits > 0 {
            let rest = std::mem::take(&mut self.rest);
            self.store(rest);
            self.bytes -= WORD_BYTES - bits / 8;
        }
        let bytes = std::mem::take(&mut self.bytes);
        crc32c::crc32c_append(self.crc, &self.together.0[..bytes])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_parts_is_that_of_all_bytes_together() {
        let bytes: Vec<u8> = (0..1000_u32).map(|at| (at * 7 % 251) as u8).collect();
        let identity = Identity { salt: 0x0123_4567_89ab_cdef, segment: 77, offset: 4096 };
        let mut start = identity.salt.to_le_bytes().to_vec();
        start.extend(identity.segment.to_le_bytes());
        start.extend(identity.offset.to_le_bytes());
        let all = [0, 1, 3, 4, 7, 8, 9, 16, 28, 31, 80, 107, 108, 109, 127, 128, 129, 136, 500];
        let lengths = if cfg!(miri) { &all[..8] } else { &all[..] };
        for &first in lengths {
            for &second in lengths {
                for third in [0, 5, 16, 200] {
                    let (a, rest) = bytes.split_at(first);
                    let (b, rest) = rest.split_at(second.min(rest.len()));
                    let parts = [a, b, &rest[..third.min(rest.len())]];
                    let all = [&start[..], &parts.concat()].concat();
                    assert_eq!(identity.crc(&parts), crc32c::crc32c(&all), "{first} {second} {third}");
                }
            }
        }
    }
}
