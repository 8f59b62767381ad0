//! A record: one version of one key.
//!
//! ```text
//! flags (1) | lengths | sequence | what is flagged | checksums (8 or 12) | key | value | zeros up to the granule
//! ```
//!
//! What stands in front of the key is the header; its numbers are LEB128. A CRC32C covers the record's identity, its header
//! and its key. A **long** value has a checksum of its own, which that CRC covers: such a record moves to another place by
//! writing a new header, without reading its value, and its key can be read without its value. A **small** value is
//! checked together with its header: the CRC is not written, but seeds the value's checksum of 64 bits.

use std::borrow::Cow;
use std::ops::Range;

use esker_index::Keyspace;
use esker_seeded_bugs::{Bug, planted};

use crate::checksum::{Identity, SMALL_VALUE_BYTES, Secret};
use crate::compression::{Compressed, decompress, decompress_part};
use crate::header::{
    BATCH_GOES_ON, COMPRESSED, Checks, Damage, ELSEWHERE, EXPIRES, HEADER_BYTES_MAX, Header, Kind, LONG,
    MAX_KEY_BYTES, NUMBERS, SEQUENCE_EPOCH_SHIFT, SHORT_LIVED, header_bytes, keyspace_bytes, raw_field,
    raw_field_bytes,
};
use crate::location::length_class;
use crate::varint::write_varint;

/// A record to be written.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// What it says.
    pub kind: Kind,
    /// The keyspace that the key belongs to.
    pub keyspace: Keyspace,
    /// The key, 1 to [`MAX_KEY_BYTES`] bytes.
    pub key: &'a [u8],
    /// The value, as it is stored.
    pub value: &'a [u8],
    /// How it is compressed.
    pub compressed: Option<Compressed>,
    /// [`Secret::value_check`] of the value as it is stored.
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

/// By how many length classes a record would be longer if its value were not compressed, of which `value_bytes` are stored.
pub fn expansion_of(record_bytes: usize, value_bytes: usize, compressed: Option<Compressed>) -> u8 {
    let Some(how) = compressed else { return 0 };
    let raw_bytes = record_bytes as u64 - value_bytes as u64 + u64::from(how.raw_bytes);
    length_class(raw_bytes) - length_class(record_bytes as u64)
}

impl<'a> Record<'a> {
    /// A tombstone.
    pub fn tombstone(keyspace: Keyspace, key: &'a [u8], sequence: u64) -> Record<'a> {
        Record {
            kind: Kind::Tombstone,
            keyspace,
            key,
            value: &[],
            compressed: None,
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
        let beside = keyspace_bytes(self.keyspace) + raw_field_bytes(self.compressed);
        header_bytes(key, value, self.sequence, self.expires_at_ms) + beside + key + value
    }

    /// See [`expansion_of`].
    #[inline]
    pub fn expansion(&self) -> u8 {
        match self.compressed {
            None => 0,
            how => expansion_of(self.bytes(), self.value.len(), how),
        }
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
            | flag(self.value_check.is_some(), LONG)
            | flag(self.keyspace != Keyspace::FIRST, ELSEWHERE)
            | flag(self.compressed.is_some(), COMPRESSED);
        let mut len = write_varint(&mut bytes, 1, self.key.len() as u64 - 1);
        len = write_varint(&mut bytes, len, self.value.len() as u64);
        len = write_varint(&mut bytes, len, self.sequence % NUMBERS);
        len = write_varint(&mut bytes, len, self.sequence >> SEQUENCE_EPOCH_SHIFT);
        if let Some(expiry) = self.expires_at_ms {
            len = write_varint(&mut bytes, len, expiry);
        }
        if self.keyspace != Keyspace::FIRST {
            len = put(&mut bytes, len, &[self.keyspace.number()]);
        }
        if let Some(how) = self.compressed {
            len = write_varint(&mut bytes, len, raw_field(how));
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

/// A record that was read; all but a long value is verified, and that only by [`verify_value`](Self::verify_value).
#[derive(Clone, Copy, Debug)]
pub struct RecordView<'a> {
    /// What it says.
    pub kind: Kind,
    /// The keyspace that the key belongs to.
    pub keyspace: Keyspace,
    /// The key.
    pub key: &'a [u8],
    /// The value, as it is stored.
    pub value: &'a [u8],
    /// How it is compressed.
    pub compressed: Option<Compressed>,
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
    /// The keyspace that the key belongs to.
    pub keyspace: Keyspace,
    /// The key.
    pub key: &'a [u8],
    /// Where in the record the value begins.
    pub value_offset: usize,
    /// Length of the value, as it is stored.
    pub value_bytes: usize,
    /// How it is compressed.
    pub compressed: Option<Compressed>,
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
            keyspace: header.keyspace,
            key,
            value_offset,
            value_bytes: header.value_bytes,
            compressed: header.compressed,
            value_check,
            sequence: header.sequence,
            expires_at_ms: header.expires_at_ms,
        })
    }

    /// Length of the value before it was compressed.
    pub fn raw_bytes(&self) -> u64 {
        self.compressed.map_or(self.value_bytes as u64, |how| how.raw_bytes.into())
    }

    /// Length on the medium, without the padding to the granule.
    pub fn bytes(&self) -> usize {
        self.value_offset + self.value_bytes
    }
}

/// A record as it claims to be, and what can be told of that.
pub(crate) struct Claimed<'a> {
    pub(crate) record: RecordView<'a>,
    /// The CRC of identity, head and key as they are.
    pub(crate) crc: u32,
    /// Why it is not to be believed.
    pub(crate) damage: Option<Damage>,
    /// The checksum that is written.
    wanted: Checks,
}

