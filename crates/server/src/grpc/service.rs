//! Dispatch of calls to their functions, and the common steps of unary calls.

use std::time::Instant;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use tonic::{Code, Request, Response, Status, Streaming};

use super::call::{Call, Esker};
use super::once::{identity, once};
use super::request_info::{self, Asked};
use super::rights::Rights;
use super::{change, pb, read, stream, txn, watch, write};

impl Esker {
    /// Runs a unary call, and records it in the slow log and for the traces if it was slow.
    async fn run<Q: Asked, A: prost::Message + Default + 'static, F>(
        &self,
        request: Request<Q>,
        run: impl FnOnce(Esker, Call, Q) -> F,
    ) -> Result<Response<A>, Status>
    where
        F: Future<Output = Result<A, Status>> + Send + 'static,
    {
        let call = self.call(request.extensions())?;
        let mut asked = request.into_inner();
        asked.check(&call)?;
        request_info::check_in_cluster(&asked, &call)?;
        let identity = identity(&call, Q::METHOD, &mut asked, Q::options, &Bytes::new()).await?;
        let (about, began) = (asked.about(), Instant::now());
        let answer = once(&self.service, &call, identity, run(self.clone(), call.clone(), asked)).await;
        let answer = match &call.cluster {
            Some(cluster) => cluster.confirmed(Q::EFFECT, answer).await,
            None => answer,
        };
        let took = began.elapsed();
        let code = answer.as_ref().err().map_or(Code::Ok, Status::code);
        request_info::trace_if_slow::<Q>(&self.service, &call, code, took);
        request_info::note_if_slow::<Q>(&self.service, &call, about, took);
        answer.map(Response::new)
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
        self.run(request, read::get).await
    }

    async fn head(&self, request: Request<pb::HeadRequest>) -> Result<Response<pb::HeadResponse>, Status> {
        self.run(request, read::head).await
    }

    async fn multi_get(
        &self,
        request: Request<pb::MultiGetRequest>,
    ) -> Result<Response<pb::MultiGetResponse>, Status> {
        self.run(request, read::multi_get).await
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
        let call = self.call(request.extensions())?;
        stream::scan(self.service.clone(), call, request.into_inner()).await.map(Response::new)
    }

    type WatchStream = BoxStream<'static, Result<pb::WatchResponse, Status>>;

    async fn watch(&self, request: Request<pb::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let call = self.call(request.extensions())?;
        watch::watch(self, call, request.into_inner()).await.map(Response::new)
    }

    async fn upload(
        &self,
        request: Request<Streaming<pb::UploadRequest>>,
    ) -> Result<Response<pb::PutResponse>, Status> {
        let call = self.call(request.extensions())?;
        stream::upload(&self.service, call, request.into_inner()).await.map(Response::new)
    }

    type DownloadStream = BoxStream<'static, Result<pb::DownloadResponse, Status>>;

    async fn download(
        &self,
        request: Request<pb::DownloadRequest>,
    ) -> Result<Response<Self::DownloadStream>, Status> {
        let call = self.call(request.extensions())?;
        stream::download(&self.service, &call, request.into_inner()).await.map(Response::new)
    }

    async fn stats(&self, request: Request<pb::StatsRequest>) -> Result<Response<pb::StatsResponse>, Status> {
        let call = self.call(request.extensions())?;
        request.into_inner().check(&call)?;
        Ok(Response::new(self.stats()))
    }
}
