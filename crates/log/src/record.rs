//! A record: one version of one key.
//!
//! ```text
//! flags (1) | lengths | sequence | flagged fields | checksums (8 or 12) | key | value | zeros up to the granule
//! ```
//!
//! The bytes in front of the key are the header; its numbers are LEB128. A CRC32C covers the record's identity, its
//! header and its key. A **long** value has a checksum of its own, which that CRC covers: such a record is relocated by
//! writing a new header, without reading its value, and its key can be read without its value. A **small** value is
//! checked together with its header: the CRC is not written, but seeds the value's 64-bit checksum.

use std::borrow::Cow;
use std::ops::Range;

use esker_index::Keyspace;
use esker_seeded_bugs::{Bug, planted};

use crate::checksum::{Identity, SMALL_VALUE_BYTES, Secret};
use crate::compression::{Compressed, decompress, decompress_part};
use crate::header::{
    BATCH_GOES_ON, COMPRESSED, Checks, Damage, ELSEWHERE, EXPIRES, HEADER_BYTES_MAX, Header, Kind, LONG,
    MAX_KEY_BYTES, NUMBERS, SHORT_LIVED, epoch_field, header_bytes, keyspace_bytes, raw_field,
    raw_field_bytes, version_bytes,
};
use crate::location::length_class;
use crate::varint::write_varint;

/// A record to be written.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Put or tombstone.
    pub kind: Kind,
    /// The keyspace that the key belongs to.
    pub keyspace: Keyspace,
    /// The key, 1 to [`MAX_KEY_BYTES`] bytes.
    pub key: &'a [u8],
    /// The value, as stored.
    pub value: &'a [u8],
    /// Codec and uncompressed length, if the value is compressed.
    pub compressed: Option<Compressed>,
    /// [`Secret::value_check`] of the stored value.
    pub value_check: Option<u64>,
    /// Sequence number.
    pub sequence: u64,
    /// Number of the change in the log of a replicated store. Records keep it when they are relocated; nothing else uses it
    /// yet.
    pub version: Option<u64>,
    /// Wall-clock milliseconds since the Unix epoch at which it expires.
    pub expires_at_ms: Option<u64>,
    /// True if the next record belongs to the same batch. A frame is recovered whole or not at all, so this matters
    /// only for a frame that was never closed: in the staging file.
    pub batch_goes_on: bool,
    /// True if the displaced version was short-lived, so that this one is expected to be as well. A hint for destaging,
    /// which chooses the output segment by it.
    pub short_lived: bool,
}

/// Returns the number of length classes by which a record would be longer uncompressed. `value_bytes` of `record_bytes`
/// are the stored value.
pub fn expansion_of(record_bytes: usize, value_bytes: usize, compressed: Option<Compressed>) -> u8 {
    let Some(how) = compressed else { return 0 };
    let raw_bytes = record_bytes as u64 - value_bytes as u64 + u64::from(how.raw_bytes);
    length_class(raw_bytes) - length_class(record_bytes as u64)
}

