//! A record: one version of one key.
//!
//! ```text
//! header (32) | expiry (8, if flagged) | keyspace (1, if flagged) | key | value | zeros up to the granule
//! ```
//!
//! The header's CRC covers its identity, itself, the expiry, the keyspace and the key; the value's checksum is part of the header. So
//! a record moves to another place by writing a new header, without reading its value; and rot in a value leaves the key
//! readable, so that the error can name it.

use std::borrow::Cow;
use std::ops::Range;

use esker_index::Keyspace;
use esker_planted::{Bug, planted};

use crate::checksum::{Identity, Secret};
use crate::compression::{Codec, Compressed, decompress, decompress_part};
use crate::layout::{Field, is_dense};
use crate::location::class_of;

/// Length of a record's header.
pub const HEADER_BYTES: usize = 32;
const EXPIRY_BYTES: usize = 8;
/// What a record takes beyond [`record_bytes`] in keyspaces other than the first.
pub const KEYSPACE_BYTES: usize = 1;
/// Longest key.
pub const MAX_KEY_BYTES: usize = 65_536;

const KIND: Field = Field::new("kind", 0, 1, "1 put, 2 tombstone");
const FLAGS: Field = Field::new(
    "flags",
    1,
    1,
    "bit 0: an expiry follows; bit 1: the batch goes on in the next record; bit 2: its predecessor lived briefly; bits 3 and 4: how the value is compressed (0 not at all, 1 LZ4, 2 Zstandard); bit 7: the keyspace follows; others zero",
);
const KEY_BYTES: Field = Field::new("key_bytes", 2, 2, "length of the key less one");
const VALUE_BYTES: Field = Field::new("value_bytes", 4, 4, "length of the value as stored");
const SEQUENCE: Field = Field::new("sequence", 8, 8, "orders all versions; kept when the record moves");
const VALUE_CHECK: Field =
    Field::new("value_check", 16, 8, "XXH3-64 of the value as stored, seeded with the salt");
const RAW_BYTES: Field = Field::new("raw_bytes", 24, 4, "length before compression; 0 where there is none");
const CRC: Field = Field::new("crc", 28, 4, "CRC32C of identity, bytes 0..28, expiry, keyspace and key");
/// The record header's layout.
pub(crate) const FIELDS: &[Field] =
    &[KIND, FLAGS, KEY_BYTES, VALUE_BYTES, SEQUENCE, VALUE_CHECK, RAW_BYTES, CRC];
const _: () = assert!(is_dense(FIELDS, HEADER_BYTES));

const FLAG_EXPIRY: u64 = 1;
const FLAG_BATCH_GOES_ON: u64 = 2;
const FLAG_SHORT_LIVED: u64 = 4;
const CODEC_SHIFT: u32 = 3;
const CODEC_MASK: u64 = 3;
const FLAG_KEYSPACE: u64 = 1 << 7;
/// All bits that have a meaning.
const FLAGS_KNOWN: u64 =
    FLAG_EXPIRY | FLAG_BATCH_GOES_ON | FLAG_SHORT_LIVED | CODEC_MASK << CODEC_SHIFT | FLAG_KEYSPACE;
