//! The record header in front of the key: flags, numbers, checksums, and their encoding.

use esker_index::Keyspace;

use crate::checksum::{Identity, SMALL_VALUE_BYTES};
use crate::compression::{Codec, Compressed};
use crate::layout::Field;
use crate::varint::{fourth_varint, get_varint, varint_bytes};

/// Maximum length in bytes of a header: flags, lengths of key and value, both parts of a sequence number, version, expiry,
/// keyspace, length before compression, checksums.
pub const HEADER_BYTES_MAX: usize = 1 + 3 + 5 + 6 + 4 + 10 + 10 + KEYSPACE_BYTES + 5 + LONG_CHECK_BYTES;
/// Additional bytes of a record in a keyspace other than the first.
pub const KEYSPACE_BYTES: usize = 1;
/// Maximum length in bytes of a key.
pub const MAX_KEY_BYTES: usize = 65_536;

const CHECK_BYTES: usize = 8;
const CRC_BYTES: usize = 4;
const LONG_CHECK_BYTES: usize = CRC_BYTES + CHECK_BYTES;

/// Bits of a sequence number within one opening (a trillion writes); the number of the opening is above them.
pub const SEQUENCE_EPOCH_SHIFT: u32 = 40;
pub(crate) const NUMBERS: u64 = 1 << SEQUENCE_EPOCH_SHIFT;
const EPOCHS: u64 = 1 << (u64::BITS - SEQUENCE_EPOCH_SHIFT);

/// Layout of the record header, in order. A length of 0 marks a LEB128 number.
pub(crate) const FIELDS: &[Field] = &[
    Field::variable(
        "flags",
        1,
        "bits 0 and 1: kind, 1 put, 2 tombstone, 3 record of the log of replicated groups, never 0; bit 2: an expiry follows; bit 3: the batch goes on in the next \
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
    Field::variable("epoch", 0, "upper 24 bits of it, times 2, plus 1 if a version follows"),
    Field::variable("version", 0, "if flagged: number of the change in the log of a replicated store"),
    Field::variable("expiry", 0, "if flagged: milliseconds since the Unix epoch"),
    Field::variable("keyspace", 1, "if flagged: 1 to 255; this version uses 1 to 15 and refuses others"),
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
// No flag bit has two meanings, and every bit is used.
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
/// Low bits of the epoch field that say whether a version follows.
const VERSION_BITS: u32 = 1;

/// Kind of a record. The numbers are on the medium: do not change them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The record has a value for its key.
    Put = 1,
    /// The key is deleted.
    Tombstone = 2,
    /// A record of the log of replicated groups. Only segments of [`Stream::GROUP_LOG`](crate::Stream::GROUP_LOG) have any.
    Log = 3,
}

impl Kind {
    fn of(flags: u8) -> Option<Kind> {
        match flags & KIND {
            1 => Some(Kind::Put),
            2 => Some(Kind::Tombstone),
            3 => Some(Kind::Log),
            _ => None,
        }
    }
}

/// Returns the additional bytes of a record in `keyspace`.
#[inline]
pub const fn keyspace_bytes(keyspace: Keyspace) -> usize {
    if keyspace.number() == Keyspace::FIRST.number() { 0 } else { KEYSPACE_BYTES }
}

/// Encodes codec and uncompressed length as the header stores them.
#[inline]
pub(crate) fn raw_field(how: Compressed) -> u64 {
    u64::from(how.raw_bytes) << CODEC_BITS | how.codec as u64
}

/// Returns the additional header bytes of a record with a version.
#[inline]
pub(crate) fn version_bytes(version: Option<u64>) -> usize {
    version.map_or(0, varint_bytes)
}

/// Encodes the upper bits of a sequence number as the header stores them.
#[inline]
pub(crate) const fn epoch_field(sequence: u64, has_version: bool) -> u64 {
    sequence >> SEQUENCE_EPOCH_SHIFT << VERSION_BITS | has_version as u64
}

/// Returns the additional header bytes of a record with a compressed value.
#[inline]
pub fn raw_field_bytes(compressed: Option<Compressed>) -> usize {
    compressed.map_or(0, |how| varint_bytes(raw_field(how)))
}

/// Decodes a [`raw_field`]. Valid only for a put whose non-empty value is shorter than its uncompressed length.
fn compressed(field: u64, kind: Kind, value_bytes: usize) -> Result<Compressed, Damage> {
    let codec = Codec::from_bits(field & ((1 << CODEC_BITS) - 1)).ok_or(Damage::Header)?;
    let raw_bytes = u32::try_from(field >> CODEC_BITS).map_err(|_| Damage::Header)?;
    let is_shorter = value_bytes > 0 && (value_bytes as u64) < u64::from(raw_bytes);
    if is_shorter && kind == Kind::Put { Ok(Compressed { codec, raw_bytes }) } else { Err(Damage::Header) }
}

/// Returns the maximum length of a record on the medium, without padding to the granule: with the longest sequence
/// number and expiry, in a keyspace other than the first, and without a version. A record with a compressed value is no longer, because
/// values are stored compressed only if that saves more than [`raw_field_bytes`].
#[inline]
pub fn record_bytes_max(key_bytes: usize, value_bytes: usize, expires: bool) -> usize {
    let numbers = const { varint_bytes(NUMBERS - 1) + varint_bytes((EPOCHS << VERSION_BITS) - 1) };
    let expiry = if expires { const { varint_bytes(u64::MAX) } } else { 0 };
    fixed_bytes(key_bytes, value_bytes) + numbers + expiry + KEYSPACE_BYTES + key_bytes + value_bytes
}

/// Returns the header length of a record in the first keyspace with an uncompressed value and no version. Otherwise
/// [`keyspace_bytes`], [`raw_field_bytes`] and the length of the version are added.
#[inline]
pub fn header_bytes(
    key_bytes: usize,
    value_bytes: usize,
    sequence: u64,
    expires_at_ms: Option<u64>,
) -> usize {
    let sequence = varint_bytes(sequence % NUMBERS) + varint_bytes(epoch_field(sequence, false));
    fixed_bytes(key_bytes, value_bytes) + sequence + expires_at_ms.map_or(0, varint_bytes)
}

/// Returns the part of the header length that does not depend on sequence number and expiry.
#[inline]
fn fixed_bytes(key_bytes: usize, value_bytes: usize) -> usize {
    let checks = if value_bytes > SMALL_VALUE_BYTES { LONG_CHECK_BYTES } else { CHECK_BYTES };
    1 + varint_bytes(key_bytes.saturating_sub(1) as u64) + varint_bytes(value_bytes as u64) + checks
}

/// The reason why bytes are not a valid record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Header or key do not match the checksum, or they belong elsewhere.
    Header,
    /// The value does not match its checksum.
    Value,
    /// Header, key or a small value do not match their common checksum, or they belong elsewhere.
    Record,
    /// The record claims to be longer than the bytes that were read.
    Length,
    /// The value matches its checksum but does not decompress to its stated length.
    Compression,
    /// The record is intact, but this build lacks the codec of its value.
    MissingCodec(Codec),
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Damage::MissingCodec(codec) => {
                let codec = codec.name();
                return write!(f, "value is compressed with {codec}, and this program was built without it");
            }
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

/// Contents of a record's header, not verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Length of the header, before the key.
    pub header_bytes: usize,
    /// Length of the key.
    pub key_bytes: usize,
    /// Length on the medium, without the padding to the granule.
    pub bytes: usize,
    /// Bytes to read to know the key for certain: header and key, plus a small value.
    pub key_known_bytes: usize,
    /// Sequence number.
    pub sequence: u64,
}

