//! Requests that have an id are done once, however often they are made.
//!
//! Such a request runs in a task of its own, so that the end of its stream is not its end: whoever makes it again gets to know
//! what became of it. The task has the memory of its call. What is remembered, and for how long: `service::retries`.

use std::sync::Arc;
use std::time::Instant;

use blake2::{Blake2s256, Digest};
use bytes::Bytes;
use prost::Message;
use tonic::Status;

use super::call::Call;
use super::error::{another_request, forgotten, invalid, of_memory};
use super::pb;
use crate::budget::Refused;
use crate::service::Service;
use crate::service::retries::{Begun, Fingerprint};

const ID_BYTES_MAX: usize = 64;

/// Bytes of values in an answer that is kept.
const KEPT_VALUE_BYTES_MAX: usize = 64 << 10;

/// What a request is known by.
pub(super) struct Identity {
    id: Bytes,
    is_retry: bool,
    fingerprint: Fingerprint,
}

/// Bytes of values that the answer of a write may have.
pub(super) fn value_bytes_max(service: &Service, options: Option<&pb::WriteOptions>) -> usize {
    let most = service.config.limits.bulk_bytes_max;
    match options {
        Some(options) if !options.request_id.is_empty() => most.min(KEPT_VALUE_BYTES_MAX),
        _ => most,
    }
}

/// The id of a request, if it has one, and whether it is a retry; that is no part of the request any more.
fn id_of(call: &Call, options: Option<&mut pb::WriteOptions>) -> Result<Option<(Bytes, bool)>, Status> {
    let Some(options) = options else { return Ok(None) };
    let is_retry = std::mem::take(&mut options.retry) || call.is_retry;
    match options.request_id.len() {
        0 => Ok(None),
        // A copy: the message would be kept as long as the id is.
        1..=ID_BYTES_MAX => Ok(Some((Bytes::copy_from_slice(&options.request_id), is_retry))),
        bytes => Err(invalid(format!("the request_id has {bytes} bytes; it has 1 to {ID_BYTES_MAX}"))),
    }
}

/// What a request is known by, if its options give it an id: that, and all that it says. `beside` is not in the message.
pub(super) async fn identity<Q: Message>(
    call: &Call,
    method: &str,
    request: &mut Q,
    options: fn(&mut Q) -> Option<&mut pb::WriteOptions>,
    beside: &Bytes,
) -> Result<Option<Identity>, Status> {
    let Some((id, is_retry)) = id_of(call, options(request))? else { return Ok(None) };
    call.take(request.encoded_len()).await?;
    let mut hasher = Blake2s256::new_with_prefix(method);
    hasher.update([0, call.keyspace]);
    hasher.update(request.encode_to_vec());
    hasher.update(beside);
    Ok(Some(Identity { id, is_retry, fingerprint: hasher.finalize().into() }))
}

/// Runs a request, or tells what it was answered before.
pub(super) async fn once<A: Message + Default + 'static>(
    service: &Arc<Service>,
    call: &Call,
    identity: Option<Identity>,
    run: impl Future<Output = Result<A, Status>> + Send + 'static,
) -> Result<A, Status> {
    let Some(Identity { id, mut is_retry, fingerprint }) = identity else { return run.await };
    let user = call.user.name();
    loop {
        match service.retries.begin(user, &id, fingerprint, is_retry, Instant::now()) {
            Begun::First(ticket) => {
                let running = tokio::spawn(async move {
                    let answer = run.await;
                    let kept = answer.as_ref().map(|answer| Bytes::from(answer.encode_to_vec()));
                    ticket.end(&kept.map_err(Status::clone), Instant::now());
                    answer
                });
                return running.await.unwrap_or_else(|_| Err(Status::internal("the call has panicked")));
            }
            Begun::Running(mut running) => {
                // Nothing is ever sent, so it ends when the request has.
                let _ = running.changed().await;
                // If nothing is known of it now, nobody knows what became of it.
                is_retry = true;
            }
            Begun::Answered(answer) => {
                let decoded = A::decode(answer?);
                return decoded.map_err(|_| Status::internal("the answer that was kept cannot be read"));
            }
            Begun::Another => return Err(another_request()),
            Begun::Forgotten => return Err(forgotten()),
            Begun::NoRoom => return Err(of_memory(Refused::UsedUp)),
        }
    }
}
