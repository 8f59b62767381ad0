//! A record: one version of one key.
//!
//! ```text
//! flags (1) | lengths | sequence | expiry, if flagged | checksums (8 or 12) | key | value | zeros up to the granule
//! ```
//!
//! What stands in front of the key is the header; its numbers are LEB128. A CRC32C covers the record's identity, its header
//! and its key. A **long** value has a checksum of its own, which that CRC covers: such a record moves to another place by
//! writing a new header, without reading its value, and its key can be read without its value. A **small** value is
//! checked together with its header: the CRC is not written, but seeds the value's checksum of 64 bits.

use esker_planted::{Bug, planted};

use crate::checksum::{Identity, Secret};
use crate::layout::Field;
use crate::varint::{get_varint, varint_bytes, write_varint};

/// Length of the longest header: flags, lengths of key and value, both parts of a sequence number, expiry, checksums.
pub const HEADER_BYTES_MAX: usize = 1 + 3 + 5 + 6 + 4 + 10 + LONG_CHECK_BYTES;
/// Longest key.
pub const MAX_KEY_BYTES: usize = 65_536;
/// Values up to this length are checked together with their header.
pub const SMALL_VALUE_BYTES: usize = 512;

const CHECK_BYTES: usize = 8;
const CRC_BYTES: usize = 4;
const LONG_CHECK_BYTES: usize = CRC_BYTES + CHECK_BYTES;

/// A sequence number is two: which opening it is of, and which number there.
/// Each opening has so many bits of sequence numbers to itself, a trillion writes; above them is the number of the opening.
pub const SEQUENCE_EPOCH_SHIFT: u32 = 40;
const NUMBERS: u64 = 1 << SEQUENCE_EPOCH_SHIFT;
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
const EXPIRES: u8 = 1 << 2;
const BATCH_GOES_ON: u8 = 1 << 3;
const SHORT_LIVED: u8 = 1 << 4;
const LONG: u8 = 1 << 5;
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

/// A record to be written.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// What it says.
    pub kind: Kind,
    /// The key, 1 to [`MAX_KEY_BYTES`] bytes.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// [`Secret::value_check`] of the value.
    pub value_check: Option<u64>,
    /// Sequence number.
    pub sequence: u64,
    /// Wall-clock milliseconds since the Unix epoch at which it expires.
    pub expires_at_ms: Option<u64>,
    /// Whether the next record belongs to the same batch. A frame is whole or void, so this matters only where a frame
    /// was not closed: in memory that outlived its process.
    pub batch_goes_on: bool,
    /// Whether the version that it displaced had lived briefly, so that it is expected to do so too. A hint: it says to
    /// which segment destaging takes it.
    pub short_lived: bool,
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

