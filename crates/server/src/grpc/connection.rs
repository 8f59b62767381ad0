//! A gRPC connection: HTTP/2 below, the services above.
//!
//! The user of a call is known before its body is read. A connection has a memory floor, which covers the windows and queues of
//! HTTP/2 and one small call; other calls take the memory that they hold.
//!
//! A periodic check closes connections whose clients do not read responses, make no calls, or do not log in. On a stop, clients
//! are told that no further calls are accepted, and running calls finish.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HeaderMap};
use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, interval};
use tonic::Status;
use tower_service::Service as _;

use super::body::{Arriving, Held, Leaving};
use super::call::{Call, Esker, is_long};
use super::client::{CALL_BYTES, CALLS_BYTES, Client};
use super::cluster::InCluster;
use super::convert::BESIDE_VALUE_BYTES;
use super::error;
use super::frames::Frames;
use super::health::Health;
use super::message_counts::Counted;
use super::reading::Reading;
use super::{DESCRIPTORS, pb, read, txn, watch, write};
use crate::auth::User;
use crate::base::address::Address;
use crate::base::shutdown::Stop;
use crate::base::turn::{Measured, beside_while};
use crate::budget::Share;
use crate::service::traces::Parent;
use crate::service::{Dropped, Service};

/// HTTP/2 receive windows: bytes that a client may send before they are read, per stream and per connection.
const STREAM_WINDOW_BYTES: u32 = 128 << 10;
const WINDOW_BYTES: u32 = 256 << 10;

/// Maximum bytes queued for sending, per stream.
const SEND_BYTES: usize = 16 << 10;

/// Maximum number of concurrent calls.
const CALLS_MAX: u32 = 64;

/// Maximum number of concurrent calls of a client without a known user; all of them are health checks.
const UNNAMED_CALLS_MAX: usize = 8;

/// Maximum metadata of a call, in bytes.
const METADATA_BYTES_MAX: u32 = 8 << 10;

/// Metadata set by clients with automatic retries: the number of previous attempts.
const PREVIOUS_ATTEMPTS: &str = "grpc-previous-rpc-attempts";

/// Metadata with the caller's span (W3C Trace Context).
const TRACE_PARENT: &str = "traceparent";

/// Interval between pings of a silent client, and the time it has to answer.
const PING_EVERY: Duration = Duration::from_secs(20);

/// Interval of the periodic check.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Time that a client has to close a connection after it was asked to.
pub(super) const LEAVE_WAIT: Duration = Duration::from_secs(1);

/// Memory floor of a connection, in bytes.
pub(crate) const FLOOR_BYTES: usize = WINDOW_BYTES as usize + (64 << 10) + CALLS_BYTES;

/// Runs the calls of connections as tasks whose turns are measured.
#[derive(Clone)]
struct Calls(Arc<Service>);

impl<F> Executor<F> for Calls
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, call: F) {
        tokio::spawn(Measured::new(Box::pin(call), self.0.counters.turns.clone()));
    }
}

