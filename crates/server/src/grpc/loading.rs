//! Responses while the store is being opened: health is `NOT_SERVING`, and every other call is `UNAVAILABLE`.
//!
//! No client can log in yet, so all are untrusted: little of a request is read, and a connection closes when its login timeout is
//! over. The floor of a connection covers its memory.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt};
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{sleep, timeout};
use tonic::{Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tower_service::Service as _;

use super::connection::{HEALTH, LEAVE_WAIT};
use super::frames::{Frames, Waiting};
use super::reading::Reading;
use crate::base::shutdown::Stop;

/// HTTP/2 receive window per stream and per connection, the minimum of the protocol; maximum concurrent calls; maximum metadata
/// in bytes.
const WINDOW_BYTES: u32 = 64 << 10;
const CALLS_MAX: u32 = 8;
const METADATA_BYTES_MAX: u32 = 8 << 10;

/// Maximum length of a message, because memory is allocated once the length is known.
const MESSAGE_BYTES_MAX: usize = 1 << 10;

const PING_EVERY: Duration = Duration::from_secs(20);

type Answer = hyper::Response<tonic::body::Body>;

/// Serves one connection until the client leaves, `wait` is over or the store is open; later calls need a new connection.
pub(crate) async fn serve_loading<S>(
    stream: S,
    progress: Arc<dyn Fn() -> String + Send + Sync>,
    wait: Option<Duration>,
    mut stop: Stop,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let waiting = Arc::<Waiting>::default();
    let health = Loading(stop.clone());
    let calls = {
        let waiting = waiting.clone();
        service_fn(move |request: Request<Incoming>| {
            let (health, progress, waiting) = (health.clone(), progress.clone(), waiting.clone());
            let request = request.map(|body| Reading::new(body, waiting.clone()).unnamed());
            async move {
                let answered = answer(request, health, &*progress).await;
                waiting.answered();
                Ok::<_, Infallible>(answered)
            }
        })
    };
    let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_concurrent_streams(CALLS_MAX)
        .max_header_list_size(METADATA_BYTES_MAX)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_EVERY)
        .serve_connection(TokioIo::new(Frames::new(stream, waiting)), calls);
    let mut connection = pin!(connection);
    let over = async {
        match wait {
            Some(wait) => sleep(wait).await,
            None => pending().await,
        }
    };
    tokio::select! {
        _ = connection.as_mut() => {}
        () = stop.announced() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
        () = over => {
            connection.as_mut().graceful_shutdown();
            let _ = timeout(LEAVE_WAIT, connection).await;
        }
    }
}

async fn answer(
    request: Request<Reading>,
    health: Loading,
    progress: &(dyn Fn() -> String + Send + Sync),
) -> Answer {
    if request.uri().path().starts_with(HEALTH) {
        let mut server = HealthServer::new(health).max_decoding_message_size(MESSAGE_BYTES_MAX);
        return server.call(request).await.unwrap_or_else(|never| match never {});
    }
    Status::unavailable(progress()).into_http()
}

/// Health service of a server whose store is not open: every name is `NOT_SERVING`.
#[derive(Clone)]
struct Loading(Stop);

fn not_serving() -> HealthCheckResponse {
    HealthCheckResponse { status: ServingStatus::NotServing.into() }
}

#[tonic::async_trait]
impl tonic_health::pb::health_server::Health for Loading {
    async fn check(
        &self,
        _: tonic::Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        Ok(Response::new(not_serving()))
    }

    type WatchStream = BoxStream<'static, Result<HealthCheckResponse, Status>>;

    async fn watch(
        &self,
        _: tonic::Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let mut stop = self.0.clone();
        let told = stream::once(async { Ok(not_serving()) });
        let open = stream::once(async move {
            stop.announced().await;
            Err(Status::unavailable("the store is open now; ask again"))
        });
        Ok(Response::new(told.chain(open).boxed()))
    }
}
