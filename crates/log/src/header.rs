//! What stands in front of a record's key: flags, numbers, checksums. How it is written and read.

use crate::checksum::{Identity, SMALL_VALUE_BYTES};
use crate::layout::Field;
use crate::varint::{get_varint, varint_bytes};

/// Length of the longest header: flags, lengths of key and value, both parts of a sequence number, expiry, checksums.
pub const HEADER_BYTES_MAX: usize = 1 + 3 + 5 + 6 + 4 + 10 + LONG_CHECK_BYTES;
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
         record; bit 4: its predecessor lived briefly; bit 5: the value is long; others zero",
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
const KNOWN: u8 = KIND | EXPIRES | BATCH_GOES_ON | SHORT_LIVED | LONG;

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

/// The most that a record takes on the medium, without the padding to the granule: its sequence number and its expiry are
/// as long as they can be.
pub fn record_bytes_max(key_bytes: usize, value_bytes: usize, expires: bool) -> usize {
    let numbers = varint_bytes(NUMBERS - 1) + varint_bytes(EPOCHS - 1);
    let expiry = if expires { varint_bytes(u64::MAX) } else { 0 };
    fixed_bytes(key_bytes, value_bytes) + numbers + expiry + key_bytes + value_bytes
}

/// Length of a record's header.
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
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Damage::Header => "record header does not match its checksum",
            Damage::Value => "value does not match its checksum",
            Damage::Record => "record does not match its checksum",
            Damage::Length => "record is longer than the space it lies in",
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
        let kind = Kind::of(flags).filter(|_| flags & !KNOWN == 0).ok_or(Damage::Header)?;
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
        Ok(Header { flags, kind, key_bytes, value_bytes, sequence, expires_at_ms, checks, head_bytes, bytes })
    }

    /// The CRC that head and key should have.
    pub(crate) fn crc(&self, bytes: &[u8], identity: &Identity) -> u32 {
        identity.crc(&[&bytes[..self.head_bytes], &bytes[self.bytes..self.bytes + self.key_bytes]])
    }
}

fn take<const N: usize>(from: &mut &[u8]) -> Result<[u8; N], Damage> {
    let (taken, rest) = from.split_first_chunk::<N>().ok_or(Damage::Length)?;
    *from = rest;
    Ok(*taken)
}
