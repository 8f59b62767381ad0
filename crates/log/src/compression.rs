//! Compression of values. See `docs/decisions/0026-compression.md`.
//!
//! A compressed value is stored in its record as compressed; the record's header gives the codec and the uncompressed
//! length. A value of at most [`BLOCK_BYTES`] is one block. A longer one is cut into blocks of that length. Each is
//! compressed separately and preceded by its stored length in four bytes, so that a part of the value can be read with
//! the memory of one block. A block whose stored length equals its uncompressed length is stored uncompressed.
//!
//! Decompression never takes more memory than the stated length, and returns only values of exactly that length. The
//! caller must first check that the stated length is plausible for the record.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Mutex;

use esker_seeded_bugs::{Bug, planted};
use lz4_flex::block::{self, CompressTable};

use crate::header::Damage;

/// Length in bytes of a block.
pub const BLOCK_BYTES: usize = 64 << 10;
/// Length in bytes of the prefix with a block's stored length.
const LENGTH_BYTES: usize = 4;
/// Length in bytes of the sample that is compressed first, for values several times as long, to estimate the saving.
const SAMPLE_BYTES: usize = 4 << 10;
/// Minimum saving, as a reciprocal: a value is stored compressed if that saves at least 1/8.
const PAYS: usize = 8;
/// Maximum number of idle work spaces kept for reuse.
const SPARE_SPACES: usize = 8;

/// Codec of a compressed value. The numbers are on the medium: do not change them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Codec {
    /// Blocks of LZ4.
    Lz4 = 1,
    /// Frames of Zstandard.
    Zstd = 2,
}

impl Codec {
    /// Returns the name for messages.
    pub fn name(self) -> &'static str {
        match self {
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        }
    }

    /// Returns true if this build can compress and decompress with the codec: Zstandard is the feature `zstd`.
    pub const fn is_available(self) -> bool {
        match self {
            Codec::Lz4 => true,
            Codec::Zstd => cfg!(feature = "zstd"),
        }
    }

    pub(crate) fn from_bits(bits: u64) -> Option<Codec> {
        match bits {
            1 => Some(Codec::Lz4),
            2 => Some(Codec::Zstd),
            _ => None,
        }
    }
}

/// Description of a compressed value in its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compressed {
    /// The codec.
    pub codec: Codec,
    /// Uncompressed length in bytes.
    pub raw_bytes: u32,
}

/// Compresses a value. Returns `None` unless that saves at least an eighth, and if the codec is not
/// [available](Codec::is_available). Zstandard has levels from 1 to 22; LZ4 has none.
pub fn compress(value: &[u8], codec: Codec, level: i32) -> Option<(Vec<u8>, Compressed)> {
    let compressed = Compressed { codec, raw_bytes: u32::try_from(value.len()).ok()? };
    let most = value.len() - value.len() / PAYS;
    if value.is_empty() || most == value.len() {
        return None;
    }
    let mut space = Space::take();
    let packed = space.compress_value(value, codec, level, most);
    space.keep();
    packed.map(|packed| (packed, compressed))
}

/// Work space of compression and decompression.
#[derive(Default)]
struct Space {
    /// For less than 64 KiB; `large` is for more, and takes twice as long to clear.
    small: Option<CompressTable>,
    large: Option<CompressTable>,
    zstd: Zstd,
}

static SPARE: Mutex<Vec<Space>> = Mutex::new(Vec::new());

impl Space {
    /// Takes an idle work space, or creates one if there is none or the lock is contended.
    fn take() -> Space {
        SPARE.try_lock().ok().and_then(|mut spare| spare.pop()).unwrap_or_default()
    }

    fn keep(self) {
        if let Ok(mut spare) = SPARE.try_lock()
            && spare.len() < SPARE_SPACES
        {
            spare.push(self);
        }
    }

    fn compress_value(&mut self, value: &[u8], codec: Codec, level: i32, most: usize) -> Option<Vec<u8>> {
        if value.len() > 4 * SAMPLE_BYTES {
            let sample = &value[..SAMPLE_BYTES];
            let mut packed = Vec::new();
            self.compress_block(sample, codec, level, &mut packed)?;
            if packed.len() > SAMPLE_BYTES - SAMPLE_BYTES / PAYS {
                return None;
            }
        }
        let mut packed = Vec::new();
        if value.len() <= BLOCK_BYTES {
            self.compress_block(value, codec, level, &mut packed)?;
        } else {
            // Reserves the maximum at once; it becomes resident only as it is used. Growing would take twice as much.
            packed.reserve_exact(most + 2 * BLOCK_BYTES);
            for raw in value.chunks(BLOCK_BYTES) {
                let start = packed.len();
                packed.extend_from_slice(&[0; LENGTH_BYTES]);
                let is_shorter = self.compress_block(raw, codec, level, &mut packed).is_some()
                    && packed.len() - start - LENGTH_BYTES
                        < raw.len() + usize::from(planted(Bug::EqualBlockCompressed));
                if !is_shorter {
                    packed.truncate(start + LENGTH_BYTES);
                    packed.extend_from_slice(raw);
                }
                let bytes = (packed.len() - start - LENGTH_BYTES) as u32;
                packed[start..start + LENGTH_BYTES].copy_from_slice(&bytes.to_le_bytes());
                if packed.len() > most {
                    return None;
                }
            }
            packed.shrink_to_fit();
        }
        (packed.len() <= most).then_some(packed)
    }

