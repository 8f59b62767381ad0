//! Changes of keys as bytes, in entries of the log and in parts of snapshots (`docs/decisions/0051-groups.md`).

use bytes::{Buf, BufMut, Bytes};
use esker_engine::{Codec, Compressed, StoredChange, StoredValue};

use crate::input::{get_bytes, get_number, put_bytes, put_number};

pub(crate) const DELETE: u8 = 0;
pub(crate) const PUT: u8 = 1;
pub(crate) const COMPRESSED_PUT: u8 = 2;
/// Added to the kind of a put with an expiry.
pub(crate) const EXPIRES: u8 = 16;

/// Bytes of the shortest change: its kind and the length of an empty key.
const CHANGE_BYTES_MIN: usize = 2;

/// Appends the number of changes, and the changes without their origins.
pub(crate) fn put_changes(to: &mut Vec<u8>, changes: &[StoredChange]) {
    put_number(to, changes.len() as u64);
    changes.iter().for_each(|change| put_change(to, change));
}

/// Encodes changes by themselves.
pub(crate) fn encode_changes(changes: &[StoredChange]) -> Bytes {
    let mut to = Vec::with_capacity(changes_bytes(changes));
    put_changes(&mut to, changes);
    to.into()
}

/// Decodes changes of a [`CopyPart`](crate::view::CopyPart); `None` if they are damaged. Keys and values share their memory.
pub fn decode_changes(changes: &Bytes) -> Option<Vec<StoredChange>> {
    let mut from = changes.clone();
    get_changes(&mut from).filter(|_| from.is_empty())
}

/// Takes changes. Keys and values share the memory of the message.
pub(crate) fn get_changes(from: &mut Bytes) -> Option<Vec<StoredChange>> {
    let count = get_number(from)?;
    get_counted(count, from)
}

/// Takes `count` changes. The list grows with them, because a change in memory is longer than the shortest one here.
pub(crate) fn get_counted(count: u64, from: &mut Bytes) -> Option<Vec<StoredChange>> {
    if count > (from.len() / CHANGE_BYTES_MIN) as u64 {
        return None;
    }
    let mut changes = Vec::new();
    for _ in 0..count {
        changes.push(get_change(from)?);
    }
    Some(changes)
}

/// Returns about the length of changes in bytes, at least as much as [`put_changes`] appends.
pub(crate) fn changes_bytes(changes: &[StoredChange]) -> usize {
    let value = |change: &StoredChange| change.value.as_ref().map_or(0, |value| value.bytes.len());
    16 + changes.iter().map(|change| 36 + change.key.len() + value(change)).sum::<usize>()
}

fn put_change(to: &mut Vec<u8>, change: &StoredChange) {
    let Some(value) = &change.value else {
        to.put_u8(DELETE);
        return put_bytes(to, &change.key);
    };
    let kind = if value.compressed.is_some() { COMPRESSED_PUT } else { PUT };
    to.put_u8(kind + if value.expires_at_ms.is_some() { EXPIRES } else { 0 });
    put_bytes(to, &change.key);
    if let Some(expires_at_ms) = value.expires_at_ms {
        to.put_u64_le(expires_at_ms);
    }
    if let Some(compressed) = value.compressed {
        to.put_u8(compressed.codec as u8);
        to.put_u32_le(compressed.raw_bytes);
    }
    put_bytes(to, &value.bytes);
}

fn get_change(from: &mut Bytes) -> Option<StoredChange> {
    let kind = from.try_get_u8().ok()?;
    let key = get_bytes(from)?;
    let change = |value| Some(StoredChange { key, value, origin: 0 });
    if kind == DELETE {
        return change(None);
    }
    let expires_at_ms = if kind & EXPIRES != 0 { Some(from.try_get_u64_le().ok()?) } else { None };
    let compressed = match kind & !EXPIRES {
        PUT => None,
        COMPRESSED_PUT => Some(get_compressed(from)?),
        _ => return None,
    };
    change(Some(StoredValue { bytes: get_bytes(from)?, compressed, expires_at_ms }))
}

fn get_compressed(from: &mut Bytes) -> Option<Compressed> {
    let number = from.try_get_u8().ok()?;
    let codec = [Codec::Lz4, Codec::Zstd].into_iter().find(|codec| *codec as u8 == number)?;
    Some(Compressed { codec, raw_bytes: from.try_get_u32_le().ok()? })
}