impl Claimed<'_> {
    /// Whether nothing but the head is damaged, if its CRC was this: then the checksum of head and value agrees.
    pub(crate) fn had(&self, crc: u32, identity: &Identity) -> bool {
        matches!(self.wanted, Checks::Small(wanted) if identity.small_check(crc, self.record.value) == wanted)
    }
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
        Ok(Claimed { record: RecordView::with_value(bytes, &header)?, crc, damage, wanted: header.checks })
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
        let Header { flags, kind, keyspace, key_bytes, value_bytes, compressed, .. } = *header;
        let Header { sequence, expires_at_ms, checks, .. } = *header;
        let end = header.bytes + key_bytes + value_bytes;
        let key_and_value = bytes.get(header.bytes..end).ok_or(Damage::Length)?;
        let (key, value) = key_and_value.split_at(key_bytes);
        Ok(RecordView {
            kind,
            keyspace,
            key,
            value,
            compressed,
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

    /// Length of the value before it was compressed.
    pub fn raw_bytes(&self) -> u64 {
        self.compressed.map_or(self.value.len() as u64, |how| how.raw_bytes.into())
    }

    /// See [`expansion_of`].
    pub fn expansion(&self) -> u8 {
        expansion_of(self.bytes(), self.value.len(), self.compressed)
    }

    /// The value before it was compressed. It takes the memory of [`raw_bytes`](Self::raw_bytes), which is for the caller to
    /// compare with what there can be.
    ///
    /// # Errors
    /// [`Damage::Compression`].
    pub fn raw_value(&self) -> Result<Cow<'a, [u8]>, Damage> {
        decompress(self.value, self.compressed)
    }

    /// A part of that, behind what is in `to`.
    ///
    /// # Errors
    /// [`Damage::Compression`].
    pub fn raw_part(&self, wanted: Range<usize>, mut to: Vec<u8>) -> Result<Vec<u8>, Damage> {
        let Some(how) = self.compressed else {
            to.extend_from_slice(&self.value[wanted]);
            return Ok(to);
        };
        decompress_part(self.value, how, wanted, to)
    }

    /// The same record, to be written elsewhere, by itself. Its value stays as it is compressed.
    pub fn to_record(&self) -> Record<'a> {
        let RecordView { kind, keyspace, key, value, compressed, value_check, .. } = *self;
        let RecordView { sequence, expires_at_ms, short_lived, .. } = *self;
        let batch_goes_on = false;
        Record {
            kind,
            keyspace,
            key,
            value,
            compressed,
            value_check,
            sequence,
            expires_at_ms,
            batch_goes_on,
            short_lived,
        }
    }
}