impl<'a> Record<'a> {
    /// Returns a tombstone.
    pub fn tombstone(keyspace: Keyspace, key: &'a [u8], sequence: u64) -> Record<'a> {
        Record {
            kind: Kind::Tombstone,
            keyspace,
            key,
            value: &[],
            compressed: None,
            value_check: None,
            sequence,
            version: None,
            expires_at_ms: None,
            batch_goes_on: false,
            short_lived: false,
        }
    }

    /// Returns the length on the medium, without padding to the granule.
    #[inline]
    pub fn bytes(&self) -> usize {
        let (key, value) = (self.key.len(), self.value.len());
        let beside =
            keyspace_bytes(self.keyspace) + raw_field_bytes(self.compressed) + version_bytes(self.version);
        header_bytes(key, value, self.sequence, self.expires_at_ms) + beside + key + value
    }

    /// Returns the [`expansion_of`] this record.
    #[inline]
    pub fn expansion(&self) -> u8 {
        match self.compressed {
            None => 0,
            how => expansion_of(self.bytes(), self.value.len(), how),
        }
    }

    /// Encodes the header of a record that will lie at `identity`. Key and value follow it.
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
        len = write_varint(&mut bytes, len, epoch_field(self.sequence, self.version.is_some()));
        if let Some(version) = self.version {
            len = write_varint(&mut bytes, len, version);
        }
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

/// Writes `part` at `at`. Returns its end.
#[inline]
fn put(to: &mut [u8], at: usize, part: &[u8]) -> usize {
    to[at..at + part.len()].copy_from_slice(part);
    at + part.len()
}

/// An encoded record header.
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

/// A parsed record. Everything is verified except a long value, which [`verify_value`](Self::verify_value) verifies.
#[derive(Clone, Copy, Debug)]
pub struct RecordView<'a> {
    /// Put or tombstone.
    pub kind: Kind,
    /// The keyspace that the key belongs to.
    pub keyspace: Keyspace,
    /// The key.
    pub key: &'a [u8],
    /// The value, as stored.
    pub value: &'a [u8],
    /// Codec and uncompressed length, if the value is compressed.
    pub compressed: Option<Compressed>,
    /// Key and value, which are contiguous.
    pub key_and_value: &'a [u8],
    /// Expected checksum of a long value.
    pub value_check: Option<u64>,
    /// Sequence number.
    pub sequence: u64,
    /// Number of the change in the log of a replicated store.
    pub version: Option<u64>,
    /// Expiry in wall-clock milliseconds since the Unix epoch.
    pub expires_at_ms: Option<u64>,
    /// True if the next record belongs to the same batch.
    pub batch_goes_on: bool,
    /// True if the record is expected to be short-lived.
    pub short_lived: bool,
    header_bytes: usize,
}

/// The verified parts of a record without a long value.
#[derive(Clone, Copy, Debug)]
pub struct RecordHead<'a> {
    /// Put or tombstone.
    pub kind: Kind,
    /// The keyspace that the key belongs to.
    pub keyspace: Keyspace,
    /// The key.
    pub key: &'a [u8],
    /// Byte offset of the value in the record.
    pub value_offset: usize,
    /// Length in bytes of the stored value.
    pub value_bytes: usize,
    /// Codec and uncompressed length, if the value is compressed.
    pub compressed: Option<Compressed>,
    /// Expected checksum of a long value.
    pub value_check: Option<u64>,
    /// Sequence number.
    pub sequence: u64,
    /// Expiry in wall-clock milliseconds since the Unix epoch.
    pub expires_at_ms: Option<u64>,
}

impl<'a> RecordHead<'a> {
    /// Parses and verifies the head of the record at the start of `bytes`, which lies at `identity`. A small value must
    /// be included in `bytes`.
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

    /// Returns the uncompressed length of the value.
    pub fn raw_bytes(&self) -> u64 {
        self.compressed.map_or(self.value_bytes as u64, |how| how.raw_bytes.into())
    }

    /// Returns the length on the medium, without padding to the granule.
    pub fn bytes(&self) -> usize {
        self.value_offset + self.value_bytes
    }

    /// Returns the [`expansion_of`] this record.
    pub fn expansion(&self) -> u8 {
        expansion_of(self.bytes(), self.value_bytes, self.compressed)
    }
}

/// A record as parsed, together with the result of its verification.
pub(crate) struct Claimed<'a> {
    pub(crate) record: RecordView<'a>,
    /// CRC of identity, head and key, computed from the bytes.
    pub(crate) crc: u32,
    /// The reason why the record is not valid.
    pub(crate) damage: Option<Damage>,
    /// The stored checksum.
    wanted: Checks,
}

impl Claimed<'_> {
    /// True if only the head is damaged, assuming that its original CRC was `crc`: the checksum of head and value then
    /// matches.
    pub(crate) fn had(&self, crc: u32, identity: &Identity) -> bool {
        matches!(self.wanted, Checks::Small(wanted) if identity.small_check(crc, self.record.value) == wanted)
    }
}

