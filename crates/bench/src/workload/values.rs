//! Values that identify themselves: they start with their key and their write, and the other bytes follow
//! from both.

use bytes::Bytes;
use esker_engine::Compression;
use esker_log::{Codec, compress};
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

const POOL_BYTES: usize = 1 << 20;
/// Length of a value's identification in bytes: key number and stamp.
pub(crate) const NAME_BYTES: usize = 16;

/// Length of one piece of noise with its repetitions in bytes, as in db_bench.
const REPEATED_BYTES: usize = 100;

/// Makes and recognises values.
pub(crate) struct Values {
    pool: Vec<u8>,
}

impl Values {
    /// Incompressible values whose bytes follow from the seed.
    pub(crate) fn new(seed: u64) -> Values {
        Values::compressible(seed, 1.0)
    }

    /// Values that compress to about `ratio` of their length, made as in db_bench: of each hundred bytes,
    /// this share is noise, and the rest repeats it.
    pub(crate) fn compressible(seed: u64, ratio: f64) -> Values {
        let mut pool = vec![0; POOL_BYTES];
        SmallRng::seed_from_u64(seed).fill_bytes(&mut pool);
        let noise = ((REPEATED_BYTES as f64 * ratio) as usize).max(1);
        for piece in pool.chunks_mut(REPEATED_BYTES) {
            (noise..piece.len()).for_each(|at| piece[at] = piece[at - noise]);
        }
        Values { pool }
    }

    /// Returns the value that the write `stamp` puts under key number `number`.
    pub(crate) fn value(&self, number: u64, stamp: u64, bytes: usize) -> Bytes {
        let mut value = Vec::with_capacity(bytes.max(NAME_BYTES));
        value.extend_from_slice(&number.to_le_bytes());
        value.extend_from_slice(&stamp.to_le_bytes());
        let mut at = start(number, stamp);
        while value.len() < bytes {
            let part = (POOL_BYTES - at).min(bytes - value.len());
            value.extend_from_slice(&self.pool[at..at + part]);
            at = 0;
        }
        value.truncate(bytes);
        value.into()
    }

    /// Returns the approximate stored length of such a value.
    pub(crate) fn stored_bytes(&self, bytes: usize, compression: Compression) -> usize {
        let (codec, level) = match compression {
            Compression::Off => return bytes,
            Compression::Lz4 => (Codec::Lz4, 0),
            Compression::Zstd(level) => (Codec::Zstd, level.into()),
        };
        compress(&self.value(0, 0, bytes), codec, level).map_or(bytes, |(stored, _)| stored.len())
    }

    /// Returns the stamp of a value of at least [`NAME_BYTES`] read under key number `number`; `None` if
    /// no write made it.
    pub(crate) fn stamp_of(&self, number: u64, found: &[u8]) -> Option<u64> {
        let stamp = u64::from_le_bytes(found.get(8..NAME_BYTES)?.try_into().ok()?);
        (self.value(number, stamp, found.len()) == found).then_some(stamp)
    }
}

fn start(number: u64, stamp: u64) -> usize {
    let mixed = (number ^ stamp.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 40) as usize % POOL_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_recognised_only_under_its_key() {
        let values = Values::new(7);
        for bytes in [16, 17, 4048, POOL_BYTES + 5] {
            let value = values.value(3, 12, bytes);
            assert_eq!(value.len(), bytes);
            assert_eq!(values.stamp_of(3, &value), Some(12));
            assert_eq!(values.stamp_of(4, &value), None);
        }
        let mut rotten = values.value(3, 12, 4048).to_vec();
        rotten[4000] ^= 1;
        assert_eq!(values.stamp_of(3, &rotten), None);
        assert_eq!(values.stamp_of(3, &rotten[..8]), None);
        assert_eq!(values.value(3, 12, 4).len(), 4);
    }

    #[test]
    fn values_compress_to_requested_ratio() {
        for (ratio, least, most) in [(0.1, 0.05, 0.25), (0.5, 0.45, 0.58), (0.8, 0.7, 0.87)] {
            let value = Values::compressible(7, ratio).value(3, 12, 4096);
            let (stored, _) = compress(&value, Codec::Lz4, 0).expect("it is shorter");
            let left = stored.len() as f64 / 4096.0;
            assert!((least..most).contains(&left), "{ratio}: {left}");
        }
        assert!(compress(&Values::new(7).value(3, 12, 4096), Codec::Zstd, 9).is_none());
    }

    #[test]
    fn values_differ_by_stamp_and_seed() {
        let (one, other) = (Values::new(1), Values::new(2));
        assert_ne!(one.value(1, 1, 100)[16..], one.value(1, 2, 100)[16..]);
        assert_ne!(one.value(1, 1, 100), other.value(1, 1, 100));
    }
}