impl<'a> Record<'a> {
    /// A tombstone.
    pub fn tombstone(key: &'a [u8], sequence: u64) -> Record<'a> {
        Record {
            kind: Kind::Tombstone,
            key,
            value: &[],
            value_check: None,
            sequence,
            expires_at_ms: None,
            batch_goes_on: false,
            short_lived: false,
        }
    }

    /// Length on the medium, without the padding to the granule.
    #[inline]
    pub fn bytes(&self) -> usize {
        let (key, value) = (self.key.len(), self.value.len());
        header_bytes(key, value, self.sequence, self.expires_at_ms) + key + value
    }

    /// The header of a record that will lie at `identity`. The key and the value follow it.
    pub fn encode_header(&self, identity: &Identity) -> EncodedHeader {
        assert!((1..=MAX_KEY_BYTES).contains(&self.key.len()), "key of {} bytes", self.key.len());
        assert_eq!(
            self.value_check.is_some(),
            self.value.len() > SMALL_VALUE_BYTES,
            "long values have a checksum of their own, and no others"
        );
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let mut bytes = [0u8; HEADER_BYTES_MAX];
        bytes[0] = self.kind as u8
            | flag(self.expires_at_ms.is_some(), EXPIRES)
            | flag(self.batch_goes_on, BATCH_GOES_ON)
            | flag(self.short_lived, SHORT_LIVED)
            | flag(self.value_check.is_some(), LONG);
        let mut len = write_varint(&mut bytes, 1, self.key.len() as u64 - 1);
        len = write_varint(&mut bytes, len, self.value.len() as u64);
        len = write_varint(&mut bytes, len, self.sequence % NUMBERS);
        len = write_varint(&mut bytes, len, self.sequence >> SEQUENCE_EPOCH_SHIFT);
        if let Some(expiry) = self.expires_at_ms {
            len = write_varint(&mut bytes, len, expiry);
        }
        if let Some(check) = self.value_check {
            len = put(&mut bytes, len, &check.to_le_bytes());
        }
        let crc = identity.crc(&[&bytes[..len], self.key]);
        len = match self.value_check {
            Some(_) => put(&mut bytes, len, &crc.to_le_bytes()),
            None => put(&mut bytes, len, &identity.small_check(crc, self.value).to_le_bytes()),
        };
        EncodedHeader { bytes, len, crc }
    }
}

/// Writes `part` at `at`, and says where it ends.
#[inline]
fn put(to: &mut [u8], at: usize, part: &[u8]) -> usize {
    to[at..at + part.len()].copy_from_slice(part);
    at + part.len()
}

/// A record's header as it lies on the medium.
pub struct EncodedHeader {
    bytes: [u8; HEADER_BYTES_MAX],
    len: usize,
    /// CRC32C of identity, head and key.
    pub(crate) crc: u32,
}

impl std::ops::Deref for EncodedHeader {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
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
enum Checks {
    Long { crc: u32, value: u64 },
    Small(u64),
}

impl Checks {
    fn is_long(self) -> bool {
        matches!(self, Checks::Long { .. })
    }
}

/// What stands in front of the key, not verified.
#[derive(Clone, Copy, Debug)]
struct Header {
    flags: u8,
    kind: Kind,
    key_bytes: usize,
    value_bytes: usize,
    sequence: u64,
    expires_at_ms: Option<u64>,
    checks: Checks,
    /// Length of what the CRC covers of it.
    head_bytes: usize,
    /// Length of all of it.
    bytes: usize,
}

impl Header {
    #[inline]
    fn parse(bytes: &[u8]) -> Result<Header, Damage> {
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
    fn crc(&self, bytes: &[u8], identity: &Identity) -> u32 {
        identity.crc(&[&bytes[..self.head_bytes], &bytes[self.bytes..self.bytes + self.key_bytes]])
    }
}

fn take<const N: usize>(from: &mut &[u8]) -> Result<[u8; N], Damage> {
    let (taken, rest) = from.split_first_chunk::<N>().ok_or(Damage::Length)?;
    *from = rest;
    Ok(*taken)
}

/// A record that was read; all but a long value is verified, and that only by [`verify_value`](Self::verify_value).
#[derive(Clone, Copy, Debug)]
pub struct RecordView<'a> {
    /// What it says.
    pub kind: Kind,
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// Both, as they lie one behind the other.
    pub key_and_value: &'a [u8],
    /// Checksum that a long value should have.
    pub value_check: Option<u64>,
    /// Sequence number.
    pub sequence: u64,
    /// When it expires.
    pub expires_at_ms: Option<u64>,
    /// Whether the next record belongs to the same batch.
    pub batch_goes_on: bool,
    /// Whether it is expected to live briefly.
    pub short_lived: bool,
    header_bytes: usize,
}

/// What is known of a record before its value is read, if that is long.
#[derive(Clone, Copy, Debug)]
pub struct RecordHead<'a> {
    /// What it says.
    pub kind: Kind,
    /// The key.
    pub key: &'a [u8],
    /// Where in the record the value begins.
    pub value_offset: usize,
    /// Length of the value.
    pub value_bytes: usize,
    /// Checksum that a long value should have.
    pub value_check: Option<u64>,
    /// Sequence number.
    pub sequence: u64,
    /// When it expires.
    pub expires_at_ms: Option<u64>,
}

impl<'a> RecordHead<'a> {
    /// Reads the head of the record that begins at the start of `bytes` and lies at `identity`, and verifies it. A small
    /// value has to be there too.
    pub fn parse(bytes: &'a [u8], identity: &Identity) -> Result<RecordHead<'a>, Damage> {
        let header = Header::parse(bytes)?;
        let value_offset = header.bytes + header.key_bytes;
        let key = bytes.get(header.bytes..value_offset).ok_or(Damage::Length)?;
        let value_check = match header.checks {
            Checks::Long { crc, value } if crc == header.crc(bytes, identity) => Some(value),
            Checks::Long { .. } => return Err(Damage::Header),
            Checks::Small(_) => RecordView::parse(bytes, identity)?.value_check,
        };
        Ok(RecordHead {
            kind: header.kind,
            key,
            value_offset,
            value_bytes: header.value_bytes,
            value_check,
            sequence: header.sequence,
            expires_at_ms: header.expires_at_ms,
        })
    }
}

/// A record as it claims to be, and what can be told of that.
pub(crate) struct Claimed<'a> {
    pub(crate) record: RecordView<'a>,
    /// The CRC of identity, head and key as they are.
    pub(crate) crc: u32,
    /// Why it is not to be believed.
    pub(crate) damage: Option<Damage>,
}

impl<'a> RecordView<'a> {
    /// Reads the record that begins at the start of `bytes` and lies at `identity`.
    pub fn parse(bytes: &'a [u8], identity: &Identity) -> Result<RecordView<'a>, Damage> {
        let claimed = RecordView::claimed(bytes, identity)?;
        claimed.damage.map_or(Ok(claimed.record), Err)
    }

    /// As [`parse`](Self::parse), but shows what does not verify: where only a small value is damaged, its length and key
    /// are as they were.
    pub(crate) fn claimed(bytes: &'a [u8], identity: &Identity) -> Result<Claimed<'a>, Damage> {
        let header = Header::parse(bytes)?;
        // The lengths only say where things should end, before the checksum that covers them agrees.
        if bytes.len() < header.bytes + header.key_bytes {
            return Err(Damage::Length);
        }
        let crc = header.crc(bytes, identity);
        let damage = match header.checks {
            Checks::Long { crc: wanted, .. } => (crc != wanted).then_some(Damage::Header),
            Checks::Small(wanted) => {
                let value = RecordView::with_value(bytes, &header)?.value;
                let is_right = identity.small_check(crc, value) == wanted || planted(Bug::ValueNotVerified);
                (!is_right).then_some(Damage::Record)
            }
        };
        if let Some(Damage::Header) = damage {
            return Err(Damage::Header);
        }
        Ok(Claimed { record: RecordView::with_value(bytes, &header)?, crc, damage })
    }

    /// Reads a record in the memory that this process has written it to, at a place that is known to hold one. It is not
    /// verified, as nothing else that is only in memory is.
    pub fn in_memory(bytes: &'a [u8], identity: &Identity) -> Result<RecordView<'a>, Damage> {
        debug_assert!(
            RecordView::claimed(bytes, identity).is_ok_and(|claimed| claimed.damage.is_none()),
            "{identity:?} is no place of a record"
        );
        RecordView::with_value(bytes, &Header::parse(bytes)?)
    }

    #[inline]
    fn with_value(bytes: &'a [u8], header: &Header) -> Result<RecordView<'a>, Damage> {
        let Header { flags, kind, key_bytes, value_bytes, sequence, expires_at_ms, checks, .. } = *header;
        let end = header.bytes + key_bytes + value_bytes;
        let key_and_value = bytes.get(header.bytes..end).ok_or(Damage::Length)?;
        let (key, value) = key_and_value.split_at(key_bytes);
        Ok(RecordView {
            kind,
            key,
            value,
            key_and_value,
            value_check: if let Checks::Long { value, .. } = checks { Some(value) } else { None },
            sequence,
            expires_at_ms,
            batch_goes_on: flags & BATCH_GOES_ON != 0,
            short_lived: flags & SHORT_LIVED != 0,
            header_bytes: header.bytes,
        })
    }

    /// Length on the medium, without the padding to the granule.
    pub fn bytes(&self) -> usize {
        self.header_bytes + self.key_and_value.len()
    }

    /// Verifies a long value.
    pub fn verify_value(&self, secret: &Secret) -> Result<(), Damage> {
        let is_right = secret.value_check(self.value) == self.value_check || planted(Bug::ValueNotVerified);
        if is_right { Ok(()) } else { Err(Damage::Value) }
    }

    /// The same record, to be written elsewhere, by itself.
    pub fn to_record(&self) -> Record<'a> {
        let RecordView { kind, key, value, value_check, sequence, expires_at_ms, short_lived, .. } = *self;
        Record { kind, key, value, value_check, sequence, expires_at_ms, batch_goes_on: false, short_lived }
    }
}