/// Serves one connection.
pub(crate) async fn serve<S>(
    stream: S,
    peer: Address,
    user: Option<Arc<User>>,
    share: Share,
    service: Arc<Service>,
    mut stop: Stop,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let client = Client::new(peer.clone(), user, share, &service);
    let calls = {
        let (client, service, stop) = (client.clone(), service.clone(), stop.clone());
        service_fn(move |request: Request<Incoming>| {
            client.running.fetch_add(1, Ordering::Relaxed);
            let request = request.map(|body| Reading::new(body, client.waiting.clone()));
            call(request, client.clone(), service.clone(), stop.clone())
        })
    };
    let connection = hyper::server::conn::http2::Builder::new(Calls(service.clone()))
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_concurrent_streams(CALLS_MAX)
        .max_header_list_size(METADATA_BYTES_MAX)
        .max_send_buf_size(SEND_BYTES)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_EVERY)
        .serve_connection(TokioIo::new(Frames::new(stream, client.waiting.clone())), calls);
    let mut connection = pin!(connection);
    let mut look = interval(LOOK_EVERY);
    let limits = &service.config.limits;
    let (began, mut busy, mut ending) = (Instant::now(), Instant::now(), false);
    let (mut leave_by, mut calls_seen) = (None, 0);
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, %peer, "gRPC connection ended");
                }
                break;
            }
            () = stop.announced(), if !ending => {
                ending = true;
                connection.as_mut().graceful_shutdown();
            }
            _ = look.tick() => {
                let seen = std::mem::replace(&mut calls_seen, client.calls());
                if client.running.load(Ordering::Relaxed) > 0 || seen != calls_seen {
                    busy = Instant::now();
                }
                let passed = |since: Instant, wait: Option<Duration>| wait.is_some_and(|wait| since.elapsed() > wait);
                let is_welcome = client.welcome.load(Ordering::Relaxed);
                let why = match () {
                    () if leave_by.is_some_and(|by| Instant::now() > by) => break,
                    () if client.is_stalled() => Dropped::SlowReader,
                    () if leave_by.is_none() && !is_welcome && passed(began, limits.login_wait) => Dropped::Login,
                    () if !ending && passed(busy, limits.idle_wait) => Dropped::Idle,
                    () => continue,
                };
                service.counters.count_dropped(why);
                tracing::debug!(%peer, %why, "gRPC connection dropped");
                let has_called = client.waiting.has_calls();
                if why != Dropped::Idle && !(why == Dropped::Login && has_called) {
                    break;
                }
                // Clients that check health are asked to reconnect, and get some time for it.
                leave_by = (why == Dropped::Login).then(|| Instant::now() + LEAVE_WAIT);
                ending = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// Handles one call, from its metadata to the beginning of its response.
async fn call(
    request: Request<Reading>,
    client: Arc<Client>,
    service: Arc<Service>,
    stop: Stop,
) -> Result<Response<Leaving>, Infallible> {
    let held = Held::default();
    let answering = client.answer(service.config.limits.reply_wait);
    let answer = match let_in(&request, &client, &service, &held).await {
        Ok(user) => {
            // A health check has no user.
            client.welcome.fetch_or(user.is_some(), Ordering::Relaxed);
            dispatch(request, user, &client, &service, stop, &held).await
        }
        Err(status) => status.into_http(),
    };
    // A call that fails before its first message has its status in the head.
    if let Some(status) = Status::from_header_map(answer.headers()) {
        service.counters.grpc.ended(status.code());
        client.waiting.answered();
    }
    Ok(answer.map(|body| Leaving::new(body, answering, service, held)))
}

pub(super) const HEALTH: &str = "/grpc.health.v1.Health/";
const REFLECTION: [&str; 2] =
    ["/grpc.reflection.v1.ServerReflection/", "/grpc.reflection.v1alpha.ServerReflection/"];

/// Authenticates a call and takes its memory. Returns its user; `None` for health checks, which need no login.
async fn let_in(
    request: &Request<Reading>,
    client: &Client,
    service: &Service,
    held: &Held,
) -> Result<Option<Arc<User>>, Status> {
    let metadata: &HeaderMap = request.headers();
    let user = match request.uri().path().starts_with(HEALTH) {
        true => {
            client.check_unnamed(UNNAMED_CALLS_MAX)?;
            None
        }
        false => Some(client.user(metadata.get(AUTHORIZATION), service).await?),
    };
    let piece = client.take(CALL_BYTES).await?;
    held.push(piece);
    Ok(user)
}

/// Metadata that selects the database of a call.
const DATABASE: &str = "esker-database";

/// Returns the database of a call, by default the first.
fn database_of(metadata: &HeaderMap, service: &Service) -> Result<u8, Status> {
    let Some(given) = metadata.get(DATABASE) else { return Ok(0) };
    let number = given.to_str().ok().and_then(|text| text.parse().ok());
    let last = service.databases().len() - 1;
    number.and_then(|number| service.database_of(number)).ok_or_else(|| {
        error::invalid(format!("metadata {DATABASE} is no number of a database; those are 0 to {last}"))
    })
}

/// Returns the counter of the list elements of a method's requests; `None` without lists.
fn counted(method: &str) -> Option<Counted> {
    match method {
        "Batch" => Some(Counted::new(&[1], write::check_count)),
        "MultiGet" => Some(Counted::new(&[1], read::check_count)),
        "Txn" => Some(Counted::new(&[1, 2, 3], txn::check_count)),
        "Watch" => Some(Counted::new(&[1, 2], watch::check_count)),
        _ => None,
    }
}

async fn dispatch(
    request: Request<Reading>,
    user: Option<Arc<User>>,
    client: &Arc<Client>,
    service: &Arc<Service>,
    stop: Stop,
    held: &Held,
) -> Response<tonic::body::Body> {
    let path = request.uri().path().to_owned();
    let (known, method) = path.rsplit_once('/').unwrap_or_default();
    let message_bytes_max = service.config.limits.bulk_bytes_max.saturating_add(BESIDE_VALUE_BYTES);
    let counted = if known == "/esker.v1.Esker" { counted(method) } else { None };
    let mut request = request.map(|body| {
        let body = if user.is_some() { body } else { body.unnamed() };
        Arriving::new(body, client.clone(), service.clone(), held.clone(), message_bytes_max, counted)
    });
    let counters = &service.counters.grpc;
    let answer = match (known, user) {
        ("/esker.v1.Esker", Some(user)) => {
            counters.called(method);
            let database = match database_of(request.headers(), service) {
                Ok(database) => database,
                Err(refused) => return refused.into_http(),
            };
            let is_retry = request.headers().contains_key(PREVIOUS_ATTEMPTS);
            let parent = service.traces.as_ref().and(request.headers().get(TRACE_PARENT));
            let parent = parent.and_then(|value| Parent::parse(value.as_bytes()));
            // The only place that selects the store of a call.
            let store = service.database(database).clone();
            let (client, held, long) = (client.clone(), held.clone(), held.clone());
            let is_named = request.headers().contains_key(AUTHORIZATION);
            let commands = service.users.commands();
            let cluster = service.cluster.clone().map(InCluster::new);
            let call =
                Call { user, commands, is_named, client, held, store, database, is_retry, parent, cluster };
            request.extensions_mut().insert(call);
            let mut server = pb::esker_server::EskerServer::new(Esker::new(service.clone(), stop))
                .max_decoding_message_size(message_bytes_max)
                .max_encoding_message_size(usize::MAX);
            let is_long = || is_long(&long, service.store.compression());
            beside_while(is_long, server.call(request)).await
        }
        ("/grpc.health.v1.Health", _) => {
            counters.called("health");
            let health = Health::new(service.clone(), stop);
            tonic_health::pb::health_server::HealthServer::new(health).call(request).await
        }
        _ if REFLECTION.iter().any(|prefix| path.starts_with(prefix)) => {
            counters.called("reflection");
            reflect(request, path == REFLECTION[0].to_owned() + method).await
        }
        _ => Ok(Status::unimplemented(format!("there is no {path}")).into_http()),
    };
    answer.unwrap_or_else(|never| match never {})
}

async fn reflect(request: Request<Arriving>, is_v1: bool) -> Result<Response<tonic::body::Body>, Infallible> {
    let builder = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
    const GOOD: &str = "the descriptors are ours";
    if is_v1 {
        builder.build_v1().expect(GOOD).call(request).await
    } else {
        builder.build_v1alpha().expect(GOOD).call(request).await
    }
}
