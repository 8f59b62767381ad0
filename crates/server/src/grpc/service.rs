//! What the calls mean: those that read, and what all of them need.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use esker_engine::{Entry, Store};
use futures_util::future::join_all;
use futures_util::stream::BoxStream;
use tonic::{Extensions, Request, Response, Status, Streaming};

use super::asked::{self, Asked};
use super::body::Held;
use super::client::Client;
use super::convert::{self, BESIDE_VALUE_BYTES, check_key};
use super::error::{invalid, no_right, not_logged_in, of_store, too_large};
use super::once::{identity, once};
use super::{change, pb, stream, txn, write};
use crate::auth::User;
use crate::base::counting::count;
use crate::service::Service;

const KEYS_MAX: usize = 1000;

/// What an entry takes in a message beside its key and its value.
pub(super) const ENTRY_BYTES: usize = 64;

/// Whether an answer of so many bytes fits in a message whose values have up to so many.
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

/// The service, for one call.
#[derive(Clone)]
pub(super) struct Esker {
    pub(super) service: Arc<Service>,
}

/// Who calls, what memory the call has, and which store it is about.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) user: Arc<User>,
    pub(super) client: Arc<Client>,
    pub(super) held: Held,
    pub(super) store: Store,
    /// The client says that it made this call before.
    pub(super) is_retry: bool,
}

impl Call {
    fn of(extensions: &Extensions) -> Result<Call, Status> {
        extensions.get::<Call>().cloned().ok_or_else(|| Status::internal("the call has no caller"))
    }

    /// Takes memory that the call keeps until its answer is out.
    pub(super) async fn take(&self, bytes: usize) -> Result<(), Status> {
        let piece = self.client.take(bytes).await?;
        self.held.push(piece);
        Ok(())
    }

    /// Takes the user anew if the users were read again, as a call that lasts must.
    pub(super) fn follow_user(&mut self, service: &Service) -> Result<(), Status> {
        if self.user.is_outdated() {
            let user = service.users.refresh(&self.user);
            self.user = user.ok_or_else(|| not_logged_in("the user is gone or has another password"))?;
        }
        Ok(())
    }

    pub(super) fn may_read(&self, key: &[u8]) -> bool {
        self.user.is_admin() || self.user.may_read(key)
    }

    pub(super) fn check_read(&self, key: &Bytes) -> Result<(), Status> {
        check_key(key)?;
        if self.may_read(key) { Ok(()) } else { Err(no_right("no right to read this key")) }
    }

    pub(super) fn check_write(&self, key: &Bytes) -> Result<(), Status> {
        check_key(key)?;
        let may = self.user.is_admin() || self.user.may_write(key);
        if may { Ok(()) } else { Err(no_right("no right to write this key")) }
    }

    /// What a write needs that answers what there was, or depends on it.
    pub(super) fn check_both(&self, key: &Bytes) -> Result<(), Status> {
        self.check_write(key)?;
        self.check_read(key).map_err(|_| no_right("no right to read this key, which this write also does"))
    }
}

impl Esker {
    pub(super) fn new(service: Arc<Service>) -> Esker {
        Esker { service }
    }

