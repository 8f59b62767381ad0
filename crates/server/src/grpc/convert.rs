//! Conversions between messages and types of the engine.

use bytes::Bytes;
use esker_engine::{Batch, Condition, Durability, Entry, KeyEntry, Store, WriteOptions};
use tonic::Status;

use super::error::invalid;
use super::pb;
use crate::service::{KEY_BYTES_MAX, LAST_MS};

/// Maximum bytes of a message beyond a value: a key and the other fields.
pub(super) const BESIDE_VALUE_BYTES: usize = 128 << 10;

pub(super) fn check_key(key: &Bytes) -> Result<(), Status> {
    match key.len() {
        0 => Err(invalid(format!("the key is empty; it has 1 to {KEY_BYTES_MAX} bytes"))),
        1..=KEY_BYTES_MAX => Ok(()),
        bytes => Err(invalid(format!("the key has {bytes} bytes; it has 1 to {KEY_BYTES_MAX}"))),
    }
}

/// Fails if the prefix is longer than any key.
pub(super) fn check_prefix(prefix: &Bytes) -> Result<(), Status> {
    match prefix.len() {
        0..=KEY_BYTES_MAX => Ok(()),
        bytes => Err(invalid(format!("the prefix has {bytes} bytes; a key has 1 to {KEY_BYTES_MAX}"))),
    }
}

fn durability(options: Option<pb::WriteOptions>) -> Result<Option<Durability>, Status> {
    let Some(options) = options else { return Ok(None) };
    let level = pb::Durability::try_from(options.durability)
        .map_err(|_| invalid(format!("{} is no durability", options.durability)))?;
    if options.period_ms > 0 && level != pb::Durability::Periodic {
        return Err(invalid("period_ms is of no use without DURABILITY_PERIODIC"));
    }
    Ok(match level {
        pb::Durability::Unspecified => None,
        pb::Durability::Sync => Some(Durability::Sync),
        pb::Durability::Process => Some(Durability::Process),
        pb::Durability::None => Some(Durability::None),
        pb::Durability::Periodic => {
            let ms = if options.period_ms == 0 { 1000 } else { u64::from(options.period_ms) };
            let (least, most) = (Durability::PERIODS_MS.start(), Durability::PERIODS_MS.end());
            let wrong = || invalid(format!("period_ms is {ms}; it is {least} to {most}"));
            Some(Durability::periodic_ms(ms).ok_or_else(wrong)?)
        }
    })
}

fn condition(condition: Option<pb::Condition>) -> Result<Condition, Status> {
    let Some(condition) = condition else { return Ok(Condition::Always) };
    match condition.is {
        Some(pb::condition::Is::Absent(true)) => Ok(Condition::IfAbsent),
        Some(pb::condition::Is::Present(true)) => Ok(Condition::IfPresent),
        Some(pb::condition::Is::Version(version)) => Ok(Condition::IfVersion(version)),
        _ => Err(invalid("the condition says nothing; it is absent: true, present: true or a version")),
    }
}

pub(super) fn expires_at_ms(store: &Store, expiry: Option<pb::Expiry>) -> Result<Option<u64>, Status> {
    let Some(expiry) = expiry else { return Ok(None) };
    let at = match expiry.at {
        Some(pb::expiry::At::TtlMs(ttl @ 1..)) => store
            .now_ms()
            .checked_add(ttl)
            .ok_or_else(|| invalid(format!("ttl_ms is {ttl}, which is beyond the end of time")))?,
        Some(pb::expiry::At::AtMs(at @ 1..)) => at,
        _ => return Err(invalid("the expiry says nothing; it is ttl_ms or at_ms, of at least 1")),
    };
    Ok(Some(at.min(LAST_MS)))
}

pub(super) fn write_options(
    store: &Store,
    expiry: Option<pb::Expiry>,
    wanted: Option<pb::Condition>,
    options: Option<pb::WriteOptions>,
) -> Result<WriteOptions, Status> {
    Ok(WriteOptions {
        durability: durability(options)?,
        expires_at_ms: expires_at_ms(store, expiry)?,
        condition: condition(wanted)?,
        ..WriteOptions::default()
    })
}

/// Converts an entry without its value.
pub(super) fn key_entry(entry: KeyEntry) -> pb::Entry {
    let KeyEntry { key, value_bytes, version, expires_at_ms } = entry;
    pb::Entry { key, value: Bytes::new(), version, expires_at_ms, value_bytes }
}

/// Adds a put to a batch.
pub(super) fn put_into(batch: &mut Batch, key: Bytes, value: Bytes, expires_at_ms: Option<u64>) {
    match expires_at_ms {
        Some(at_ms) => batch.put_expiring(key, value, at_ms),
        None => batch.put(key, value),
    };
}

/// Returns the expiry of a key after a write: the given one, unless the key exists and keeps its own.
pub(super) fn kept_expiry(entry: Option<&Entry>, keep: bool, given: Option<u64>) -> Option<u64> {
    match entry {
        Some(entry) if keep => entry.expires_at_ms,
        _ => given,
    }
}

/// Returns the previous entry for the answer of a write. A value longer than `value_bytes_max` is left out.
pub(super) fn previous(before: Option<&Entry>, value_bytes_max: usize) -> Option<pb::Entry> {
    before.map(|before| entry(before.clone(), before.value.len() <= value_bytes_max))
}

/// Converts an entry, with or without its value.
pub(super) fn entry(entry: Entry, with_value: bool) -> pb::Entry {
    pb::Entry {
        value_bytes: entry.value.len() as u64,
        value: if with_value { entry.value } else { Bytes::new() },
        key: entry.key,
        version: entry.version,
        expires_at_ms: entry.expires_at_ms,
    }
}
