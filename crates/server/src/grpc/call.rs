//! State of a call: its user, memory and store, and the service.

use std::sync::Arc;

use esker_engine::{Compression, Store};
use tonic::{Extensions, Status};

use super::body::{Held, LONG_BYTES};
use super::client::{CALL_BYTES, Client};
use super::cluster::InCluster;
use super::convert::BESIDE_VALUE_BYTES;
use super::error::{not_logged_in, too_large};
use super::pb;
use crate::auth::{CommandTable, User};
use crate::base::shutdown::Stop;
use crate::service::Service;
use crate::service::traces::Parent;

/// Bytes of an entry in a message beyond its key and its value.
pub(super) const ENTRY_BYTES: usize = 64;

/// Fails if a response of `bytes` exceeds the limit for messages whose values have up to `value_bytes_max`.
pub(super) fn check_answer(bytes: usize, value_bytes_max: usize) -> Result<(), Status> {
    let limit = value_bytes_max + BESIDE_VALUE_BYTES;
    if bytes <= limit {
        return Ok(());
    }
    Err(too_large(format!(
        "the answer would have {bytes} bytes, and this one may have {limit} (argument-limit, or 64 KiB with a request_id, and \
         128 KiB); use Download, or ask for less"
    )))
}

/// The service, as seen by one call.
#[derive(Clone)]
pub(super) struct Esker {
    pub(super) service: Arc<Service>,
    pub(super) stop: Stop,
}

/// User, memory and store of a call.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) user: Arc<User>,
    /// Table of RESP commands, whose rights apply to calls.
    pub(super) commands: &'static CommandTable,
    /// True if the call carries credentials.
    pub(super) is_named: bool,
    pub(super) client: Arc<Client>,
    pub(super) held: Held,
    pub(super) store: Store,
    /// Number of the store's database.
    pub(super) database: u8,
    /// True if the client marked the call as a retry.
    pub(super) is_retry: bool,
    /// The caller's span, if the server has traces.
    pub(super) parent: Option<Parent>,
    /// The cluster of the store.
    pub(super) cluster: Option<InCluster>,
}

/// Returns true if a call that holds this memory takes longer than a turn.
pub(super) fn is_long(held: &Held, compression: Compression) -> bool {
    let most = match compression {
        Compression::Zstd(4..=9) => LONG_BYTES / 8,
        // Even the bytes that fit beside the call's metadata take milliseconds to compress.
        Compression::Zstd(10..) => CALL_BYTES + (4 << 10),
        Compression::Off | Compression::Lz4 | Compression::Zstd(_) => LONG_BYTES,
    };
    held.bytes() > most
}

impl Call {
    /// Takes memory that the call keeps until its response is sent.
    pub(super) async fn take(&self, bytes: usize) -> Result<(), Status> {
        let piece = self.client.take(bytes).await?;
        self.held.push(piece);
        if self.is_long() {
            // After the yield, the call is polled beside the serving threads.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Returns true if the call's data takes longer than a turn to process.
    pub(super) fn is_long(&self) -> bool {
        is_long(&self.held, self.store.compression())
    }

    /// Fetches the user again if the users changed; needed by calls that last.
    pub(super) fn follow_user(&mut self, service: &Service) -> Result<(), Status> {
        let (users, user) = (&service.users, &self.user);
        let user = if self.is_named { users.still(user) } else { users.still_unnamed(user) };
        self.user = user.ok_or_else(|| not_logged_in("the user is gone or off, or has another password"))?;
        Ok(())
    }
}

impl Esker {
    pub(super) fn new(service: Arc<Service>, stop: Stop) -> Esker {
        Esker { service, stop }
    }

    /// Returns the call with its current user, because the request may have taken long to arrive.
    pub(super) fn call(&self, extensions: &Extensions) -> Result<Call, Status> {
        let call = extensions.get::<Call>().cloned();
        let mut call = call.ok_or_else(|| Status::internal("the call has no caller"))?;
        call.follow_user(&self.service)?;
        Ok(call)
    }

    /// Returns the maximum length of a value in one message.
    pub(super) fn value_bytes_max(&self) -> usize {
        self.service.config.limits.bulk_bytes_max
    }

    /// Counts a hit or a miss.
    pub(super) fn count_found(&self, database: u8, found: &pb::GetResponse) {
        let hits = u64::from(found.entry.is_some());
        self.service.counters.lookups.count(database, hits, 1 - hits);
    }
}
