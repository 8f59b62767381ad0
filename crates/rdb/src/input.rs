//! An input with a running checksum and offset, and the encoding of lengths.

use std::io::Read;

use crc::{CRC_64_REDIS, Crc, Digest, Table};

use crate::{Error, Result};

/// The CRC-64 of Redis.
pub(crate) static CRC: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// Bytes by which memory is allocated as data arrives, so that a false length alone allocates nothing.
const STEP_BYTES: u64 = 64 << 10;

/// Meaning of a decoded length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// A number of bytes or elements.
    Plain(u64),
    /// The special encoding of a string.
    Special(u8),
}

pub(crate) struct Input<R> {
    inner: R,
    digest: Digest<'static, u64, Table<16>>,
    offset: u64,
}

impl<R: Read> Input<R> {
    pub(crate) fn new(inner: R) -> Input<R> {
        Input { inner, digest: CRC.digest(), offset: 0 }
    }

    pub(crate) fn into_inner(self) -> R {
        self.inner
    }

    /// Returns the number of bytes read.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the checksum of all bytes read.
    pub(crate) fn checksum(&self) -> u64 {
        self.digest.clone().finalize()
    }

    pub(crate) fn corrupt(&self, what: &'static str) -> Error {
        Error::Corrupt { offset: self.offset, what }
    }

    /// Fills the buffer.
    pub(crate) fn fill(&mut self, buffer: &mut [u8]) -> Result<()> {
        self.inner.read_exact(buffer).map_err(|source| match source.kind() {
            std::io::ErrorKind::UnexpectedEof => Error::EndsEarly { offset: self.offset },
            _ => Error::Io { offset: self.offset, source },
        })?;
        self.digest.update(buffer);
        self.offset += buffer.len() as u64;
        Ok(())
    }

    pub(crate) fn array<const BYTES: usize>(&mut self) -> Result<[u8; BYTES]> {
        let mut bytes = [0; BYTES];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn byte(&mut self) -> Result<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Reads `count` bytes; the caller bounds the count.
    pub(crate) fn bytes(&mut self, count: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut left = count;
        while left > 0 {
            let step = left.min(STEP_BYTES) as usize;
            let start = bytes.len();
            bytes.resize(start + step, 0);
            self.fill(&mut bytes[start..])?;
            left -= step as u64;
        }
        Ok(bytes)
    }

    /// Skips `count` bytes.
    pub(crate) fn skip(&mut self, count: u64) -> Result<()> {
        let mut buffer = [0; 4 << 10];
        let mut left = count;
        while left > 0 {
            let step = left.min(buffer.len() as u64) as usize;
            self.fill(&mut buffer[..step])?;
            left -= step as u64;
        }
        Ok(())
    }

    /// Decodes a length or a special encoding. The two upper bits of the first byte give the length of the number;
    /// numbers of more than one byte are big-endian.
    pub(crate) fn length_or_encoding(&mut self) -> Result<Length> {
        let first = self.byte()?;
        Ok(match (first >> 6, first) {
            (0, _) => Length::Plain(first.into()),
            (1, _) => Length::Plain(u64::from(first & 0x3f) << 8 | u64::from(self.byte()?)),
            (2, 0x80) => Length::Plain(u32::from_be_bytes(self.array()?).into()),
            (2, 0x81) => Length::Plain(u64::from_be_bytes(self.array()?)),
            (3, _) => Length::Special(first & 0x3f),
            _ => return Err(self.corrupt("a length has an invalid first byte")),
        })
    }

    /// Decodes a length; a special encoding is an error.
    pub(crate) fn length(&mut self) -> Result<u64> {
        match self.length_or_encoding()? {
            Length::Plain(length) => Ok(length),
            Length::Special(_) => Err(self.corrupt("a string encoding is in the place of a length")),
        }
    }
}

/// Appends a length.
pub(crate) fn write_length(length: u64, into: &mut Vec<u8>) {
    match length {
        0..0x40 => into.push(length as u8),
        0x40..0x4000 => into.extend_from_slice(&(length as u16 | 0x4000).to_be_bytes()),
        0x4000..0x1_0000_0000 => {
            into.push(0x80);
            into.extend_from_slice(&(length as u32).to_be_bytes());
        }
        _ => {
            into.push(0x81);
            into.extend_from_slice(&length.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_round_trips() {
        for length in [0, 1, 63, 64, 16_383, 16_384, u32::MAX.into(), 1 << 32, u64::MAX] {
            let mut bytes = Vec::new();
            write_length(length, &mut bytes);
            assert_eq!(Input::new(&*bytes).length().unwrap(), length);
            bytes.pop();
            assert!(matches!(Input::new(&*bytes).length(), Err(Error::EndsEarly { .. })), "{length}");
        }
        assert!(matches!(Input::new(&[0x82][..]).length(), Err(Error::Corrupt { .. })));
        assert!(matches!(Input::new(&[0xc0][..]).length(), Err(Error::Corrupt { .. })));
    }

    #[test]
    fn crc64_matches_redis() {
        let mut input = Input::new(&b"123456789"[..]);
        input.skip(9).unwrap();
        assert_eq!(input.checksum(), 0xe9c6_d914_c4b8_d9ca);
    }
}
