//! OpenTelemetry spans of slow requests, sent to a collector by OTLP/HTTP in JSON (`docs/decisions/0053-traces.md`).
//!
//! 1. The thread that served a slow request puts a span of constant size into a queue ([`Traces::note`]). If the queue is full,
//!    the span is dropped and counted: a serving thread never waits for the collector.
//! 2. One task takes spans from the queue, and posts them in batches (`export`).
//!
//! Memory: [`QUEUE_MAX`] spans in the queue, and one batch with its JSON text.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use esker_seeded_bugs::{Bug, planted};
use tokio::sync::{Semaphore, mpsc};

use crate::base::counting::count;
use crate::base::otlp::TraceConfig;

mod export;
mod json;
mod parent;
mod span;
#[cfg(test)]
mod tests;

pub(crate) use parent::Parent;
pub(crate) use span::{Protocol, Request, Span};

/// Maximum number of spans that wait for the exporter. One takes about 150 bytes.
const QUEUE_MAX: usize = 2048;

/// The spans that are waiting for the collector, and counters.
pub(crate) struct Traces {
    config: TraceConfig,
    /// The queue's end for serving threads.
    queue: mpsc::Sender<Span>,
    /// Its other end, until the exporter takes it.
    waiting: Mutex<Option<mpsc::Receiver<Span>>>,
    pub(crate) counts: TraceCounts,
}

/// Counters of spans.
#[derive(Debug, Default)]
pub(crate) struct TraceCounts {
    /// Spans that the collector accepted.
    pub(crate) sent: AtomicU64,
    /// Spans dropped because the queue was full.
    pub(crate) queue_full: AtomicU64,
    /// Spans dropped because the collector did not answer, or answered with an error.
    pub(crate) not_sent: AtomicU64,
    /// Spans that the collector refused.
    pub(crate) refused: AtomicU64,
}

impl TraceCounts {
    /// Returns the dropped spans by reason.
    pub(crate) fn dropped(&self) -> [(&'static str, u64); 3] {
        [("queue", &self.queue_full), ("collector", &self.not_sent), ("refused", &self.refused)]
            .map(|(reason, counter)| (reason, counter.load(Ordering::Relaxed)))
    }
}

impl Traces {
    pub(crate) fn new(config: TraceConfig) -> Traces {
        let most = if planted(Bug::SpansWithoutLimit) { Semaphore::MAX_PERMITS } else { QUEUE_MAX };
        let (queue, waiting) = mpsc::channel(most);
        Traces { config, queue, waiting: Mutex::new(Some(waiting)), counts: TraceCounts::default() }
    }

    /// Returns true if a request of this duration becomes a span.
    pub(crate) fn is_slow(&self, took: Duration) -> bool {
        took >= self.config.slower_than
    }

    /// Takes the end of the queue from which spans are sent. Returns `None` after the first call.
    fn take_waiting(&self) -> Option<mpsc::Receiver<Span>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Puts the span of a request that has just ended into the queue, or drops it if the queue is full. Does not wait.
    pub(crate) fn note(&self, request: Request<'_>, took: Duration) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let span = Span::new(request, now, took);
        if span.is_none_or(|span| self.queue.try_send(span).is_err()) {
            count(&self.counts.queue_full, 1);
        }
    }
}