impl Claim {
    /// Returns the key that the record at the start of `bytes` claims to have.
    pub fn key(bytes: &[u8]) -> Option<&[u8]> {
        let claim = Claim::of(bytes)?;
        bytes.get(claim.header_bytes..claim.header_bytes + claim.key_bytes)
    }

    /// Parses the record at the start of `bytes`. `None` if there is none, or its header is cut off.
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

    /// Returns the epoch (upper bits of the sequence number) of the record at the start of `bytes`. Every record that
    /// [`Claim::of`] finds has one, but bytes without a record may have one too. Several times faster than
    /// [`Claim::of`].
    #[inline]
    pub fn epoch_of(bytes: &[u8]) -> Option<u64> {
        let (&flags, rest) = bytes.split_first()?;
        Kind::of(flags)?;
        match rest.first_chunk().and_then(fourth_varint) {
            Some(epoch) => Some(epoch >> VERSION_BITS),
            None => Claim::of(bytes).map(|claim| claim.sequence >> SEQUENCE_EPOCH_SHIFT),
        }
    }
}

/// Checksums of a record.
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

/// Header in front of the key, not verified.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) flags: u8,
    pub(crate) kind: Kind,
    pub(crate) key_bytes: usize,
    pub(crate) value_bytes: usize,
    pub(crate) sequence: u64,
    pub(crate) version: Option<u64>,
    pub(crate) expires_at_ms: Option<u64>,
    pub(crate) keyspace: Keyspace,
    pub(crate) compressed: Option<Compressed>,
    pub(crate) checks: Checks,
    /// Length in bytes of the part that the CRC covers.
    head_bytes: usize,
    /// Length in bytes of the whole header.
    pub(crate) bytes: usize,
}

impl Header {
    #[inline]
    pub(crate) fn parse(bytes: &[u8]) -> Result<Header, Damage> {
        // If the bytes end before the longest possible header would, the record may have been cut off.
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
        let lower = number(NUMBERS)?;
        let epoch = number(EPOCHS << VERSION_BITS)?;
        let sequence = lower | epoch >> VERSION_BITS << SEQUENCE_EPOCH_SHIFT;
        let version = if epoch & 1 != 0 { Some(get_varint(&mut rest).ok_or(wrong)?) } else { None };
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
            version,
            expires_at_ms,
            keyspace,
            compressed,
            checks,
            head_bytes,
            bytes,
        })
    }

    /// Returns the CRC that head and key should have.
    pub(crate) fn crc(&self, bytes: &[u8], identity: &Identity) -> u32 {
        identity.crc(&[&bytes[..self.head_bytes], &bytes[self.bytes..self.bytes + self.key_bytes]])
    }
}

/// Reads the keyspace at the front. Never the first keyspace, which is not written.
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

    /// For random bytes, [`Claim::epoch_of`] returns the epoch of every record that [`Claim::of`] finds, wherever the
    /// bytes end.
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
