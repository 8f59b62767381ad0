//! HTTP for monitoring: `/metrics`, `/status.json`, the page at `/`, `/healthz`, `/readyz` and `/readyz/write`.
//!
//! `/healthz` reports that the process is up; `/readyz` reports whether reads are served, and `/readyz/write` whether writes are
//! too: a full store must stay available to readers. In a cluster both also need every group to be served, and no replica here to
//! have stopped. Each gives the reason if not. None of them requires a login. The other paths
//! require one if RESP does: by HTTP basic authentication, or by a certificate that names a user. While the store is opened no
//! client can log in, and the page and its document show only the progress, as `/readyz` does.
//!
//! Connections are few and short: the head of a request may take 16 KiB and ten seconds, its body is not read, and a connection
//! closes after a minute. A connection beyond the limit closes an older one (`places`), so that probes are always answered.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use base64ct::{Base64, Encoding};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use crate::auth::{LoginRefused, User, login_deadline};
use crate::base::accept::until_stop;
use crate::base::address::Address;
use crate::base::shutdown::Stop;
use crate::base::socket::{Listener, Stream};
use crate::base::turn;
use crate::service::{Service, sampling};

mod host;
mod metrics;
use crate::service::status::Status;

mod page;
mod places;

pub(crate) use places::Busy;
use places::HttpConnections;

const HEAD_BYTES_MAX: usize = 16 << 10;
const HEAD_WAIT: Duration = Duration::from_secs(10);
const CONNECTION_TIME: Duration = Duration::from_secs(60);

/// All paths.
const PATHS: [&str; 6] = ["/", "/status.json", "/metrics", "/healthz", "/readyz", "/readyz/write"];

/// The text format of Prometheus.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
const JSON: &str = "application/json";

type Answer = Response<Full<Bytes>>;

/// Serves the connections of a listener with `connection` until the stop. Then waits for the open ones; dropping this future
/// aborts them.
pub(crate) async fn listen<F>(
    listener: Arc<Listener>,
    stop: Stop,
    connection: impl Fn(Stream, Address, Busy) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut places = HttpConnections::default();
    until_stop(listener, stop, |connections, stream, peer| {
        let (origin, busy) = (peer.origin(), Busy::default());
        places.make_room(origin);
        let task = connections.spawn(connection(stream, peer, busy.clone()));
        places.take(origin, busy, task);
    })
    .await;
}

/// Serves one connection. `user` is the user that it has before logging in.
pub(crate) async fn serve<S>(
    stream: S,
    address: Address,
    user: Option<Arc<User>>,
    service: &Service,
    busy: &Busy,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let answer = async |request| {
        busy.set(true);
        // The users may have changed since the previous request.
        let is_known = user.as_ref().is_some_and(|user| service.users.still(user).is_some());
        let answer = answer(&request, &address, is_known, service).await;
        busy.set(false);
        turn::pause().await;
        Ok::<_, Infallible>(answer)
    };
    let connection = http1().serve_connection(TokioIo::new(stream), service_fn(answer));
    if let Ok(Err(error)) = timeout(CONNECTION_TIME, connection).await {
        tracing::debug!(%error, %address, "HTTP connection ended");
    }
}

/// Serves one request of a connection while the store is opened: the process is up but not ready.
pub(crate) async fn serve_loading<S>(stream: S, address: Address, progress: impl Fn() -> String)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let answer = async |request: Request<Incoming>| {
        Ok::<_, Infallible>(match refuse_call(&request) {
            Some(refusal) => refusal,
            None => match request.uri().path() {
                "/healthz" => plain(StatusCode::OK, format!("ok: {}\n", progress())),
                "/" => page::answer(),
                "/status.json" => {
                    let status = Status::recovering(progress()).to_json();
                    of_type(JSON, plain(StatusCode::OK, status))
                }
                _ => not_ready(&progress()),
            },
        })
    };
    let connection = http1().keep_alive(false).serve_connection(TokioIo::new(stream), service_fn(answer));
    if let Ok(Err(error)) = timeout(CONNECTION_TIME, connection).await {
        tracing::debug!(%error, %address, "HTTP connection ended");
    }
}