// None of them has two.
const _: () = assert!(
    FLAGS_KNOWN
        == FLAG_EXPIRY + FLAG_BATCH_GOES_ON + FLAG_SHORT_LIVED + (CODEC_MASK << CODEC_SHIFT) + FLAG_KEYSPACE
);

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
    pub(crate) fn from_byte(byte: u64) -> Option<Kind> {
        match byte {
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
    /// The keyspace that the key belongs to.
    pub keyspace: Keyspace,
    /// The key, 1 to [`MAX_KEY_BYTES`] bytes.
    pub key: &'a [u8],
    /// The value, as it is stored.
    pub value: &'a [u8],
    /// How it is compressed.
    pub compressed: Option<Compressed>,
    /// [`Secret::value_check`] of the value as it is stored.
    pub value_check: u64,
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

/// What a record of a keyspace takes beyond [`record_bytes`].
pub const fn keyspace_bytes(keyspace: Keyspace) -> usize {
    if keyspace.number() == Keyspace::FIRST.number() { 0 } else { KEYSPACE_BYTES }
}

/// Length on the medium, without the padding to the granule; of a record of the first keyspace.
pub fn record_bytes(key_bytes: usize, value_bytes: usize, expires: bool) -> usize {
    HEADER_BYTES + if expires { EXPIRY_BYTES } else { 0 } + key_bytes + value_bytes
}

/// By how many size classes a record would be longer if its value were not compressed, of which `value_bytes` are stored.
pub fn expansion_of(record_bytes: usize, value_bytes: usize, compressed: Option<Compressed>) -> u8 {
    let Some(how) = compressed else { return 0 };
    let raw_bytes = record_bytes as u64 - value_bytes as u64 + u64::from(how.raw_bytes);
    class_of(raw_bytes) - class_of(record_bytes as u64)
}

/// How a header says that its value is compressed. A record that says so is shorter than it would be, but has a value.
fn compressed(header: &[u8], kind: Kind) -> Result<Option<Compressed>, Damage> {
    let bits = FLAGS.get(header) >> CODEC_SHIFT & CODEC_MASK;
    let (raw_bytes, value_bytes) = (RAW_BYTES.get(header) as u32, VALUE_BYTES.get(header) as u32);
    if bits == 0 && raw_bytes == 0 {
        return Ok(None);
    }
    let codec = Codec::from_bits(bits).ok_or(Damage::Header)?;
    let is_shorter = value_bytes > 0 && value_bytes < raw_bytes;
    if is_shorter && kind == Kind::Put {
        Ok(Some(Compressed { codec, raw_bytes }))
    } else {
        Err(Damage::Header)
    }
}

impl<'a> Record<'a> {
    /// A tombstone.
    pub fn tombstone(keyspace: Keyspace, key: &'a [u8], sequence: u64, secret: &Secret) -> Record<'a> {
        Record {
            kind: Kind::Tombstone,
            keyspace,
            key,
            value: &[],
            compressed: None,
            value_check: secret.value_check(&[]),
            sequence,
            expires_at_ms: None,
            batch_goes_on: false,
            short_lived: false,
        }
    }

    /// Length on the medium, without the padding to the granule.
    pub fn bytes(&self) -> usize {
        record_bytes(self.key.len(), self.value.len(), self.expires_at_ms.is_some())
            + keyspace_bytes(self.keyspace)
    }

    /// See [`expansion_of`].
    pub fn expansion(&self) -> u8 {
        expansion_of(self.bytes(), self.value.len(), self.compressed)
    }

    /// Header, expiry and keyspace, for a record that will lie at `identity`. The key and the value follow them.
    pub fn encode_header(&self, identity: &Identity) -> EncodedHeader {
        assert!((1..=MAX_KEY_BYTES).contains(&self.key.len()), "key of {} bytes", self.key.len());
        let mut bytes = [0u8; HEADER_BYTES + EXPIRY_BYTES + KEYSPACE_BYTES];
        KIND.put(&mut bytes, self.kind as u64);
        let expires = if self.expires_at_ms.is_some() { FLAG_EXPIRY } else { 0 };
        let goes_on = if self.batch_goes_on { FLAG_BATCH_GOES_ON } else { 0 };
        let short_lived = if self.short_lived { FLAG_SHORT_LIVED } else { 0 };
        let codec = self.compressed.map_or(0, |how| how.codec as u64) << CODEC_SHIFT;
        let elsewhere = if self.keyspace == Keyspace::FIRST { 0 } else { FLAG_KEYSPACE };
        FLAGS.put(&mut bytes, expires | goes_on | short_lived | codec | elsewhere);
        KEY_BYTES.put(&mut bytes, self.key.len() as u64 - 1);
        VALUE_BYTES.put(&mut bytes, self.value.len() as u64);
        SEQUENCE.put(&mut bytes, self.sequence);
        VALUE_CHECK.put(&mut bytes, self.value_check);
        RAW_BYTES.put(&mut bytes, self.compressed.map_or(0, |how| u64::from(how.raw_bytes)));
        let mut len = HEADER_BYTES;
        if let Some(expiry) = self.expires_at_ms {
            bytes[len..len + EXPIRY_BYTES].copy_from_slice(&expiry.to_le_bytes());
            len += EXPIRY_BYTES;
        }
        if elsewhere != 0 {
            bytes[len] = self.keyspace.number();
            len += KEYSPACE_BYTES;
        }
        let crc = identity.crc(&[&bytes[..CRC.offset], &bytes[HEADER_BYTES..len], self.key]);
        CRC.put(&mut bytes, u64::from(crc));
        EncodedHeader { bytes, len }
    }
}

/// A record's header, expiry and keyspace as they lie on the medium.
pub struct EncodedHeader {
    bytes: [u8; HEADER_BYTES + EXPIRY_BYTES + KEYSPACE_BYTES],
    len: usize,
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
    /// Header, expiry or key do not agree with the checksum, or they belong elsewhere.
    Header,
    /// The value does not agree with its checksum.
    Value,
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
            Damage::Length => "record is longer than the space it lies in",
            Damage::Compression => {
                "compressed value does not decompress to the length that its record states"
            }
        })
    }
}

