//! Calls that read named keys.

use bytes::Bytes;
use esker_engine::Entry;
use futures_util::future::join_all;
use tonic::Status;

use super::call::{Call, ENTRY_BYTES, Esker, check_answer};
use super::convert;
use super::error::{invalid, of_store};
use super::pb;

const KEYS_MAX: usize = 1000;

/// Takes memory for values to be read and returned; fails if they are too large.
async fn room_for(call: &Call, keys: &[Bytes]) -> Result<(), Status> {
    let bytes: usize = keys.iter().map(|key| call.store.read_bytes_hint(key)).sum();
    call.take(2 * bytes + keys.len() * 128).await
}

fn found(esker: &Esker, call: &Call, entry: Option<pb::Entry>) -> pb::GetResponse {
    let found = pb::GetResponse { entry };
    esker.count_found(call.database, &found);
    found
}

pub(super) async fn get(
    esker: Esker,
    call: Call,
    request: pb::GetRequest,
) -> Result<pb::GetResponse, Status> {
    let pb::GetRequest { key, range } = request;
    if let Some(range) = range {
        return get_part(&esker, &call, key, range).await;
    }
    room_for(&call, std::slice::from_ref(&key)).await?;
    let entry = call.store.get_entry(&key).await.map_err(|error| of_store(&error))?;
    check_answer(entry.as_ref().map_or(0, |entry| entry.value.len()), esker.value_bytes_max())?;
    Ok(found(&esker, &call, entry.map(|entry| convert::entry(entry, true))))
}

async fn get_part(
    esker: &Esker,
    call: &Call,
    key: Bytes,
    range: pb::Range,
) -> Result<pb::GetResponse, Status> {
    let bytes = call.store.read_bytes_hint(&key) as u64;
    let length = if range.length == 0 { u64::MAX } else { range.length };
    let part = bytes.saturating_sub(range.offset).min(length) as usize;
    // Memory for two copies of the part, and for the pieces in which it is read.
    call.take(2 * part + (1 << 20).min(bytes as usize)).await?;
    let end = range.offset.saturating_add(length);
    let part = call.store.get_range(&key, range.offset..end).await;
    let part = part.map_err(|error| of_store(&error))?;
    check_answer(part.as_ref().map_or(0, Bytes::len), esker.value_bytes_max())?;
    Ok(found(esker, call, part.map(|value| pb::Entry { key, value, ..pb::Entry::default() })))
}

pub(super) async fn head(
    esker: Esker,
    call: Call,
    request: pb::HeadRequest,
) -> Result<pb::HeadResponse, Status> {
    let entry = call.store.get_key(&request.key).await.map_err(|error| of_store(&error))?;
    let pb::GetResponse { entry } = found(&esker, &call, entry.map(convert::key_entry));
    Ok(pb::HeadResponse { entry })
}

/// Fails if a call requests too many keys.
pub(super) fn check_count(keys: usize) -> Result<(), Status> {
    match keys {
        0..=KEYS_MAX => Ok(()),
        _ => Err(invalid(format!("{keys} keys are asked for; one call has up to {KEYS_MAX}"))),
    }
}

pub(super) async fn multi_get(
    esker: Esker,
    call: Call,
    request: pb::MultiGetRequest,
) -> Result<pb::MultiGetResponse, Status> {
    let keys = request.keys;
    check_count(keys.len())?;
    room_for(&call, &keys).await?;
    let entries = join_all(keys.iter().map(|key| call.store.get_entry(key))).await;
    let entries: Result<Vec<_>, _> = entries.into_iter().collect();
    let entries = entries.map_err(|error| of_store(&error))?;
    let bytes = |entry: &Entry| entry.key.len() + entry.value.len() + ENTRY_BYTES;
    check_answer(entries.iter().flatten().map(bytes).sum(), esker.value_bytes_max())?;
    let found = |entry: Option<Entry>| found(&esker, &call, entry.map(|entry| convert::entry(entry, true)));
    Ok(pb::MultiGetResponse { results: entries.into_iter().map(found).collect() })
}