    /// Runs a call that has one request and one answer; notes it if it took long.
    async fn run<Q: Asked, A: prost::Message + Default + 'static, F>(
        &self,
        request: Request<Q>,
        run: impl FnOnce(Esker, Call, Q) -> F,
    ) -> Result<Response<A>, Status>
    where
        F: Future<Output = Result<A, Status>> + Send + 'static,
    {
        let call = Call::of(request.extensions())?;
        let mut asked = request.into_inner();
        let identity = identity(&call, Q::METHOD, &mut asked, Q::options, &Bytes::new()).await?;
        let (about, began) = (asked.about(), Instant::now());
        let answer = once(&self.service, &call, identity, run(self.clone(), call.clone(), asked)).await;
        asked::note_if_slow::<Q>(&self.service, &call, about, began.elapsed());
        answer.map(Response::new)
    }

    /// Longest value that fits in one message.
    pub(super) fn value_bytes_max(&self) -> usize {
        self.service.config.limits.bulk_bytes_max
    }

    /// Memory for values that are about to be read and answered; too many bytes are refused.
    async fn room_for(&self, call: &Call, keys: &[Bytes]) -> Result<(), Status> {
        let bytes: usize = keys.iter().map(|key| call.store.read_bytes_hint(key)).sum();
        call.take(2 * bytes + keys.len() * 128).await
    }

    fn check_answer(&self, bytes: usize) -> Result<(), Status> {
        check_answer(bytes, self.value_bytes_max())
    }

    fn found(&self, entry: Option<pb::Entry>) -> pb::GetResponse {
        let found = pb::GetResponse { entry };
        self.count_found(&found);
        found
    }

    pub(super) fn count_found(&self, found: &pb::GetResponse) {
        let counters = &self.service.counters;
        count(if found.entry.is_some() { &counters.hits } else { &counters.misses }, 1);
    }

    async fn get(self, call: Call, request: pb::GetRequest) -> Result<pb::GetResponse, Status> {
        let pb::GetRequest { key, range } = request;
        call.check_read(&key)?;
        if let Some(range) = range {
            return self.get_part(&call, key, range).await;
        }
        self.room_for(&call, std::slice::from_ref(&key)).await?;
        let entry = call.store.get_entry(&key).await.map_err(|error| of_store(&error))?;
        self.check_answer(entry.as_ref().map_or(0, |entry| entry.value.len()))?;
        Ok(self.found(entry.map(|entry| convert::entry(entry, true))))
    }

    async fn get_part(&self, call: &Call, key: Bytes, range: pb::Range) -> Result<pb::GetResponse, Status> {
        let bytes = call.store.read_bytes_hint(&key) as u64;
        let length = if range.length == 0 { u64::MAX } else { range.length };
        let part = bytes.saturating_sub(range.offset).min(length) as usize;
        // The part twice, and the pieces that it is read in.
        call.take(2 * part + (1 << 20).min(bytes as usize)).await?;
        let end = range.offset.saturating_add(length);
        let part = call.store.get_range(&key, range.offset..end).await;
        let part = part.map_err(|error| of_store(&error))?;
        self.check_answer(part.as_ref().map_or(0, Bytes::len))?;
        Ok(self.found(part.map(|value| pb::Entry { key, value, ..pb::Entry::default() })))
    }

    async fn head(self, call: Call, request: pb::HeadRequest) -> Result<pb::HeadResponse, Status> {
        call.check_read(&request.key)?;
        let entry = call.store.get_key(&request.key).await.map_err(|error| of_store(&error))?;
        let pb::GetResponse { entry } = self.found(entry.map(convert::key_entry));
        Ok(pb::HeadResponse { entry })
    }

    async fn multi_get(
        self,
        call: Call,
        request: pb::MultiGetRequest,
    ) -> Result<pb::MultiGetResponse, Status> {
        let keys = request.keys;
        if keys.len() > KEYS_MAX {
            return Err(invalid(format!("{} keys are asked for; one call has up to {KEYS_MAX}", keys.len())));
        }
        keys.iter().try_for_each(|key| call.check_read(key))?;
        self.room_for(&call, &keys).await?;
        let entries = join_all(keys.iter().map(|key| call.store.get_entry(key))).await;
        let entries: Result<Vec<_>, _> = entries.into_iter().collect();
        let entries = entries.map_err(|error| of_store(&error))?;
        let bytes = |entry: &Entry| entry.key.len() + entry.value.len() + ENTRY_BYTES;
        self.check_answer(entries.iter().flatten().map(bytes).sum())?;
        let found = |entry: Option<Entry>| self.found(entry.map(|entry| convert::entry(entry, true)));
        Ok(pb::MultiGetResponse { results: entries.into_iter().map(found).collect() })
    }

    fn stats(&self) -> pb::StatsResponse {
        let (service, stats) = (&self.service, self.service.store.stats());
        let ready = service.check_writes();
        pb::StatsResponse {
            server_version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_ms: service.uptime().as_millis() as u64,
            ready: ready.is_ok(),
            not_ready: ready.err().unwrap_or_default(),
            keys: stats.keys,
            live_bytes: stats.live_bytes,
            user_limit_bytes: stats.user_limit_bytes,
            index_bytes: stats.index_bytes,
            cache_bytes: stats.cache_bytes,
            client_memory_bytes: service.budget.used_bytes() as u64,
            client_memory_limit_bytes: service.budget.limit_bytes() as u64,
            activity: stats.activity.counters().map(|(name, _, value)| (name.to_owned(), value)).collect(),
            tiers: stats
                .tiers
                .iter()
                .map(|tier| pb::stats_response::Tier {
                    name: tier.name.to_owned(),
                    unit_bytes: tier.unit_bytes,
                    segment_bytes: tier.segment_bytes,
                    segments_total: tier.segments_total,
                    segments_free: tier.segments_free,
                    live_bytes: tier.live_bytes,
                    written_bytes: tier.written.total(),
                })
                .collect(),
        }
    }
}