/// Length on the medium that a record's header claims, not verified; for finding the end of a record in memory.
pub fn claimed_bytes(header: &[u8]) -> Option<usize> {
    Some(claimed_head_bytes(header)? + VALUE_BYTES.get(header) as usize)
}

/// Length on the medium of header, expiry, keyspace and key that a record's header claims, not verified; for reading no more of
/// it.
pub fn claimed_head_bytes(header: &[u8]) -> Option<usize> {
    let header = header.get(..HEADER_BYTES)?;
    let flags = FLAGS.get(header);
    let elsewhere = if flags & FLAG_KEYSPACE != 0 { KEYSPACE_BYTES } else { 0 };
    Some(record_bytes(KEY_BYTES.get(header) as usize + 1, 0, flags & FLAG_EXPIRY != 0) + elsewhere)
}

/// A record that was read; header and key are verified, the value only by [`verify_value`](Self::verify_value).
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
    /// Checksum that the value should have.
    pub value_check: u64,
    /// Sequence number.
    pub sequence: u64,
    /// When it expires.
    pub expires_at_ms: Option<u64>,
    /// Whether the next record belongs to the same batch.
    pub batch_goes_on: bool,
    /// Whether it is expected to live briefly.
    pub short_lived: bool,
}

/// What is known of a record before its value is read.
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
    /// Checksum that the value should have.
    pub value_check: u64,
    /// Sequence number.
    pub sequence: u64,
    /// When it expires.
    pub expires_at_ms: Option<u64>,
    /// Whether the next record belongs to the same batch.
    pub batch_goes_on: bool,
    /// Whether it is expected to live briefly.
    pub short_lived: bool,
}

/// The keyspace that flags say begins these bytes, and what is behind it.
fn keyspace_of(flags: u64, bytes: &[u8]) -> Result<(Keyspace, &[u8]), Damage> {
    if flags & FLAG_KEYSPACE == 0 {
        return Ok((Keyspace::FIRST, bytes));
    }
    let (&number, rest) = bytes.split_first().ok_or(Damage::Length)?;
    let keyspace = Keyspace::new(number).filter(|keyspace| *keyspace != Keyspace::FIRST);
    Ok((keyspace.ok_or(Damage::Header)?, rest))
}

