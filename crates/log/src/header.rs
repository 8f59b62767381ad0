//! What stands in front of a record's key: flags, numbers, checksums. How it is written and read.

use esker_index::Keyspace;

use crate::checksum::{Identity, SMALL_VALUE_BYTES};
use crate::compression::{Codec, Compressed};
use crate::layout::Field;
use crate::varint::{fourth_varint, get_varint, varint_bytes};

/// Length of the longest header: flags, lengths of key and value, both parts of a sequence number, expiry, keyspace, length
/// before compression, checksums.
pub const HEADER_BYTES_MAX: usize = 1 + 3 + 5 + 6 + 4 + 10 + KEYSPACE_BYTES + 5 + LONG_CHECK_BYTES;
/// What a record takes more in keyspaces other than the first.
pub const KEYSPACE_BYTES: usize = 1;
/// Longest key.
pub const MAX_KEY_BYTES: usize = 65_536;

const CHECK_BYTES: usize = 8;
const CRC_BYTES: usize = 4;
const LONG_CHECK_BYTES: usize = CRC_BYTES + CHECK_BYTES;

/// Each opening has so many bits of sequence numbers to itself, a trillion writes; above them is the number of the opening.
pub const SEQUENCE_EPOCH_SHIFT: u32 = 40;
pub(crate) const NUMBERS: u64 = 1 << SEQUENCE_EPOCH_SHIFT;
const EPOCHS: u64 = 1 << (u64::BITS - SEQUENCE_EPOCH_SHIFT);

/// The record header's layout, in order. A length of 0 is that of a LEB128 number.
pub(crate) const FIELDS: &[Field] = &[
    Field::variable(
        "flags",
        1,
        "bits 0 and 1: kind, 1 put, 2 tombstone, never 0; bit 2: an expiry follows; bit 3: the batch goes on in the next \
         record; bit 4: its predecessor lived briefly; bit 5: the value is long; bit 6: \
         the keyspace follows; bit 7: the length before compression follows",
    ),
    Field::variable("key_bytes", 0, "length of the key less one"),
    Field::variable("value_bytes", 0, "length of the value as stored"),
    Field::variable(
        "number",
        0,
        "lower 40 bits of the sequence number, which orders all versions and is kept",
    ),
    Field::variable("epoch", 0, "upper 24 bits of it"),
    Field::variable("expiry", 0, "if flagged: milliseconds since the Unix epoch"),
    Field::variable("keyspace", 1, "if flagged: 1 to 15"),
    Field::variable(
        "raw",
        0,
        "if flagged: length of the value before compression, times 4, and how it is compressed: 1 LZ4, 2 Zstandard",
    ),
    Field::variable(
        "value_check",
        8,
        "long value: XXH3-64 of it, seeded with the salt; small: seeded with salt + crc * 0x9e3779b97f4a7c15",
    ),
    Field::variable(
        "crc",
        4,
        "CRC32C of identity, all in front of it, and the key; written for long values only",
    ),
];

const KIND: u8 = 3;
pub(crate) const EXPIRES: u8 = 1 << 2;
pub(crate) const BATCH_GOES_ON: u8 = 1 << 3;
pub(crate) const SHORT_LIVED: u8 = 1 << 4;
pub(crate) const LONG: u8 = 1 << 5;
pub(crate) const ELSEWHERE: u8 = 1 << 6;
pub(crate) const COMPRESSED: u8 = 1 << 7;
// No bit has two meanings, and all have one.
const _: () = assert!(
    KIND as u32
        + EXPIRES as u32
        + BATCH_GOES_ON as u32
        + SHORT_LIVED as u32
        + LONG as u32
        + ELSEWHERE as u32
        + COMPRESSED as u32
        == 0xff
);
const CODEC_BITS: u32 = 2;

/// What a record says of its key. The numbers are on the medium: do not change them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The key has this value.
    Put = 1,
    /// The key is gone.
    Tombstone = 2,
}

impl Kind {
    fn of(flags: u8) -> Option<Kind> {
        match flags & KIND {
            1 => Some(Kind::Put),
            2 => Some(Kind::Tombstone),
            _ => None,
        }
    }
}

/// What a record of a keyspace takes more.
#[inline]
pub const fn keyspace_bytes(keyspace: Keyspace) -> usize {
    if keyspace.number() == Keyspace::FIRST.number() { 0 } else { KEYSPACE_BYTES }
}

/// How the header says that a value is compressed.
#[inline]
pub(crate) fn raw_field(how: Compressed) -> u64 {
    u64::from(how.raw_bytes) << CODEC_BITS | how.codec as u64
}

/// What a record with a compressed value takes more.
#[inline]
pub fn raw_field_bytes(compressed: Option<Compressed>) -> usize {
    compressed.map_or(0, |how| varint_bytes(raw_field(how)))
}

