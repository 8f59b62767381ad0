use esker_log::{
    BLOCK_BYTES, Codec, Compressed, Damage, Decompressor, EXPANSION_MAX, Record, RecordView, class_of,
    class_with, compress, expansion_of, memory_bytes,
};
use proptest::prelude::*;

use crate::world::{SECRET, bytes_of, put, random};

/// Returns the codecs of this build: Zstandard only with the feature `zstd`.
fn codecs() -> impl Iterator<Item = Codec> {
    [Codec::Lz4, Codec::Zstd].into_iter().filter(|codec| codec.is_available())
}

/// Returns bytes of which one part repeats earlier bytes and the rest is noise.
fn mixed(bytes: usize, noise_percent: u64, seed: u64) -> Vec<u8> {
    let mut word = seed | 1;
    let mut next = || {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        word >> 33
    };
    let mut value = Vec::with_capacity(bytes);
    while value.len() < bytes {
        let is_noise = next() % 100 < noise_percent;
        value.extend((0..16).map(|at: u8| if is_noise { next() as u8 } else { at }));
    }
    value.truncate(bytes);
    value
}

fn part(
    stored: &[u8],
    how: Compressed,
    wanted: std::ops::Range<usize>,
    piece: usize,
) -> Result<Vec<u8>, Damage> {
    let mut decompressor = Decompressor::new(how, stored.len(), wanted, Vec::new());
    stored.chunks(piece.max(1)).try_for_each(|piece| decompressor.add(piece))?;
    decompressor.finish()
}

/// Compresses a value and reads it again, whole and in parts, from pieces of any length. Returns the stored length.
#[track_caller]
fn comes_back(value: &[u8], codec: Codec, level: i32) -> Option<usize> {
    let (stored, how) = compress(value, codec, level)?;
    assert_eq!((how.codec, how.raw_bytes as usize), (codec, value.len()));
    assert!(stored.len() <= value.len() - value.len() / 8, "{} of {}", stored.len(), value.len());
    let record =
        Record { compressed: Some(how), value_check: SECRET.value_check(&stored), ..put(b"key", &stored, 7) };
    let bytes = bytes_of(&record, 9, 64);
    let read = RecordView::parse(&bytes, &SECRET.identity(9, 64)).expect("a record");
    assert_eq!(read.verify_value(&SECRET), Ok(()));
    assert_eq!((read.raw_bytes() as usize, read.compressed), (value.len(), Some(how)));
    assert!(read.raw_value().expect("it decompresses")[..] == *value, "{codec:?}, {} bytes", value.len());
    let moved = read.to_record();
    assert!(
        moved.value == &stored[..] && moved.compressed == Some(how),
        "a record moves as it is compressed"
    );
    for piece in [1, 3, 5, 4096, BLOCK_BYTES, stored.len()] {
        if stored.len() / piece > 10_000 {
            continue;
        }
        let middle = value.len() / 3..value.len() / 2 + 1;
        for wanted in [0..value.len(), 0..0, 0..1, middle, value.len() - 1..value.len()] {
            let found = part(&stored, how, wanted.clone(), piece).expect("a part");
            assert!(found == value[wanted.clone()], "{codec:?}, {wanted:?} of {} bytes", value.len());
        }
    }
    Some(stored.len())
}

#[test]
fn compressed_value_round_trips_at_length_boundaries() {
    let block = BLOCK_BYTES;
    let codecs = [(Codec::Lz4, 0), (Codec::Zstd, 1), (Codec::Zstd, 9)];
    for (codec, level) in codecs.into_iter().filter(|(codec, _)| codec.is_available()) {
        for bytes in [64, 100, 4096, block - 1, block, block + 1, 2 * block, 3 * block + 5, 1 << 20] {
            assert!(comes_back(&vec![0; bytes], codec, level).is_some(), "{codec:?}, {bytes} zeros");
            let half = comes_back(&mixed(bytes.max(4096), 50, 3), codec, level).expect("half of it is noise");
            assert!(half > bytes * 2 / 5, "{codec:?}: {half} of {bytes}");
        }
        // Blocks of noise among others are stored uncompressed.
        let parts = [mixed(2 * block, 10, 1), mixed(block, 100, 2), mixed(4 * block, 0, 3)];
        assert!(comes_back(&parts.concat(), codec, level).is_some());
    }
}

#[test]
fn value_that_saves_less_than_an_eighth_stays_raw() {
    for codec in codecs() {
        assert_eq!(compress(&[], codec, 3), None);
        assert_eq!(compress(&[0; 7], codec, 3), None);
        for bytes in [8, 100, 4096, 5000, BLOCK_BYTES, 300_000] {
            assert_eq!(compress(&mixed(bytes, 100, 5), codec, 3), None, "{codec:?}, {bytes} bytes of noise");
            assert_eq!(
                comes_back(&mixed(bytes, 97, 5), codec, 3),
                None,
                "{codec:?}, {bytes} bytes, nearly noise"
            );
        }
    }
}

#[test]
fn compressible_value_round_trips() {
    let drawn = (0..200_000usize, 0..100u64, any::<u64>(), any::<bool>());
    random("compressible_value_round_trips", 64, drawn, |(bytes, noise, seed, lz4)| {
        let codec = if lz4 || !Codec::Zstd.is_available() { Codec::Lz4 } else { Codec::Zstd };
        comes_back(&mixed(bytes, noise, seed), codec, 3);
    });
}