impl<'a> RecordHead<'a> {
    /// Reads the head of the record that begins at the start of `bytes` and lies at `identity`, and verifies it.
    pub fn parse(bytes: &'a [u8], identity: &Identity) -> Result<RecordHead<'a>, Damage> {
        let head = RecordHead::unverified(bytes)?;
        if head.is_verified_by(bytes, identity) { Ok(head) } else { Err(Damage::Header) }
    }

    /// Length of the value before it was compressed.
    pub fn raw_bytes(&self) -> u64 {
        self.compressed.map_or(self.value_bytes as u64, |how| how.raw_bytes.into())
    }

    /// Length on the medium, without the padding to the granule.
    pub fn bytes(&self) -> usize {
        self.value_offset + self.value_bytes
    }

    fn is_verified_by(&self, bytes: &[u8], identity: &Identity) -> bool {
        let crc = identity.crc(&[&bytes[..CRC.offset], &bytes[HEADER_BYTES..self.value_offset]]);
        u64::from(crc) == CRC.get(bytes)
    }

    /// As [`parse`](Self::parse), as far as it can be told without the checksum.
    fn unverified(bytes: &'a [u8]) -> Result<RecordHead<'a>, Damage> {
        let (header, rest) = bytes.split_at_checked(HEADER_BYTES).ok_or(Damage::Length)?;
        let kind = Kind::from_byte(KIND.get(header)).ok_or(Damage::Header)?;
        let flags = FLAGS.get(header);
        if flags & !FLAGS_KNOWN != 0 {
            return Err(Damage::Header);
        }
        let compressed = compressed(header, kind)?;
        let expiry_bytes = if flags & FLAG_EXPIRY != 0 { EXPIRY_BYTES } else { 0 };
        // The lengths only say where things should end, before the checksum that covers them agrees.
        let (expiry, rest) = rest.split_at_checked(expiry_bytes).ok_or(Damage::Length)?;
        let (keyspace, rest) = keyspace_of(flags, rest)?;
        let (key, _) = rest.split_at_checked(KEY_BYTES.get(header) as usize + 1).ok_or(Damage::Length)?;
        Ok(RecordHead {
            kind,
            keyspace,
            key,
            value_offset: HEADER_BYTES + expiry_bytes + keyspace_bytes(keyspace) + key.len(),
            value_bytes: VALUE_BYTES.get(header) as usize,
            compressed,
            value_check: VALUE_CHECK.get(header),
            sequence: SEQUENCE.get(header),
            expires_at_ms: expiry.try_into().ok().map(u64::from_le_bytes),
            batch_goes_on: flags & FLAG_BATCH_GOES_ON != 0,
            short_lived: flags & FLAG_SHORT_LIVED != 0,
        })
    }
}

impl<'a> RecordView<'a> {
    /// Reads the record that begins at the start of `bytes` and lies at `identity`.
    pub fn parse(bytes: &'a [u8], identity: &Identity) -> Result<RecordView<'a>, Damage> {
        RecordView::with_value(bytes, RecordHead::parse(bytes, identity)?)
    }

    /// Reads a record in the memory that this process has written it to, at a place that is known to hold one. It is not
    /// verified, as nothing else that is only in memory is.
    pub fn in_memory(bytes: &'a [u8], identity: &Identity) -> Result<RecordView<'a>, Damage> {
        let head = RecordHead::unverified(bytes)?;
        debug_assert!(head.is_verified_by(bytes, identity), "{identity:?} is no place of a record");
        RecordView::with_value(bytes, head)
    }

    fn with_value(bytes: &'a [u8], head: RecordHead<'a>) -> Result<RecordView<'a>, Damage> {
        let RecordHead { kind, keyspace, key, value_offset, value_bytes, compressed, value_check, .. } = head;
        let RecordHead { sequence, expires_at_ms, batch_goes_on, short_lived, .. } = head;
        let key_and_value = &bytes[value_offset - key.len()..];
        let key_and_value = key_and_value.get(..key.len() + value_bytes).ok_or(Damage::Length)?;
        let value = &key_and_value[key.len()..];
        Ok(RecordView {
            kind,
            keyspace,
            key,
            value,
            compressed,
            key_and_value,
            value_check,
            sequence,
            expires_at_ms,
            batch_goes_on,
            short_lived,
        })
    }

    /// Length on the medium, without the padding to the granule.
    pub fn bytes(&self) -> usize {
        record_bytes(self.key.len(), self.value.len(), self.expires_at_ms.is_some())
            + keyspace_bytes(self.keyspace)
    }

    /// Verifies the value.
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