/// What [`raw_field`] said. A record that says so is shorter than it would be, but has a value.
fn compressed(field: u64, kind: Kind, value_bytes: usize) -> Result<Compressed, Damage> {
    let codec = Codec::from_bits(field & ((1 << CODEC_BITS) - 1)).ok_or(Damage::Header)?;
    let raw_bytes = u32::try_from(field >> CODEC_BITS).map_err(|_| Damage::Header)?;
    let is_shorter = value_bytes > 0 && (value_bytes as u64) < u64::from(raw_bytes);
    if is_shorter && kind == Kind::Put { Ok(Compressed { codec, raw_bytes }) } else { Err(Damage::Header) }
}

/// The most that a record takes on the medium, without the padding to the granule: its sequence number and its expiry are
/// as long as they can be, and it is in another keyspace than the first. One with a compressed value takes no more, as values
/// are stored compressed only where that saves more than [`raw_field_bytes`].
#[inline]
pub fn record_bytes_max(key_bytes: usize, value_bytes: usize, expires: bool) -> usize {
    let numbers = const { varint_bytes(NUMBERS - 1) + varint_bytes(EPOCHS - 1) };
    let expiry = if expires { const { varint_bytes(u64::MAX) } } else { 0 };
    fixed_bytes(key_bytes, value_bytes) + numbers + expiry + KEYSPACE_BYTES + key_bytes + value_bytes
}

/// Length of the header of a record of the first keyspace with a value that is not compressed. Others have
/// [`keyspace_bytes`] and [`raw_field_bytes`] more.
#[inline]
pub fn header_bytes(
    key_bytes: usize,
    value_bytes: usize,
    sequence: u64,
    expires_at_ms: Option<u64>,
) -> usize {
    let sequence = varint_bytes(sequence % NUMBERS) + varint_bytes(sequence >> SEQUENCE_EPOCH_SHIFT);
    fixed_bytes(key_bytes, value_bytes) + sequence + expires_at_ms.map_or(0, varint_bytes)
}

/// Length of what in a header does not depend on sequence number and expiry.
#[inline]
fn fixed_bytes(key_bytes: usize, value_bytes: usize) -> usize {
    let checks = if value_bytes > SMALL_VALUE_BYTES { LONG_CHECK_BYTES } else { CHECK_BYTES };
    1 + varint_bytes(key_bytes.saturating_sub(1) as u64) + varint_bytes(value_bytes as u64) + checks
}

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Header or key do not agree with the checksum, or they belong elsewhere.
    Header,
    /// The value does not agree with its checksum.
    Value,
    /// Header, key or a small value do not agree with their common checksum, or they belong elsewhere.
    Record,
    /// The record claims to be longer than what was read.
    Length,
    /// The value agrees with its checksum and cannot be what it was before it was compressed.
    Compression,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Damage::Header => "record header does not match its checksum",
            Damage::Value => "value does not match its checksum",
            Damage::Record => "record does not match its checksum",
            Damage::Length => "record is longer than the space it lies in",
            Damage::Compression => {
                "compressed value does not decompress to the length that its record states"
            }
        })
    }
}

/// What the header of a record claims, not verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Length of the header, before the key.
    pub header_bytes: usize,
    /// Length of the key.
    pub key_bytes: usize,
    /// Length on the medium, without the padding to the granule.
    pub bytes: usize,
    /// What has to be read of it to know its key for certain: header and key, and a small value.
    pub key_known_bytes: usize,
    /// Sequence number.
    pub sequence: u64,
}

impl Claim {
    /// The key that the record at the start of `bytes` claims to have.
    pub fn key(bytes: &[u8]) -> Option<&[u8]> {
        let claim = Claim::of(bytes)?;
        bytes.get(claim.header_bytes..claim.header_bytes + claim.key_bytes)
    }

    /// Of the record that begins at the start of `bytes`. `None`: there is none, or its header is cut off.
    pub fn of(bytes: &[u8]) -> Option<Claim> {
        let header = Header::parse(bytes).ok()?;
        let head = header.bytes + header.key_bytes;
        let bytes = head + header.value_bytes;
        Some(Claim {
            header_bytes: header.bytes,
            key_bytes: header.key_bytes,
            bytes,
            key_known_bytes: if header.checks.is_long() { head } else { bytes },
            sequence: header.sequence,
        })
    }

    /// The upper bits of that record's sequence number: of which opening it is. What [`Claim::of`] finds a record in has one, and
    /// so may what it does not; this tells several times faster.
    #[inline]
    pub fn epoch_of(bytes: &[u8]) -> Option<u64> {
        let (&flags, rest) = bytes.split_first()?;
        Kind::of(flags)?;
        match rest.first_chunk().and_then(fourth_varint) {
            Some(epoch) => Some(epoch),
            None => Claim::of(bytes).map(|claim| claim.sequence >> SEQUENCE_EPOCH_SHIFT),
        }
    }
}