fn http1() -> hyper::server::conn::http1::Builder {
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_WAIT).max_buf_size(HEAD_BYTES_MAX);
    builder
}

async fn answer(request: &Request<Incoming>, address: &Address, is_known: bool, service: &Service) -> Answer {
    if let Some(refusal) = refuse_call(request) {
        return refusal;
    }
    match request.uri().path() {
        "/healthz" => plain(StatusCode::OK, "ok\n"),
        "/readyz" => match (service.check_ready(), service.check_writes()) {
            (Err(reason), _) => not_ready(&reason),
            (Ok(()), Err(reason)) => {
                plain(StatusCode::OK, format!("ready for reads, not for writes: {reason}\n"))
            }
            (Ok(()), Ok(())) => plain(StatusCode::OK, "ready\n"),
        },
        "/readyz/write" => match service.check_ready_for_writes() {
            Ok(()) => plain(StatusCode::OK, "ready\n"),
            Err(reason) => not_ready(&reason),
        },
        path => {
            if !is_known && let Err(refused) = log_in(request, address, service).await {
                return refused_login(refused);
            }
            match check_host(request, service) {
                Ok(()) => page_of(path, address, service).await,
                Err(refused) => plain(StatusCode::MISDIRECTED_REQUEST, refused),
            }
        }
    }
}

fn refused_login(refused: LoginRefused) -> Answer {
    match refused {
        LoginRefused::Wrong => {
            let mut answer = plain(StatusCode::UNAUTHORIZED, "a user and a password are needed\n");
            let how = HeaderValue::from_static("Basic realm=\"esker\", charset=\"UTF-8\"");
            answer.headers_mut().insert(WWW_AUTHENTICATE, how);
            answer
        }
        LoginRefused::Busy(busy) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("{busy}\n")),
    }
}

/// Makes a page that needs a login: the live view, its data, or the metrics.
async fn page_of(path: &str, address: &Address, service: &Service) -> Answer {
    match path {
        "/" => page::answer(),
        "/status.json" => of_type(JSON, plain(StatusCode::OK, service.status.json(service))),
        _ => {
            let mut share = service.budget.share(address.origin(), 0);
            let hold = |bytes| share.as_mut().is_some_and(|share| share.try_hold(bytes));
            sampling::refresh(service, hold).await;
            of_type(METRICS, plain(StatusCode::OK, metrics::text(service)))
        }
    }
}

/// Checks the `Host` of a request if the server has no password.
fn check_host(request: &Request<Incoming>, service: &Service) -> Result<(), String> {
    if service.users.unnamed().is_none() {
        return Ok(());
    }
    host::check(request.headers(), &service.config.http_hosts)
}

/// Returns the error response for an unknown path or method; `None` for a valid request.
fn refuse_call(request: &Request<Incoming>) -> Option<Answer> {
    if !PATHS.contains(&request.uri().path()) {
        return Some(plain(StatusCode::NOT_FOUND, format!("there are {}\n", PATHS.join(", "))));
    }
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return None;
    }
    let mut answer = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    Some(answer)
}

fn not_ready(reason: &str) -> Answer {
    plain(StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {reason}\n"))
}

/// Checks that the request carries name and password of a user. The user's rights do not matter.
async fn log_in(
    request: &Request<Incoming>,
    address: &Address,
    service: &Service,
) -> Result<(), LoginRefused> {
    let given = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given.and_then(|given| given.split_once(' '));
    let (_, coded) =
        given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("basic")).ok_or(LoginRefused::Wrong)?;
    let decoded = Base64::decode_vec(coded.trim()).unwrap_or_default();
    let Some(colon) = decoded.iter().position(|&byte| byte == b':') else {
        return Err(LoginRefused::Wrong);
    };
    let (name, password) = (&decoded[..colon], &decoded[colon + 1..]);
    let deadline = login_deadline(service.config.limits.login_wait);
    service.users.log_in(name, password, address, deadline).await.map(drop)
}

/// Sets the content type of a response.
fn of_type(content_type: &'static str, mut answer: Answer) -> Answer {
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(text.into()));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}
