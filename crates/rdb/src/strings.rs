//! Strings: plain, as an integer in binary, or compressed.

use std::io::Read;

use crate::input::{Input, Length};
use crate::lzf;
use crate::{Error, Result};

/// A string, or its length if it exceeds the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Text {
    Whole(Vec<u8>),
    TooLong { bytes: u64 },
}

const INT8: u8 = 0;
const INT16: u8 = 1;
const INT32: u8 = 2;
const LZF: u8 = 3;

/// Maximum expansion factor of LZF: a match of three bytes produces 264.
const EXPANSION_MAX: u64 = 264;

impl<R: Read> Input<R> {
    /// Reads a string of at most `bytes_max` bytes; skips a longer one.
    pub(crate) fn string(&mut self, bytes_max: u64) -> Result<Text> {
        let decimal = |number: i32| Ok(Text::Whole(number.to_string().into_bytes()));
        match self.length_or_encoding()? {
            Length::Plain(bytes) if bytes <= bytes_max => Ok(Text::Whole(self.bytes(bytes)?)),
            Length::Plain(bytes) => {
                self.skip(bytes)?;
                Ok(Text::TooLong { bytes })
            }
            Length::Special(INT8) => decimal(i8::from_le_bytes(self.array()?).into()),
            Length::Special(INT16) => decimal(i16::from_le_bytes(self.array()?).into()),
            Length::Special(INT32) => decimal(i32::from_le_bytes(self.array()?)),
            Length::Special(LZF) => self.compressed(bytes_max),
            Length::Special(_) => Err(self.unknown_encoding()),
        }
    }

    fn compressed(&mut self, bytes_max: u64) -> Result<Text> {
        let (compressed, bytes) = (self.length()?, self.length()?);
        // No valid LZF data has a higher compression ratio, or is more than twice as long as its content.
        if bytes > compressed.saturating_mul(EXPANSION_MAX) || compressed / 2 > bytes {
            return Err(self.bad_compression());
        }
        if bytes > bytes_max {
            self.skip(compressed)?;
            return Ok(Text::TooLong { bytes });
        }
        let compressed = self.bytes(compressed)?;
        let text = lzf::decompress(&compressed, bytes as usize);
        text.map(Text::Whole).ok_or_else(|| self.bad_compression())
    }

    /// Returns the announced length of the string that follows.
    pub(crate) fn announced_bytes(&mut self) -> Result<u64> {
        /// Maximum decimal digits of a 32-bit integer, including the sign.
        const DECIMAL_BYTES: u64 = 11;
        match self.length_or_encoding()? {
            Length::Plain(bytes) => Ok(bytes),
            Length::Special(LZF) => {
                self.length()?;
                self.length()
            }
            Length::Special(_) => Ok(DECIMAL_BYTES),
        }
    }

    /// Skips a string.
    pub(crate) fn skip_string(&mut self) -> Result<()> {
        match self.length_or_encoding()? {
            Length::Plain(bytes) => self.skip(bytes),
            Length::Special(INT8) => self.skip(1),
            Length::Special(INT16) => self.skip(2),
            Length::Special(INT32) => self.skip(4),
            Length::Special(LZF) => {
                let compressed = self.length()?;
                self.length()?;
                self.skip(compressed)
            }
            Length::Special(_) => Err(self.unknown_encoding()),
        }
    }

    fn bad_compression(&self) -> Error {
        self.corrupt("a compressed string does not expand to its length")
    }

    fn unknown_encoding(&self) -> Error {
        self.corrupt("a string has an unknown encoding")
    }
}