impl<'a> RecordView<'a> {
    /// Parses and verifies the record at the start of `bytes`, which lies at `identity`.
    pub fn parse(bytes: &'a [u8], identity: &Identity) -> Result<RecordView<'a>, Damage> {
        let claimed = RecordView::claimed(bytes, identity)?;
        claimed.damage.map_or(Ok(claimed.record), Err)
    }

    /// As [`parse`](Self::parse), but also returns a record that does not verify: if only a small value is damaged,
    /// length and key are still correct.
    pub(crate) fn claimed(bytes: &'a [u8], identity: &Identity) -> Result<Claimed<'a>, Damage> {
        let header = Header::parse(bytes)?;
        // Before the covering checksum matches, the lengths only bound the positions of key and value.
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

    /// Parses a record in memory that this process wrote, at a position known to hold one. It is not verified, like all
    /// other data that exists only in memory.
    pub fn in_memory(bytes: &'a [u8], identity: &Identity) -> Result<RecordView<'a>, Damage> {
        debug_assert!(
            RecordView::claimed(bytes, identity).is_ok_and(|claimed| claimed.damage.is_none()),
            "no record lies at {identity:?}"
        );
        RecordView::with_value(bytes, &Header::parse(bytes)?)
    }

    #[inline]
    fn with_value(bytes: &'a [u8], header: &Header) -> Result<RecordView<'a>, Damage> {
        let Header { flags, kind, keyspace, key_bytes, value_bytes, compressed, .. } = *header;
        let Header { sequence, version, expires_at_ms, checks, .. } = *header;
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
            version,
            expires_at_ms,
            batch_goes_on: flags & BATCH_GOES_ON != 0,
            short_lived: flags & SHORT_LIVED != 0,
            header_bytes: header.bytes,
        })
    }

    /// Returns the length on the medium, without padding to the granule.
    pub fn bytes(&self) -> usize {
        self.header_bytes + self.key_and_value.len()
    }

    /// Verifies a long value.
    pub fn verify_value(&self, secret: &Secret) -> Result<(), Damage> {
        let is_right = secret.value_check(self.value) == self.value_check || planted(Bug::ValueNotVerified);
        if is_right { Ok(()) } else { Err(Damage::Value) }
    }

    /// Returns the uncompressed length of the value.
    pub fn raw_bytes(&self) -> u64 {
        self.compressed.map_or(self.value.len() as u64, |how| how.raw_bytes.into())
    }

    /// Returns the [`expansion_of`] this record.
    pub fn expansion(&self) -> u8 {
        expansion_of(self.bytes(), self.value.len(), self.compressed)
    }

    /// Returns the uncompressed value. It takes [`raw_bytes`](Self::raw_bytes) bytes of memory; the caller must check
    /// beforehand that this is plausible.
    ///
    /// # Errors
    /// [`Damage::Compression`] and [`Damage::MissingCodec`].
    pub fn raw_value(&self) -> Result<Cow<'a, [u8]>, Damage> {
        decompress(self.value, self.compressed)
    }

    /// Appends a part of the uncompressed value to `to`.
    ///
    /// # Errors
    /// [`Damage::Compression`] and [`Damage::MissingCodec`].
    pub fn raw_part(&self, wanted: Range<usize>, mut to: Vec<u8>) -> Result<Vec<u8>, Damage> {
        let Some(how) = self.compressed else {
            to.extend_from_slice(&self.value[wanted]);
            return Ok(to);
        };
        decompress_part(self.value, how, wanted, to)
    }

    /// Returns the same record to be written elsewhere, outside a batch. Its value stays compressed.
    pub fn to_record(&self) -> Record<'a> {
        let RecordView { kind, keyspace, key, value, compressed, value_check, .. } = *self;
        let RecordView { sequence, version, expires_at_ms, short_lived, .. } = *self;
        let batch_goes_on = false;
        Record {
            kind,
            keyspace,
            key,
            value,
            compressed,
            value_check,
            sequence,
            version,
            expires_at_ms,
            batch_goes_on,
            short_lived,
        }
    }
}
