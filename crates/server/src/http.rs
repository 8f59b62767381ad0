//! HTTP for those who watch: `/metrics`, `/healthz` and `/readyz`.
//!
//! `/healthz` says that the process answers; `/readyz`, whether writes are taken, and if not why. Neither asks who one is.
//! `/metrics` does where RESP does: by HTTP's Basic authentication, or by a certificate that names a user.
//!
//! Connections are few and short: a request has 16 KiB and ten seconds for its head, its body is not read, and a
//! connection ends after a minute.

use std::convert::Infallible;
use std::net::IpAddr;
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

use crate::auth::User;
use crate::metrics;
use crate::service::Service;

/// Connections at a time. They are not counted among those of RESP, so that a server that is full can still be watched.
pub(crate) const CONNECTIONS_MAX: usize = 64;

const HEAD_BYTES_MAX: usize = 16 << 10;
const HEAD_WAIT: Duration = Duration::from_secs(10);
const CONNECTION_TIME: Duration = Duration::from_secs(60);

type Answer = Response<Full<Bytes>>;

/// Serves one connection. `user` is who it speaks for before it has said anything.
pub(crate) async fn serve<S>(stream: S, address: IpAddr, user: Option<Arc<User>>, service: &Service)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let answer = async |request| Ok::<_, Infallible>(answer(&request, address, user.as_ref(), service).await);
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service_fn(answer));
    if let Ok(Err(error)) = timeout(CONNECTION_TIME, connection).await {
        tracing::debug!(%error, %address, "HTTP connection ended");
    }
}

async fn answer(
    request: &Request<Incoming>,
    address: IpAddr,
    user: Option<&Arc<User>>,
    service: &Service,
) -> Answer {
    let known = matches!(request.uri().path(), "/metrics" | "/healthz" | "/readyz");
    if known && !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut answer = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return answer;
    }
    match request.uri().path() {
        "/healthz" => plain(StatusCode::OK, "ok\n"),
        "/readyz" => match service.check_ready() {
            Ok(()) => plain(StatusCode::OK, "ready\n"),
            Err(reason) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {reason}\n")),
        },
        "/metrics" if user.is_some() || log_in(request, address, service).await => {
            let mut answer = plain(StatusCode::OK, metrics::text(service));
            let version = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
            answer.headers_mut().insert(CONTENT_TYPE, version);
            answer
        }
        "/metrics" => {
            let mut answer = plain(StatusCode::UNAUTHORIZED, "a user and a password are needed\n");
            let how = HeaderValue::from_static("Basic realm=\"esker\", charset=\"UTF-8\"");
            answer.headers_mut().insert(WWW_AUTHENTICATE, how);
            answer
        }
        _ => plain(StatusCode::NOT_FOUND, "there are /metrics, /healthz and /readyz\n"),
    }
}

/// Whether the request brings the name and the password of a user, whatever its rights.
async fn log_in(request: &Request<Incoming>, address: IpAddr, service: &Service) -> bool {
    let given = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some((scheme, coded)) = given.and_then(|given| given.split_once(' ')) else { return false };
    let decoded = Base64::decode_vec(coded.trim()).unwrap_or_default();
    let Some(colon) = decoded.iter().position(|&byte| byte == b':') else { return false };
    let (name, password) = (&decoded[..colon], &decoded[colon + 1..]);
    scheme.eq_ignore_ascii_case("basic") && service.users.log_in(name, password, address).await.is_some()
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(text.into()));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}
