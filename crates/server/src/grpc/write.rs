//! Calls that write one key, or several keys without reading them.

use bytes::Bytes;
use esker_engine::{Batch, Condition, Entry};
use tonic::Status;

use super::call::{Call, Esker};
use super::change::{update, version_of};
use super::convert::{expires_at_ms, kept_expiry, previous, put_into, write_options};
use super::error::{invalid, of_store};
use super::once::value_bytes_max;
use super::pb;
use super::pb::compare_and_swap_request::{Expected, Replacement};

const OPERATIONS_MAX: usize = 10_000;

/// Memory of one operation of a batch while it runs, in bytes.
pub(super) const OPERATION_BYTES: usize = 512;

pub(super) async fn put(
    esker: Esker,
    call: Call,
    request: pb::PutRequest,
) -> Result<pb::PutResponse, Status> {
    let pb::PutRequest { key, value, expiry, condition, options, keep_expiry, return_previous } = request;
    let value_bytes_max = value_bytes_max(&esker.service, options.as_ref());
    let mut options = write_options(&call.store, expiry, condition, options)?;
    call.take(esker.service.compressed_bytes(value.len())).await?;
    if !keep_expiry && !return_previous {
        let version = call.store.put_with(key, value, options).await.map_err(|error| of_store(&error))?;
        return Ok(pb::PutResponse { version, previous: None });
    }
    let (condition, given) = (std::mem::take(&mut options.condition), options.expires_at_ms.take());
    let change = |entries: &[Option<Entry>]| {
        let entry = entries[0].as_ref();
        condition.check(&key, version_of(entry)).map_err(|error| of_store(&error))?;
        let mut batch = Batch::new();
        put_into(&mut batch, key.clone(), value.clone(), kept_expiry(entry, keep_expiry, given));
        Ok((batch, previous(entry.filter(|_| return_previous), value_bytes_max)))
    };
    let (previous, versions) = update(&call, std::slice::from_ref(&key), options, 1, change).await?;
    Ok(pb::PutResponse { version: versions[0].unwrap_or_default(), previous })
}

pub(super) async fn delete(
    esker: Esker,
    call: Call,
    request: pb::DeleteRequest,
) -> Result<pb::DeleteResponse, Status> {
    let pb::DeleteRequest { key, condition, options, return_previous } = request;
    let value_bytes_max = value_bytes_max(&esker.service, options.as_ref());
    let mut options = write_options(&call.store, None, condition, options)?;
    if options.condition == Condition::IfAbsent {
        return Err(invalid("a key that is absent cannot be deleted"));
    }
    if !return_previous {
        let existed = call.store.delete_with(key, options).await.map_err(|error| of_store(&error))?;
        return Ok(pb::DeleteResponse { existed, previous: None });
    }
    let condition = std::mem::take(&mut options.condition);
    let change = |entries: &[Option<Entry>]| {
        let entry = entries[0].as_ref();
        condition.check(&key, version_of(entry)).map_err(|error| of_store(&error))?;
        let mut batch = Batch::new();
        batch.delete(key.clone());
        Ok((batch, previous(entry, value_bytes_max)))
    };
    let (previous, _) = update(&call, std::slice::from_ref(&key), options, 1, change).await?;
    Ok(pb::DeleteResponse { existed: previous.is_some(), previous })
}

/// Fails if a batch has too many operations.
pub(super) fn check_count(count: usize) -> Result<(), Status> {
    match count {
        0..=OPERATIONS_MAX => Ok(()),
        _ => Err(invalid(format!("the batch has {count} operations; it has up to {OPERATIONS_MAX}"))),
    }
}

pub(super) async fn batch(
    esker: Esker,
    call: Call,
    request: pb::BatchRequest,
) -> Result<pb::BatchResponse, Status> {
    let count = request.operations.len();
    check_count(count)?;
    let options = write_options(&call.store, None, None, request.options)?;
    let (mut batch, mut value_bytes) = (Batch::new(), 0);
    for (at, operation) in request.operations.into_iter().enumerate() {
        match operation.write {
            Some(pb::operation::Write::Put(put)) => {
                value_bytes += put.value.len();
                put_into(&mut batch, put.key, put.value, expires_at_ms(&call.store, put.expiry)?);
            }
            Some(pb::operation::Write::Delete(key)) => {
                batch.delete(key);
            }
            None => return Err(invalid(format!("operation {at} of the batch is neither put nor delete"))),
        }
    }
    if batch.is_empty() {
        return Err(invalid("the batch is empty"));
    }
    call.take(count * OPERATION_BYTES + esker.service.compressed_bytes(value_bytes)).await?;
    call.store.write_with(batch, options).await.map_err(|error| of_store(&error))?;
    Ok(pb::BatchResponse {})
}

pub(super) async fn compare_and_swap(
    esker: Esker,
    call: Call,
    request: pb::CompareAndSwapRequest,
) -> Result<pb::CompareAndSwapResponse, Status> {
    let pb::CompareAndSwapRequest { key, expected, replacement, expiry, keep_expiry, options } = request;
    let value_bytes_max = value_bytes_max(&esker.service, options.as_ref());
    let expected = match expected {
        None | Some(Expected::Absent(false)) => {
            return Err(invalid("nothing is expected; it is absent: true, a value or a version"));
        }
        Some(expected) => expected,
    };
    let replacement = match replacement {
        None | Some(Replacement::Delete(false)) => {
            return Err(invalid("there is no replacement; it is put or delete: true"));
        }
        Some(Replacement::Delete(true)) if expiry.is_some() || keep_expiry => {
            return Err(invalid("what is deleted does not expire"));
        }
        Some(Replacement::Delete(true)) if matches!(expected, Expected::Absent(_)) => {
            return Err(invalid("a key that is absent cannot be deleted"));
        }
        Some(replacement) => replacement,
    };
    if expiry.is_some() && keep_expiry {
        return Err(invalid("expiry and keep_expiry contradict each other"));
    }
    let given = expires_at_ms(&call.store, expiry)?;
    let options = write_options(&call.store, None, None, options)?;
    if let Replacement::Put(value) = &replacement {
        call.take(esker.service.compressed_bytes(value.len())).await?;
    }
    let change = |entries: &[Option<Entry>]| {
        let (entry, mut batch) = (entries[0].as_ref(), Batch::new());
        if !agrees(&expected, entry) {
            return Ok((batch, Err(previous(entry, value_bytes_max))));
        }
        match &replacement {
            Replacement::Put(value) => {
                let expires_at_ms = kept_expiry(entry, keep_expiry, given);
                put_into(&mut batch, key.clone(), value.clone(), expires_at_ms);
            }
            Replacement::Delete(_) => {
                batch.delete(key.clone());
            }
        }
        Ok((batch, Ok(())))
    };
    let (swapped, versions) = update(&call, std::slice::from_ref(&key), options, 1, change).await?;
    let version = versions[0].unwrap_or_default();
    Ok(match swapped {
        Ok(()) => pb::CompareAndSwapResponse { swapped: true, version, current: None },
        Err(current) => pb::CompareAndSwapResponse { swapped: false, version, current },
    })
}

fn agrees(expected: &Expected, entry: Option<&Entry>) -> bool {
    match (expected, entry) {
        (Expected::Absent(_), entry) => entry.is_none(),
        (Expected::Value(value), Some(entry)) => Bytes::eq(value, &entry.value),
        (Expected::Version(version), Some(entry)) => *version == entry.version,
        (_, None) => false,
    }
}
