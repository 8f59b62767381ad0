//! Decides which values are compressed: each value that an attempt makes shorter. After failed attempts, further ones are rare,
//! so that incompressible values cost next to nothing. Writers compress on their own threads, before they request a place in
//! the log.

use std::sync::atomic::{AtomicU32, Ordering};

use esker_log::{Codec, Compressed, compress, length_class};

use crate::base::compression::Compression;

/// Minimum length in bytes: shorter values are stored as they are, because most of the gain would be lost in padding.
const VALUE_BYTES_MIN: usize = 128;

/// One in this many incompressible values is tried; fewer with Zstandard, where an attempt costs three times as much as with
/// LZ4.
const SELDOM: u32 = 128;
const SELDOM_ZSTD: u32 = 256;

/// State of failed attempts, per size class.
#[derive(Default)]
pub(crate) struct Compressing([Tries; 16]);

/// Each is a hint that writers read and write without synchronization: a lost update costs or saves one attempt.
#[derive(Default)]
struct Tries {
    /// Number of values still to be stored without an attempt.
    untried: AtomicU32,
    /// Number of values skipped after the last attempt; 0 if it succeeded.
    wait: AtomicU32,
}

impl Tries {
    fn is_due(&self) -> bool {
        let untried = self.untried.load(Ordering::Relaxed);
        if untried > 0 {
            self.untried.store(untried - 1, Ordering::Relaxed);
        }
        untried == 0
    }

    fn note(&self, succeeded: bool, seldom: u32) {
        let before = self.wait.load(Ordering::Relaxed);
        if succeeded && before == 0 {
            return;
        }
        // The interval doubles after each failed attempt.
        let wait = if succeeded { 0 } else { (2 * before + 1).min(seldom - 1) };
        self.wait.store(wait, Ordering::Relaxed);
        self.untried.store(wait, Ordering::Relaxed);
    }
}

impl Compressing {
    /// Returns the compressed value and its description; `None` if the value is stored as it is.
    pub(crate) fn compress(&self, value: &[u8], compression: Compression) -> Option<(Vec<u8>, Compressed)> {
        let (codec, level, seldom) = match compression {
            Compression::Off => return None,
            Compression::Lz4 => (Codec::Lz4, 0, SELDOM),
            Compression::Zstd(level) => (Codec::Zstd, i32::from(level), SELDOM_ZSTD),
        };
        if value.len() < VALUE_BYTES_MIN {
            return None;
        }
        let tries = &self.0[usize::from(length_class(value.len() as u64))];
        if !tries.is_due() {
            return None;
        }
        let compressed = compress(value, codec, level);
        tries.note(compressed.is_some(), seldom);
        compressed
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::testing::Plan;
    use crate::write::batch::Batch;
    use crate::write::options::WriteOptions;

    /// Returns the number of compressed values among `times`.
    fn compressed(compressing: &Compressing, value: &[u8], times: usize) -> usize {
        (0..times).filter(|_| compressing.compress(value, Compression::Lz4).is_some()).count()
    }

    fn noise(bytes: usize) -> Vec<u8> {
        let mut word = 7u64;
        let mut next = || {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (word >> 56) as u8
        };
        (0..bytes).map(|_| next()).collect()
    }

    #[test]
    fn compression_that_fails_is_retried_rarely_for_that_length() {
        let compressing = Compressing::default();
        let (noise, zeros) = (noise(4096), vec![0; 4096]);
        assert_eq!(compressed(&compressing, &noise, 1000), 0);
        let untried = compressing.0[3].untried.load(Ordering::Relaxed);
        assert!(untried < SELDOM, "{untried}");
        // No attempt with another length has failed.
        assert_eq!(compressed(&compressing, &zeros[..1000], 10), 10);
        // The next attempt succeeds, and all following ones are made.
        let all = 2 * SELDOM as usize;
        assert_eq!(compressed(&compressing, &zeros, all), all - untried as usize);
        assert_eq!(compressed(&compressing, &zeros, 10), 10);
    }

    #[test]
    fn batch_too_long_is_refused_before_compression() {
        let bench = Plan::new(1).build();
        bench.start();
        bench.writer.changeable.set_compression(Compression::Lz4);
        let (mut batch, mut repeated) = (Batch::new(), Batch::new());
        let (noise, zeros) = (Bytes::from(noise(4096)), Bytes::from(vec![0; 4096]));
        for number in 0..100 {
            batch.put(format!("key {number}"), noise.clone());
            repeated.put("key", noise.clone());
        }
        repeated.put("key", zeros.clone());
        bench.run(async {
            let refused = bench.writer.write(0, batch, WriteOptions::default()).await;
            assert!(refused.is_err_and(|error| error.to_string().contains("100 records")), "it is too long");
            // Values replaced within the same batch are not compressed either.
            bench.writer.write(0, repeated, WriteOptions::default()).await.expect("it fits");
            assert_eq!(bench.get("key").await.expect("it is read").map(|(value, _)| value), Some(zeros));
        });
        let tried = bench.writer.compressing.0.iter().any(|tries| tries.wait.load(Ordering::Relaxed) > 0);
        assert!(!tried, "a value was compressed although the batch is refused or replaces it");
    }

    #[test]
    fn compression_skips_short_values_and_stores_with_it_off() {
        let compressing = Compressing::default();
        let zeros = vec![0; 4096];
        assert_eq!(compressed(&compressing, &zeros[..VALUE_BYTES_MIN - 1], 5), 0);
        assert_eq!(compressed(&compressing, &zeros[..VALUE_BYTES_MIN], 5), 5);
        assert!(compressing.compress(&zeros, Compression::Off).is_none());
        let compressed = compressing.compress(&zeros, Compression::Zstd(3)).map(|(_, how)| how);
        let how = Compressed { codec: Codec::Zstd, raw_bytes: 4096 };
        assert_eq!(compressed, Codec::Zstd.is_available().then_some(how));
    }
}