    /// Compresses one block to the end of `to`. On any failure returns `None`, and `to` is unusable.
    fn compress_block(&mut self, raw: &[u8], codec: Codec, level: i32, to: &mut Vec<u8>) -> Option<()> {
        let start = to.len();
        let bytes = match codec {
            Codec::Lz4 => {
                to.resize(start + block::get_maximum_output_size(raw.len()), 0);
                let table = match raw.len() < usize::from(u16::MAX) {
                    true => self.small.get_or_insert_with(CompressTable::small),
                    false => self.large.get_or_insert_with(CompressTable::large),
                };
                block::compress_into_with_table(raw, &mut to[start..], table).ok()?
            }
            Codec::Zstd => self.zstd.compress(raw, level, to)?,
        };
        to.truncate(start + bytes);
        Some(())
    }

    /// Decompresses one block, which must fill `raw` exactly.
    fn decompress_block(&mut self, packed: &[u8], codec: Codec, raw: &mut [u8]) -> Result<(), Damage> {
        let bytes = match codec {
            Codec::Lz4 => block::decompress_into(packed, raw).map_err(|_| Damage::Compression)?,
            Codec::Zstd => self.zstd.decompress(packed, raw)?,
        };
        let is_whole = bytes == raw.len() || planted(Bug::ShortDecompressionIsWhole);
        if is_whole { Ok(()) } else { Err(Damage::Compression) }
    }
}

/// Contexts of Zstandard.
#[cfg(feature = "zstd")]
#[derive(Default)]
struct Zstd {
    compressor: Option<zstd::bulk::Compressor<'static>>,
    decompressor: Option<zstd::bulk::Decompressor<'static>>,
}

#[cfg(feature = "zstd")]
impl Zstd {
    /// Compresses `raw` to the end of `to`. Returns the compressed length in bytes, or `None` on any failure.
    fn compress(&mut self, raw: &[u8], level: i32, to: &mut Vec<u8>) -> Option<usize> {
        let start = to.len();
        to.resize(start + zstd::zstd_safe::compress_bound(raw.len()), 0);
        let compressor = match &mut self.compressor {
            Some(compressor) => compressor,
            none => none.insert(zstd::bulk::Compressor::new(level).ok()?),
        };
        compressor.set_compression_level(level).ok()?;
        compressor.compress_to_buffer(raw, &mut to[start..]).ok()
    }

    /// Decompresses `packed` to the start of `raw`. Returns the decompressed length in bytes.
    fn decompress(&mut self, packed: &[u8], raw: &mut [u8]) -> Result<usize, Damage> {
        let decompressor = match &mut self.decompressor {
            Some(decompressor) => decompressor,
            none => none.insert(zstd::bulk::Decompressor::new().map_err(|_| Damage::Compression)?),
        };
        decompressor.decompress_to_buffer(packed, raw).map_err(|_| Damage::Compression)
    }
}

/// Stands for Zstandard in a build without it.
#[cfg(not(feature = "zstd"))]
#[derive(Default)]
struct Zstd;

#[cfg(not(feature = "zstd"))]
impl Zstd {
    fn compress(&mut self, _: &[u8], _: i32, _: &mut Vec<u8>) -> Option<usize> {
        None
    }

    fn decompress(&mut self, _: &[u8], _: &mut [u8]) -> Result<usize, Damage> {
        Err(Damage::MissingCodec(Codec::Zstd))
    }
}

/// Decompresses a part of a stored value that arrives in pieces.
///
/// Takes the memory of two blocks in addition to the part.
pub struct Decompressor {
    how: Compressed,
    /// Stored bytes that have not arrived yet.
    left_bytes: usize,
    /// Offset of the next block in the uncompressed value.
    at: usize,
    wanted: Range<usize>,
    /// Bytes of an incomplete block.
    begun: Vec<u8>,
    part: Vec<u8>,
}

impl Decompressor {
    /// Creates a decompressor for a value with `stored_bytes` stored bytes. The part `wanted` is appended to `part`,
    /// which may have capacity for it. The memory taken depends on the stated length, so the caller must have checked
    /// that it is plausible.
    pub fn new(how: Compressed, stored_bytes: usize, wanted: Range<usize>, part: Vec<u8>) -> Decompressor {
        Decompressor { how, left_bytes: stored_bytes, at: 0, wanted, begun: Vec::new(), part }
    }

