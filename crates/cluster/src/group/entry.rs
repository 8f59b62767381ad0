//! Entries of a group's log as bytes. Numbers of fixed length are little-endian.
//!
//! ```text
//! entry:    version (1) | number of proposals (varint) | proposals
//! proposal: number of changes (varint) | changes           a clear has one change, of which there is only the kind
//! change:   kind (1) | key length (varint) | key | [expiry (8)] | [codec (1) | raw length (4)] | [value length (varint) | value]
//! ```

use bytes::{Buf, BufMut, Bytes};
use esker_engine::{Codec, Compressed, StoredChange, StoredValue};

const VERSION: u8 = 1;
const DELETE: u8 = 0;
const PUT: u8 = 1;
const COMPRESSED: u8 = 2;
const EXPIRES: u8 = 16;
const CLEAR: u8 = 0xff;

/// Maximum length in bytes of a change without key and value.
const CHANGE_BYTES: usize = 1 + 5 + 8 + 5 + 5;
/// Maximum length of a varint of 64 bits.
const VARINT_BYTES: usize = 10;

/// What a proposal of an entry does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Changes that become visible as a whole.
    Changes(Vec<StoredChange>),
    /// Deletes all keys.
    Clear,
}

/// Returns the length of a proposal in an entry, or a little more.
pub(super) fn step_bytes(step: &Step) -> usize {
    let Step::Changes(changes) = step else { return 2 };
    let bytes = |change: &StoredChange| {
        CHANGE_BYTES + change.key.len() + change.value.as_ref().map_or(0, |value| value.bytes.len())
    };
    VARINT_BYTES + changes.iter().map(bytes).sum::<usize>()
}

fn put_varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    to.put_u8(value as u8);
}

/// Reads a varint in its shortest form.
fn get_varint(from: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = from.try_get_u8().ok()?;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits || (byte == 0 && shift > 0) {
            return None;
        }
        value |= bits << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn put_change(to: &mut Vec<u8>, change: &StoredChange) {
    let (mut kind, expiry) = match &change.value {
        None => (DELETE, None),
        Some(value) => (if value.compressed.is_some() { COMPRESSED } else { PUT }, value.expires_at_ms),
    };
    if expiry.is_some() {
        kind += EXPIRES;
    }
    to.put_u8(kind);
    put_varint(to, change.key.len() as u64);
    to.extend_from_slice(&change.key);
    let Some(value) = &change.value else { return };
    expiry.into_iter().for_each(|expiry| to.put_u64_le(expiry));
    if let Some(Compressed { codec, raw_bytes }) = value.compressed {
        to.put_u8(codec as u8);
        to.put_u32_le(raw_bytes);
    }
    put_varint(to, value.bytes.len() as u64);
    to.extend_from_slice(&value.bytes);
}

/// Encodes an entry.
pub fn encode_entry<'a>(steps: impl ExactSizeIterator<Item = &'a Step> + Clone) -> Bytes {
    let bytes: usize = steps.clone().map(step_bytes).sum();
    let mut to = Vec::with_capacity(1 + VARINT_BYTES + bytes);
    to.put_u8(VERSION);
    put_varint(&mut to, steps.len() as u64);
    for step in steps {
        match step {
            Step::Clear => {
                put_varint(&mut to, 1);
                to.put_u8(CLEAR);
            }
            Step::Changes(changes) => {
                put_varint(&mut to, changes.len() as u64);
                changes.iter().for_each(|change| put_change(&mut to, change));
            }
        }
    }
    to.into()
}

/// Takes a length and that many bytes, which are part of the entry: nothing is copied.
fn get_bytes(entry: &Bytes, from: &mut &[u8]) -> Option<Bytes> {
    let length = usize::try_from(get_varint(from)?).ok()?;
    let (bytes, rest) = from.split_at_checked(length)?;
    *from = rest;
    Some(entry.slice_ref(bytes))
}

fn get_change(entry: &Bytes, from: &mut &[u8], kind: u8) -> Option<StoredChange> {
    let key = get_bytes(entry, from)?;
    let has_expiry = kind >= EXPIRES;
    let value = match kind & !EXPIRES {
        DELETE if !has_expiry => None,
        kind @ (PUT | COMPRESSED) => {
            let expires_at_ms = if has_expiry { Some(from.try_get_u64_le().ok()?) } else { None };
            let compressed = if kind == COMPRESSED {
                let codec = match from.try_get_u8().ok()? {
                    number if number == Codec::Lz4 as u8 => Codec::Lz4,
                    number if number == Codec::Zstd as u8 => Codec::Zstd,
                    _ => return None,
                };
                Some(Compressed { codec, raw_bytes: from.try_get_u32_le().ok()? })
            } else {
                None
            };
            Some(StoredValue { bytes: get_bytes(entry, from)?, compressed, expires_at_ms })
        }
        _ => return None,
    };
    Some(StoredChange { key, value, origin: 0 })
}

fn get_step(entry: &Bytes, from: &mut &[u8]) -> Option<Step> {
    let count = get_varint(from)?;
    let mut changes = Vec::new();
    for _ in 0..count {
        match from.try_get_u8().ok()? {
            CLEAR if count == 1 => return Some(Step::Clear),
            kind => changes.push(get_change(entry, from, kind)?),
        }
    }
    Some(Step::Changes(changes))
}

/// Decodes an entry; `None` if it is damaged, or of a later version. Memory is taken only for what is there.
pub fn decode_entry(entry: &Bytes) -> Option<Vec<Step>> {
    let mut from = &entry[..];
    if from.try_get_u8().ok()? != VERSION {
        return None;
    }
    let count = get_varint(&mut from)?;
    let mut steps = Vec::new();
    for _ in 0..count {
        steps.push(get_step(entry, &mut from)?);
    }
    from.is_empty().then_some(steps)
}

#[cfg(test)]
#[path = "entry_tests.rs"]
mod tests;
