//! Changes that depend on existing entries: an update of keys in memory taken beforehand, and two calls based on it.

use bytes::Bytes;
use esker_engine::{Batch, Condition, Entry, WriteOptions};
use tonic::Status;

use super::call::{Call, Esker};
use super::convert::{expires_at_ms, kept_expiry, put_into, write_options};
use super::error::{invalid, not_a_number, of_store, out_of_range};
use super::pb;
use super::pb::touch_request::Becomes;

/// Reason why an update had no effect.
enum Undone {
    /// Its entries have this number of bytes, and not enough memory was taken.
    Larger(usize),
    Refused(Status),
}

/// Reads keys and writes the batch that `change` makes of their entries. Returns the outcome and the new versions. The memory for
/// the entries is taken before they are read: once for the entries, and `answered` times for copies in the answer.
pub(super) async fn update<T>(
    call: &Call,
    keys: &[Bytes],
    options: WriteOptions,
    answered: usize,
    change: impl Fn(&[Option<Entry>]) -> Result<(Batch, T), Status>,
) -> Result<(T, Vec<Option<u64>>), Status> {
    let (mut room, mut wanted) = (0, 0);
    loop {
        let hints: usize = keys.iter().map(|key| call.store.read_bytes_hint(key)).sum();
        let more = hints.max(wanted).saturating_sub(room);
        call.take((1 + answered) * more).await?;
        room += more;
        let within_room = |entries: &[Option<Entry>]| {
            let bytes = entries.iter().flatten().map(|entry| entry.key.len() + entry.value.len()).sum();
            if bytes > room {
                return (Batch::new(), Err(Undone::Larger(bytes)));
            }
            match change(entries) {
                Ok((batch, outcome)) => (batch, Ok(outcome)),
                Err(status) => (Batch::new(), Err(Undone::Refused(status))),
            }
        };
        let updated = call.store.update_versioned(keys, options, within_room).await;
        match updated.map_err(|error| of_store(&error))? {
            (Ok(outcome), versions) => return Ok((outcome, versions)),
            (Err(Undone::Refused(status)), _) => return Err(status),
            // Another writer stored larger values since the hint.
            (Err(Undone::Larger(bytes)), _) => wanted = bytes,
        }
    }
}

/// Returns the version of an entry, for conditions.
pub(super) fn version_of(entry: Option<&Entry>) -> Option<u64> {
    entry.map(|entry| entry.version)
}

/// Parses a number in the format of `INCR`.
fn number_of(entry: &Entry) -> Result<i64, Status> {
    let text = std::str::from_utf8(&entry.value).ok();
    let number = text.and_then(|text| text.parse::<i64>().ok().filter(|number| number.to_string() == text));
    number.ok_or_else(|| {
        let text = "the value is no number of 64 bits in decimal; put one".to_owned();
        not_a_number(text, entry.version)
    })
}

pub(super) async fn increment(
    _: Esker,
    call: Call,
    request: pb::IncrementRequest,
) -> Result<pb::IncrementResponse, Status> {
    let pb::IncrementRequest { key, by, initial, min, max, expiry, keep_expiry, options } = request;
    let (by, initial) = (by.unwrap_or(1), initial.unwrap_or(0));
    let (min, max) = (min.unwrap_or(i64::MIN), max.unwrap_or(i64::MAX));
    if min > max {
        return Err(invalid(format!("min is {min} and max is {max}; no number is between them")));
    }
    let given = expires_at_ms(&call.store, expiry)?;
    let options = write_options(&call.store, None, None, options)?;
    let change = |entries: &[Option<Entry>]| {
        let entry = entries[0].as_ref();
        let number = entry.map_or(Ok(initial), number_of)?;
        let sum = number.checked_add(by).filter(|sum| (min..=max).contains(sum));
        let beyond = || out_of_range(format!("{number} and {by} are not between {min} and {max}"), number);
        let sum = sum.ok_or_else(beyond)?;
        let expires_at_ms = kept_expiry(entry, keep_expiry || given.is_none(), given);
        let mut batch = Batch::new();
        put_into(&mut batch, key.clone(), Bytes::from(sum.to_string()), expires_at_ms);
        Ok((batch, (sum, expires_at_ms)))
    };
    let ((value, expires_at_ms), versions) =
        update(&call, std::slice::from_ref(&key), options, 1, change).await?;
    Ok(pb::IncrementResponse { value, version: versions[0].unwrap_or_default(), expires_at_ms })
}

pub(super) async fn touch(
    _: Esker,
    call: Call,
    request: pb::TouchRequest,
) -> Result<pb::TouchResponse, Status> {
    let pb::TouchRequest { key, becomes, condition, options } = request;
    let becomes = match becomes {
        Some(Becomes::Expiry(expiry)) => expires_at_ms(&call.store, Some(expiry))?,
        Some(Becomes::Persistent(true)) => None,
        None | Some(Becomes::Persistent(false)) => {
            return Err(invalid("nothing is to become of the key; it is expiry or persistent: true"));
        }
    };
    let mut options = write_options(&call.store, None, condition, options)?;
    let condition = std::mem::take(&mut options.condition);
    if condition == Condition::IfAbsent {
        return Err(invalid("a key that is absent cannot be touched"));
    }
    let change = |entries: &[Option<Entry>]| {
        let entry = entries[0].as_ref();
        condition.check(&key, version_of(entry)).map_err(|error| of_store(&error))?;
        let mut batch = Batch::new();
        if let Some(entry) = entry.filter(|entry| entry.expires_at_ms != becomes) {
            put_into(&mut batch, key.clone(), entry.value.clone(), becomes);
        }
        Ok((batch, version_of(entry)))
    };
    let (before, versions) = update(&call, std::slice::from_ref(&key), options, 1, change).await?;
    let Some(before) = before else { return Ok(pb::TouchResponse::default()) };
    let version = versions[0].unwrap_or(before);
    Ok(pb::TouchResponse { existed: true, version, expires_at_ms: becomes })
}