    /// Adds the next piece of the stored value.
    ///
    /// # Errors
    /// [`Damage::Compression`], if it cannot be part of a compressed value of the stated length;
    /// [`Damage::MissingCodec`].
    pub fn add(&mut self, mut piece: &[u8]) -> Result<(), Damage> {
        let mut space = Space::take();
        self.left_bytes = self.left_bytes.checked_sub(piece.len()).ok_or(Damage::Compression)?;
        while !piece.is_empty() {
            let needed = self.block_bytes(piece)?;
            let take = needed.saturating_sub(self.begun.len()).min(piece.len());
            let (first, rest) = piece.split_at(take);
            if self.begun.is_empty() && first.len() == needed {
                self.take_block(first, &mut space)?;
            } else {
                self.begun.extend_from_slice(first);
                // Its length may have become known only now.
                if self.begun.len() == self.block_bytes(rest)? {
                    let block = std::mem::take(&mut self.begun);
                    self.take_block(&block, &mut space)?;
                }
            }
            piece = rest;
        }
        space.keep();
        Ok(())
    }

    /// Returns the part.
    ///
    /// # Errors
    /// [`Damage::Compression`], if the stored value ended too early.
    pub fn finish(self) -> Result<Vec<u8>, Damage> {
        let is_whole = self.at == self.raw_bytes() && self.begun.is_empty() && self.left_bytes == 0;
        if is_whole { Ok(self.part) } else { Err(Damage::Compression) }
    }

    fn raw_bytes(&self) -> usize {
        self.how.raw_bytes as usize
    }

    fn is_one_block(&self) -> bool {
        self.raw_bytes() <= BLOCK_BYTES
    }

    /// Returns the uncompressed length of the next block.
    fn raw_block_bytes(&self) -> usize {
        (self.raw_bytes() - self.at).min(BLOCK_BYTES)
    }

    /// Returns the stored length of the next block, including its length prefix, as far as the buffered bytes and
    /// `next` show it.
    fn block_bytes(&self, next: &[u8]) -> Result<usize, Damage> {
        if self.is_one_block() {
            return Ok(self.begun.len() + next.len() + self.left_bytes);
        }
        let mut head = self.begun.iter().chain(next).copied();
        let mut bytes = [0; LENGTH_BYTES];
        for byte in &mut bytes {
            let Some(known) = head.next() else { return Ok(LENGTH_BYTES) };
            *byte = known;
        }
        let bytes = u32::from_le_bytes(bytes) as usize;
        let fits = (1..=self.raw_block_bytes()).contains(&bytes);
        if fits { Ok(LENGTH_BYTES + bytes) } else { Err(Damage::Compression) }
    }

    /// Decompresses a block, if any of it is wanted.
    fn take_block(&mut self, block: &[u8], space: &mut Space) -> Result<(), Damage> {
        let packed = if self.is_one_block() { block } else { &block[LENGTH_BYTES..] };
        let (from, bytes) = (self.at, self.raw_block_bytes());
        if bytes == 0 {
            return Err(Damage::Compression);
        }
        self.at += bytes;
        let start = self.wanted.start.clamp(from, self.at);
        let end = self.wanted.end.clamp(start, self.at);
        if start == end {
            return Ok(());
        }
        if !self.is_one_block() && packed.len() == bytes {
            let end = if planted(Bug::StoredBlockWhole) { self.at } else { end };
            self.part.extend_from_slice(&packed[start - from..end - from]);
            return Ok(());
        }
        let before = self.part.len();
        if end - start == bytes {
            self.part.resize(before + bytes, 0);
            return space.decompress_block(packed, self.how.codec, &mut self.part[before..]);
        }
        let mut raw = vec![0; bytes];
        space.decompress_block(packed, self.how.codec, &mut raw)?;
        self.part.extend_from_slice(&raw[start - from..end - from]);
        Ok(())
    }
}

/// Returns the uncompressed value.
///
/// # Errors
/// [`Damage::Compression`], if it does not decompress to the stated length; [`Damage::MissingCodec`].
pub(crate) fn decompress<'a>(stored: &'a [u8], how: Option<Compressed>) -> Result<Cow<'a, [u8]>, Damage> {
    let Some(how) = how else { return Ok(Cow::Borrowed(stored)) };
    let raw_bytes = how.raw_bytes as usize;
    decompress_part(stored, how, 0..raw_bytes, Vec::with_capacity(raw_bytes)).map(Cow::Owned)
}

/// Appends a part of the uncompressed value to `part`.
pub(crate) fn decompress_part(
    stored: &[u8],
    how: Compressed,
    wanted: Range<usize>,
    part: Vec<u8>,
) -> Result<Vec<u8>, Damage> {
    let mut decompressor = Decompressor::new(how, stored.len(), wanted, part);
    decompressor.add(stored)?;
    decompressor.finish()
}
