//! Requests with an id are executed once, however often they are sent.
//!
//! Such a request runs in its own task, so that it survives the end of its stream and a retry receives its outcome. The task
//! holds the memory of its call. See `service::retries` for the retention of answers.

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

/// Maximum bytes of values in an answer that is kept.
const KEPT_VALUE_BYTES_MAX: usize = 64 << 10;

/// Identity of a request.
pub(super) struct Identity {
    id: Bytes,
    is_retry: bool,
    fingerprint: Fingerprint,
}

/// Returns the maximum bytes of values in the answer of a write.
pub(super) fn value_bytes_max(service: &Service, options: Option<&pb::WriteOptions>) -> usize {
    let most = service.config.limits.bulk_bytes_max;
    match options {
        Some(options) if !options.request_id.is_empty() => most.min(KEPT_VALUE_BYTES_MAX),
        _ => most,
    }
}

/// Returns the id of a request, if it has one, and whether it is a retry. Clears the retry flag, so that the fingerprint does not
/// depend on it.
fn id_of(call: &Call, options: Option<&mut pb::WriteOptions>) -> Result<Option<(Bytes, bool)>, Status> {
    let Some(options) = options else { return Ok(None) };
    let is_retry = std::mem::take(&mut options.retry) || call.is_retry;
    match options.request_id.len() {
        0 => Ok(None),
        // Copied, because the slice would otherwise keep the whole message.
        1..=ID_BYTES_MAX => Ok(Some((Bytes::copy_from_slice(&options.request_id), is_retry))),
        bytes => Err(invalid(format!("the request_id has {bytes} bytes; it has 1 to {ID_BYTES_MAX}"))),
    }
}

/// Returns the identity of a request if its options have an id: the id, and a fingerprint of the whole request. `beside` is data
/// outside of the message.
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
    hasher.update([0, call.database]);
    hasher.update(request.encode_to_vec());
    hasher.update(beside);
    Ok(Some(Identity { id, is_retry, fingerprint: hasher.finalize().into() }))
}

/// Runs a request, or returns the answer of its first execution.
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
                // No value is ever sent: the channel closes when the request ends.
                let _ = running.changed().await;
                // If the request is unknown after that, its outcome is unknown too.
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