/// The checksums of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Checks {
    Long { crc: u32, value: u64 },
    Small(u64),
}

impl Checks {
    pub(crate) fn is_long(self) -> bool {
        matches!(self, Checks::Long { .. })
    }
}

/// What stands in front of the key, not verified.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) flags: u8,
    pub(crate) kind: Kind,
    pub(crate) key_bytes: usize,
    pub(crate) value_bytes: usize,
    pub(crate) sequence: u64,
    pub(crate) expires_at_ms: Option<u64>,
    pub(crate) keyspace: Keyspace,
    pub(crate) compressed: Option<Compressed>,
    pub(crate) checks: Checks,
    /// Length of what the CRC covers of it.
    head_bytes: usize,
    /// Length of all of it.
    pub(crate) bytes: usize,
}

impl Header {
    #[inline]
    pub(crate) fn parse(bytes: &[u8]) -> Result<Header, Damage> {
        // Where the bytes end before the longest header would, they may have been cut.
        let wrong = if bytes.len() < HEADER_BYTES_MAX { Damage::Length } else { Damage::Header };
        let (&flags, mut rest) = bytes.split_first().ok_or(Damage::Length)?;
        let kind = Kind::of(flags).ok_or(Damage::Header)?;
        let mut number = |end: u64| match get_varint(&mut rest) {
            Some(number) if number < end => Ok(number),
            Some(_) => Err(Damage::Header),
            None => Err(wrong),
        };
        let key_bytes = number(MAX_KEY_BYTES as u64)? as usize + 1;
        let value_bytes = number(1 << 32)? as usize;
        let sequence = number(NUMBERS)? | number(EPOCHS)? << SEQUENCE_EPOCH_SHIFT;
        let expires_at_ms =
            if flags & EXPIRES != 0 { Some(get_varint(&mut rest).ok_or(wrong)?) } else { None };
        let keyspace = if flags & ELSEWHERE != 0 { keyspace_of(&mut rest)? } else { Keyspace::FIRST };
        let compressed = if flags & COMPRESSED != 0 {
            Some(compressed(get_varint(&mut rest).ok_or(wrong)?, kind, value_bytes)?)
        } else {
            None
        };
        let is_long = flags & LONG != 0;
        if is_long != (value_bytes > SMALL_VALUE_BYTES) {
            return Err(Damage::Header);
        }
        let mut head_bytes = bytes.len() - rest.len();
        let check = take::<CHECK_BYTES>(&mut rest).map(u64::from_le_bytes)?;
        let checks = if is_long {
            head_bytes += CHECK_BYTES;
            Checks::Long { value: check, crc: take::<CRC_BYTES>(&mut rest).map(u32::from_le_bytes)? }
        } else {
            Checks::Small(check)
        };
        let bytes = bytes.len() - rest.len();
        Ok(Header {
            flags,
            kind,
            key_bytes,
            value_bytes,
            sequence,
            expires_at_ms,
            keyspace,
            compressed,
            checks,
            head_bytes,
            bytes,
        })
    }

    /// The CRC that head and key should have.
    pub(crate) fn crc(&self, bytes: &[u8], identity: &Identity) -> u32 {
        identity.crc(&[&bytes[..self.head_bytes], &bytes[self.bytes..self.bytes + self.key_bytes]])
    }
}

/// The keyspace that stands at the front: not the first, which is not written.
fn keyspace_of(from: &mut &[u8]) -> Result<Keyspace, Damage> {
    let [number] = take::<1>(from)?;
    Keyspace::new(number).filter(|keyspace| *keyspace != Keyspace::FIRST).ok_or(Damage::Header)
}

fn take<const N: usize>(from: &mut &[u8]) -> Result<[u8; N], Damage> {
    let (taken, rest) = from.split_first_chunk::<N>().ok_or(Damage::Length)?;
    *from = rest;
    Ok(*taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Over random bytes: what a whole look finds a record in has the epoch that the quick look tells, wherever the bytes end.
    #[test]
    fn the_quick_look_tells_the_epoch_of_every_claim() {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            (state >> 33) as u8
        };
        let mut claims = [0; 2];
        for _ in 0..300_000 {
            let mut bytes: Vec<u8> = (0..HEADER_BYTES_MAX).map(|_| next()).collect();
            // Long numbers are rare among random ones.
            let first = 1 + usize::from(next() % 16);
            bytes[first..first + usize::from(next() % 5)].iter_mut().for_each(|byte| *byte |= 0x80);
            bytes.truncate(usize::from(next()).max(12));
            if let Some(claim) = Claim::of(&bytes) {
                let epoch = claim.sequence >> SEQUENCE_EPOCH_SHIFT;
                assert_eq!(Claim::epoch_of(&bytes), Some(epoch), "{bytes:?}");
                claims[usize::from(epoch >= 0x80)] += 1;
            }
        }
        assert!(claims.iter().all(|&claims| claims > 500), "{claims:?}");
    }
}
