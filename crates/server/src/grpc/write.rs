//! Calls that write.

use bytes::Bytes;
use esker_engine::{Batch, Condition, Entry, ErrorKind, WriteOptions};
use tonic::Status;

use super::convert::{self, expires_at_ms, write_options};
use super::error::{invalid, no_right, of_store};
use super::pb;
use super::pb::compare_and_swap_request::{Expected, Replacement};
use super::service::{Call, Esker};
use crate::service::Service;

const OPERATIONS_MAX: usize = 10_000;

/// What one operation of a batch takes while it runs.
const OPERATION_BYTES: usize = 512;

pub(super) async fn put(
    service: &Service,
    call: &Call,
    put: pb::PutRequest,
) -> Result<pb::PutResponse, Status> {
    call.check_write(&put.key)?;
    let options = write_options(&service.store, put.expiry, put.condition, put.options)?;
    call.take(service.compressed_bytes(put.value.len())).await?;
    let version = service.store.put_with(put.key, put.value, options).await;
    version.map(|version| pb::PutResponse { version }).map_err(|error| of_store(&error))
}

pub(super) async fn delete(
    service: &Service,
    call: &Call,
    delete: pb::DeleteRequest,
) -> Result<pb::DeleteResponse, Status> {
    call.check_write(&delete.key)?;
    let options = write_options(&service.store, None, delete.condition, delete.options)?;
    if options.condition == Condition::IfAbsent {
        return Err(invalid("a key that is absent cannot be deleted"));
    }
    let existed = service.store.delete_with(delete.key, options).await;
    existed.map(|existed| pb::DeleteResponse { existed }).map_err(|error| of_store(&error))
}

pub(super) async fn batch(
    service: &Service,
    call: &Call,
    request: pb::BatchRequest,
) -> Result<pb::BatchResponse, Status> {
    let count = request.operations.len();
    if count > OPERATIONS_MAX {
        return Err(invalid(format!("the batch has {count} operations; it has up to {OPERATIONS_MAX}")));
    }
    let options = write_options(&service.store, None, None, request.options)?;
    let (mut batch, mut value_bytes) = (Batch::new(), 0);
    for (at, operation) in request.operations.into_iter().enumerate() {
        match operation.write {
            Some(pb::operation::Write::Put(put)) => {
                call.check_write(&put.key)?;
                value_bytes += put.value.len();
                match expires_at_ms(&service.store, put.expiry)? {
                    Some(expiry) => batch.put_expiring(put.key, put.value, expiry),
                    None => batch.put(put.key, put.value),
                };
            }
            Some(pb::operation::Write::Delete(key)) => {
                call.check_write(&key)?;
                batch.delete(key);
            }
            None => return Err(invalid(format!("operation {at} of the batch is neither put nor delete"))),
        }
    }
    if batch.is_empty() {
        return Err(invalid("the batch is empty"));
    }
    call.take(count * OPERATION_BYTES + service.compressed_bytes(value_bytes)).await?;
    service.store.write_with(batch, options).await.map_err(|error| of_store(&error))?;
    Ok(pb::BatchResponse {})
}

/// Compares what is there, and writes on the condition that its version is still the same. If it is not, somebody wrote in
/// between, and what is there now is compared.
pub(super) async fn compare_and_swap(
    esker: &Esker,
    call: &Call,
    request: pb::CompareAndSwapRequest,
) -> Result<pb::CompareAndSwapResponse, Status> {
    let key = request.key;
    call.check_write(&key)?;
    call.check_read(&key).map_err(|_| no_right("no right to read this key, which comparing is"))?;
    let expected = match request.expected {
        None | Some(Expected::Absent(false)) => {
            return Err(invalid("nothing is expected; it is absent: true, a value or a version"));
        }
        Some(expected) => expected,
    };
    let replacement = match request.replacement {
        None | Some(Replacement::Delete(false)) => {
            return Err(invalid("there is no replacement; it is put or delete: true"));
        }
        Some(Replacement::Delete(true)) if request.expiry.is_some() || request.keep_expiry => {
            return Err(invalid("what is deleted does not expire"));
        }
        Some(Replacement::Delete(true)) if matches!(expected, Expected::Absent(_)) => {
            return Err(invalid("a key that is absent cannot be deleted"));
        }
        Some(replacement) => replacement,
    };
    if request.expiry.is_some() && request.keep_expiry {
        return Err(invalid("expiry and keep_expiry contradict each other"));
    }
    let options = write_options(&esker.service.store, request.expiry, None, request.options)?;
    let store = &esker.service.store;
    loop {
        call.take(2 * store.read_bytes_hint(&key)).await?;
        let entry = store.get_entry(&key).await.map_err(|error| of_store(&error))?;
        if !agrees(&expected, entry.as_ref()) {
            let fits = |entry: &Entry| entry.value.len() <= esker.value_bytes_max();
            let current = entry.map(|entry| {
                let with_value = fits(&entry);
                convert::entry(entry, with_value)
            });
            return Ok(pb::CompareAndSwapResponse { swapped: false, version: 0, current });
        }
        let kept = entry.as_ref().filter(|_| request.keep_expiry).and_then(|entry| entry.expires_at_ms);
        let options = WriteOptions {
            condition: entry
                .as_ref()
                .map_or(Condition::IfAbsent, |entry| Condition::IfVersion(entry.version)),
            expires_at_ms: kept.or(options.expires_at_ms),
            ..options
        };
        let written = match &replacement {
            Replacement::Put(value) => {
                call.take(esker.service.compressed_bytes(value.len())).await?;
                store.put_with(key.clone(), value.clone(), options).await
            }
            Replacement::Delete(_) => store.delete_with(key.clone(), options).await.map(|_| 0),
        };
        match written {
            Ok(version) => return Ok(pb::CompareAndSwapResponse { swapped: true, version, current: None }),
            Err(error) if error.kind() == ErrorKind::Conflict => {}
            Err(error) => return Err(of_store(&error)),
        }
    }
}

fn agrees(expected: &Expected, entry: Option<&Entry>) -> bool {
    match (expected, entry) {
        (Expected::Absent(_), entry) => entry.is_none(),
        (Expected::Value(value), Some(entry)) => Bytes::eq(value, &entry.value),
        (Expected::Version(version), Some(entry)) => *version == entry.version,
        (_, None) => false,
    }
}