#[test]
fn wrong_stated_length_is_damage() {
    for codec in codecs() {
        for bytes in [1000, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES, 3 * BLOCK_BYTES + 7] {
            let (stored, how) = compress(&mixed(bytes, 30, 1), codec, 3).expect("it shrinks");
            let stated = |raw_bytes: usize| Compressed { raw_bytes: raw_bytes as u32, ..how };
            for raw_bytes in [bytes - 1, bytes + 1, bytes / 2, 2 * bytes, 64 << 20] {
                for piece in [100, stored.len()] {
                    let found = part(&stored, stated(raw_bytes), 0..raw_bytes.min(10 * bytes), piece);
                    assert_eq!(found, Err(Damage::Compression), "{codec:?}: {raw_bytes} of {bytes}");
                }
            }
            // Nor does it accept a truncated value, or one with bytes after it.
            let longer = [&stored[..], &[0; 9]].concat();
            for other in [&stored[..stored.len() - 1], &stored[..stored.len() / 2], &[], &longer[..]] {
                assert_eq!(part(other, how, 0..bytes, 4096), Err(Damage::Compression), "{codec:?}, {bytes}");
            }
            // Fewer bytes arrived than announced.
            let mut begun = Decompressor::new(how, stored.len(), 0..bytes, Vec::new());
            assert!(stored.len() < 10 || begun.add(&stored[..9]).is_ok());
            assert_eq!(begun.finish(), Err(Damage::Compression));
        }
    }
}

/// For any bytes in place of the compressed ones: no more than the stated length is returned, and nothing panics.
#[test]
fn damaged_block_gives_error_or_stated_length() {
    for codec in codecs() {
        for bytes in [300, 2 * BLOCK_BYTES + 100] {
            let (stored, how) = compress(&mixed(bytes, 20, 1), codec, 3).expect("it shrinks");
            let step = stored.len() / 200 + 1;
            for at in (0..stored.len()).step_by(step).chain(0..20) {
                for flip in [1, 0x10, 0xff] {
                    let mut damaged = stored.clone();
                    damaged[at] ^= flip;
                    match part(&damaged, how, 0..bytes, stored.len()) {
                        Ok(found) => assert_eq!(found.len(), bytes),
                        Err(damage) => assert_eq!(damage, Damage::Compression),
                    }
                }
            }
        }
    }
}

#[test]
fn size_class_bounds_raw_value_length() {
    let how = |raw_bytes| Some(Compressed { codec: Codec::Lz4, raw_bytes });
    for offset in [64, 1000, 4092] {
        for raw_bytes in [129u32, 4096, 100_000, 1 << 20, 16 << 20, u32::MAX] {
            for shrunk in [1, 2, 3, 5, 20, 300] {
                let value_bytes = (raw_bytes / shrunk).max(2) as usize - 1;
                let record = 34 + value_bytes;
                let expansion = expansion_of(record, value_bytes, how(raw_bytes));
                let class = class_with(offset, record as u64, expansion);
                assert!(class >= class_of(offset, record as u64), "{raw_bytes} by {shrunk}");
                let raw_record = 34 + u64::from(raw_bytes);
                assert!(raw_record <= memory_bytes(class, EXPANSION_MAX), "{raw_bytes} by {shrunk}");
            }
        }
    }
    assert_eq!(expansion_of(100, 50, None), 0);
    assert_eq!(class_with(64, u64::MAX, 15), 15);
}

/// Returns incompressible bytes.
fn noise(bytes: usize) -> Vec<u8> {
    mixed(bytes, 100, 5)
}

/// A block that does not become shorter is stored uncompressed, which its length shows. A block that compresses to
/// exactly its own length must not be mistaken for an uncompressed one.
#[test]
fn block_compressed_to_own_length_round_trips() {
    const LAST_BYTES: usize = 400;
    let mut as_it_is = 0;
    for repeated in 4..64 {
        // The last block is short, so that one more repeated byte makes it one byte shorter.
        let mut last = noise(LAST_BYTES);
        last.copy_within(10..10 + repeated, 200);
        let value = [vec![0; 2 * BLOCK_BYTES], last].concat();
        let (stored, how) = compress(&value, Codec::Lz4, 0).expect("most of it is zeros");
        as_it_is += usize::from(stored.ends_with(&value[2 * BLOCK_BYTES..]));
        let found = part(&stored, how, 0..value.len(), stored.len()).expect("it decompresses");
        assert!(found == value, "{repeated} bytes are repeated");
    }
    assert!((1..60).contains(&as_it_is), "{as_it_is} of 60 blocks are stored as they are");
}

#[test]
fn part_of_stored_block_ends_where_asked() {
    let mut value = [vec![0; BLOCK_BYTES], noise(2 * BLOCK_BYTES)].concat();
    value.resize(6 * BLOCK_BYTES, 0);
    let (stored, how) = compress(&value, Codec::Lz4, 0).expect("most of it is zeros");
    let first = BLOCK_BYTES;
    for wanted in [first + 10..first + 20, first - 1..first + 1, first + 10..2 * first + 20, first..2 * first]
    {
        let found = part(&stored, how, wanted.clone(), stored.len()).expect("a part");
        assert!(found == value[wanted.clone()], "{wanted:?}: {} bytes", found.len());
    }
}

#[test]
fn missing_codec_is_no_damage() {
    if Codec::Zstd.is_available() {
        return;
    }
    assert_eq!(compress(&[0; 4096], Codec::Zstd, 3), None);
    let how = Compressed { codec: Codec::Zstd, raw_bytes: 4096 };
    assert_eq!(part(&[1; 100], how, 0..4096, 100), Err(Damage::MissingCodec(Codec::Zstd)));
}
