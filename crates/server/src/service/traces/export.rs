//! The exporter: posts spans to the collector, one batch at a time.
//!
//! * A batch that the collector did not take is posted again, [`TRIES`] times in all with growing pauses, if the cause may pass:
//!   no connection, no answer in time, 429, 502, 503 or 504. Then it is dropped and counted.
//! * The collector is not trusted: an answer has a time limit, and no more than [`ANSWER_BYTES_MAX`] of its body are read.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use esker_seeded_bugs::{Bug, planted};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::json::body;
use super::{Span, TraceCounts, Traces};
use crate::base::counting::count;
use crate::base::limited_log::Notices;
use crate::base::otlp::OtlpEndpoint;

/// Maximum number of spans in a post.
const BATCH_MAX: usize = 256;

/// Time from the first span of a batch to its post, in which further spans join it.
const GATHER: Duration = Duration::from_secs(1);

/// Time limit of a post with its answer.
const POST_WAIT: Duration = Duration::from_secs(10);

/// Posts of a batch before it is dropped.
const TRIES: u32 = 4;

/// Pause before the second post of a batch; each further pause is twice as long.
const PAUSE: Duration = Duration::from_secs(1);

/// Maximum bytes of an answer's body.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// The reason why the collector did not take a batch.
#[derive(Debug, thiserror::Error)]
enum PostError {
    #[error("no connection: {0}")]
    Connect(io::Error),
    #[error("no answer within {POST_WAIT:?}")]
    Late,
    #[error("no answer of HTTP: {0}")]
    Http(#[from] hyper::Error),
    #[error("it answered {0}")]
    Status(StatusCode),
}

impl PostError {
    /// Returns true if a later post of the same batch may succeed.
    fn may_pass(&self) -> bool {
        match self {
            PostError::Connect(_) | PostError::Late => true,
            PostError::Http(error) => !error.is_parse(),
            PostError::Status(code) => matches!(code.as_u16(), 429 | 502..=504),
        }
    }
}

impl Traces {
    /// Sends spans to the collector until the task is aborted. Returns at once if another task does.
    pub(crate) async fn export(self: Arc<Traces>, run_id: String) {
        let Some(mut waiting) = self.take_waiting() else { return };
        let mut batch = Vec::new();
        loop {
            // `self` has a sender, so the queue never ends.
            if waiting.recv_many(&mut batch, BATCH_MAX).await == 0 {
                return;
            }
            if batch.len() < BATCH_MAX {
                sleep(GATHER).await;
            }
            while batch.len() < BATCH_MAX
                && let Ok(span) = waiting.try_recv()
            {
                batch.push(span);
            }
            deliver(&self.config.endpoint, &batch, &run_id, &self.counts).await;
            batch.clear();
        }
    }
}

/// Posts a batch until the collector takes it, or the last attempt fails. Counts its spans.
async fn deliver(endpoint: &OtlpEndpoint, batch: &[Span], run_id: &str, counts: &TraceCounts) {
    static NOTICES: Notices = Notices::new();
    let text = Bytes::from(body(batch, run_id));
    let spans = batch.len() as u64;
    let add = |counter: &AtomicU64, spans| count(counter, spans);
    let mut pause = PAUSE;
    for attempt in 1..=TRIES {
        let posted = timeout(POST_WAIT, post(endpoint, text.clone())).await;
        match posted.unwrap_or(Err(PostError::Late)) {
            Ok(refused) => {
                let refused = refused.min(spans);
                add(&counts.refused, refused);
                add(&counts.sent, spans - refused);
                return;
            }
            Err(error) if error.may_pass() && attempt < TRIES => {
                sleep(pause).await;
                pause *= 2;
            }
            Err(error) => {
                add(&counts.not_sent, spans);
                let hint = if endpoint.port == 4317 {
                    "; 4317 is usually the port for OTLP over gRPC, and 4318 the one for HTTP"
                } else {
                    ""
                };
                if let Some(left_out) = NOTICES.turn() {
                    tracing::warn!(collector = %endpoint, spans, left_out, "spans dropped: {error}{hint}");
                }
                return;
            }
        }
    }
}

/// Posts a body. Returns the number of spans that the collector refused.
async fn post(endpoint: &OtlpEndpoint, text: Bytes) -> Result<u64, PostError> {
    let stream = TcpStream::connect(endpoint.target()).await.map_err(PostError::Connect)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::post(&endpoint.path)
        .header(HOST, endpoint.authority())
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(text))
        .expect("path and host are parts of a parsed URL");
    let answered = async move {
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let most = if planted(Bug::CollectorAnswerWithoutLimit) { usize::MAX } else { ANSWER_BYTES_MAX };
        let body = Limited::new(answer.into_body(), most).collect().await;
        Ok::<_, PostError>((status, body.map(|body| body.to_bytes()).unwrap_or_default()))
    };
    let mut answered = std::pin::pin!(answered);
    // The connection reads and writes while it is polled. It may end before the answer was taken from it.
    let (status, body) = tokio::select! {
        answered = &mut answered => answered?,
        _ended = connection => answered.await?,
    };
    if status.is_success() { Ok(refused_spans(&body)) } else { Err(PostError::Status(status)) }
}

/// Returns the number of refused spans in the answer of a collector; 0 if it has none, or is malformed.
fn refused_spans(body: &[u8]) -> u64 {
    let answer: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let refused = &answer["partialSuccess"]["rejectedSpans"];
    refused.as_u64().or_else(|| refused.as_str()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_spans_of_an_answer_are_counted() {
        for (body, refused) in [
            (r#"{"partialSuccess":{"rejectedSpans":"3"}}"#, 3),
            (r#"{"partialSuccess":{"rejectedSpans":3}}"#, 3),
            (r#"{"partialSuccess":{}}"#, 0),
            (r#"{"partialSuccess":{"rejectedSpans":-3}}"#, 0),
            ("{}", 0),
            ("[[[", 0),
            ("\u{0}", 0),
            ("", 0),
        ] {
            assert_eq!(refused_spans(body.as_bytes()), refused, "{body}");
        }
    }
}
