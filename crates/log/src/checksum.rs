//! Checksums and key digests, all keyed by the store's secret.
//!
//! *Headers* (record, frame, footer, superblock) carry a CRC32C over their **identity** and their bytes: which store, which
//! segment, which offset. A block that the device returned from the wrong place, or that an earlier life of the segment
//! left behind, fails. *Values* carry an XXH3-64 seeded with the store's salt, bound to the record by its header. *Keys*
//! are digested by SipHash-1-3-128, so that a client cannot choose keys that collide.

use esker_index::KeyHash;
use std::hash::Hasher;

use esker_planted::{Bug, planted};
use siphasher::sip128::SipHasher13;
use twox_hash::{XxHash3_64, xxhash3_64};

/// What makes the checksums of one store differ from those of every other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Secret {
    /// Key of the key digest.
    pub digest_key: [u64; 2],
    /// Seed of the checksums.
    pub salt: u64,
}

/// Where a header lies: part of what its checksum covers.
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
    /// The digest of a key.
    pub fn key_hash(&self, key: &[u8]) -> KeyHash {
        let bits = SipHasher13::new_with_keys(self.digest_key[0], self.digest_key[1]).hash(key);
        KeyHash { slot: bits.h1, check: bits.h2 }
    }

    /// The checksum of a value.
    pub fn value_check(&self, value: &[u8]) -> u64 {
        XxHash3_64::oneshot_with_seed(self.salt, value)
    }

    /// Computes the checksum of a value that is at hand in pieces.
    pub fn value_hasher(&self) -> ValueHasher {
        ValueHasher(xxhash3_64::Hasher::with_seed(self.salt))
    }

    /// The checksum of a summary's entries, bound to their segment.
    pub fn summary_check(&self, segment: u64, entries: &[u8]) -> u64 {
        XxHash3_64::oneshot_with_seed(self.salt ^ segment.wrapping_mul(0x9e37_79b9_7f4a_7c15), entries)
    }

    /// The identity of what lies at `offset` of segment `segment`.
    pub fn identity(&self, segment: u64, offset: u32) -> Identity {
        Identity { salt: self.salt, segment, offset }
    }
}

/// The checksum of a value, piece by piece.
pub struct ValueHasher(xxhash3_64::Hasher);

impl ValueHasher {
    /// Takes the next piece.
    pub fn add(&mut self, piece: &[u8]) {
        self.0.write(piece);
    }

    /// The checksum of all pieces together, as [`Secret::value_check`] computes it.
    pub fn finish(&self) -> u64 {
        self.0.finish()
    }
}

impl Identity {
    /// CRC32C over the identity and `parts`.
    pub fn crc(&self, parts: &[&[u8]]) -> u32 {
        // Short parts are put together first: starting the checksum costs as much as a hundred bytes of it.
        let mut together = [0u8; 128];
        together[..8].copy_from_slice(&self.salt.to_le_bytes());
        together[8..16].copy_from_slice(&self.segment.to_le_bytes());
        together[16..20].copy_from_slice(&self.offset.to_le_bytes());
        if planted(Bug::UnsaltedChecksum) {
            together[..20].fill(0);
        }
        let (mut crc, mut bytes) = (0, 20);
        for part in parts {
            if let Some(room) = together[bytes..].get_mut(..part.len()) {
                room.copy_from_slice(part);
                bytes += part.len();
            } else {
                crc = crc32c::crc32c_append(crc, &together[..bytes]);
                crc = crc32c::crc32c_append(crc, part);
                bytes = 0;
            }
        }
        crc32c::crc32c_append(crc, &together[..bytes])
    }
}