#[tonic::async_trait]
impl pb::esker_server::Esker for Esker {
    async fn get(&self, request: Request<pb::GetRequest>) -> Result<Response<pb::GetResponse>, Status> {
        self.run(request, Esker::get).await
    }

    async fn head(&self, request: Request<pb::HeadRequest>) -> Result<Response<pb::HeadResponse>, Status> {
        self.run(request, Esker::head).await
    }

    async fn multi_get(
        &self,
        request: Request<pb::MultiGetRequest>,
    ) -> Result<Response<pb::MultiGetResponse>, Status> {
        self.run(request, Esker::multi_get).await
    }

    async fn put(&self, request: Request<pb::PutRequest>) -> Result<Response<pb::PutResponse>, Status> {
        self.run(request, write::put).await
    }

    async fn delete(
        &self,
        request: Request<pb::DeleteRequest>,
    ) -> Result<Response<pb::DeleteResponse>, Status> {
        self.run(request, write::delete).await
    }

    async fn compare_and_swap(
        &self,
        request: Request<pb::CompareAndSwapRequest>,
    ) -> Result<Response<pb::CompareAndSwapResponse>, Status> {
        self.run(request, write::compare_and_swap).await
    }

    async fn increment(
        &self,
        request: Request<pb::IncrementRequest>,
    ) -> Result<Response<pb::IncrementResponse>, Status> {
        self.run(request, change::increment).await
    }

    async fn touch(&self, request: Request<pb::TouchRequest>) -> Result<Response<pb::TouchResponse>, Status> {
        self.run(request, change::touch).await
    }

    async fn batch(&self, request: Request<pb::BatchRequest>) -> Result<Response<pb::BatchResponse>, Status> {
        self.run(request, write::batch).await
    }

    async fn txn(&self, request: Request<pb::TxnRequest>) -> Result<Response<pb::TxnResponse>, Status> {
        self.run(request, txn::txn).await
    }

    type ScanStream = BoxStream<'static, Result<pb::ScanResponse, Status>>;

    async fn scan(&self, request: Request<pb::ScanRequest>) -> Result<Response<Self::ScanStream>, Status> {
        let call = Call::of(request.extensions())?;
        if !call.user.is_admin() && !call.user.reads() {
            return Err(no_right("no right to read"));
        }
        stream::scan(self.service.clone(), call, request.into_inner()).map(Response::new)
    }

    async fn upload(
        &self,
        request: Request<Streaming<pb::UploadRequest>>,
    ) -> Result<Response<pb::PutResponse>, Status> {
        let call = Call::of(request.extensions())?;
        stream::upload(&self.service, call, request.into_inner()).await.map(Response::new)
    }

    type DownloadStream = BoxStream<'static, Result<pb::DownloadResponse, Status>>;

    async fn download(
        &self,
        request: Request<pb::DownloadRequest>,
    ) -> Result<Response<Self::DownloadStream>, Status> {
        let call = Call::of(request.extensions())?;
        stream::download(&self.service, &call, request.into_inner()).await.map(Response::new)
    }

    async fn stats(&self, _: Request<pb::StatsRequest>) -> Result<Response<pb::StatsResponse>, Status> {
        Ok(Response::new(self.stats()))
    }
}
