//! A request's frames as HTTP/2 hands them on.
//!
//! hyper takes a stream that was reset with `NO_ERROR` for one that came to its end, and so each stream of a connection that it
//! gives up. What came until then may be a part of the request, so only the end that the client set is one here.
//!
//! What a call does not read is read and thrown away for a moment: h2 and [`Waiting`] count what comes until somebody reads it.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming};
use tokio::runtime::Handle;
use tokio::time::timeout;
use tonic::Status;

use super::error;
use super::frames::Waiting;

/// How long frames are read that nobody wants. Then the stream is reset.
const THROW_AWAY: Duration = Duration::from_secs(1);

/// What a request has at most in all, messages and their heads, if it is answered whoever asks. It names a service.
const UNNAMED_BYTES_MAX: usize = 4 << 10;

/// See the module.
pub(super) struct Reading {
    rest: Option<Rest>,
    /// Bytes that may still come.
    left: usize,
}

impl Reading {
    pub(super) fn new(incoming: Incoming, waiting: Arc<Waiting>) -> Reading {
        waiting.reader_began();
        Reading { rest: Some(Rest { incoming, waiting }), left: usize::MAX }
    }

    /// Of a client that has not said who it is: it has no more than a few messages.
    pub(super) fn unnamed(mut self) -> Reading {
        self.left = UNNAMED_BYTES_MAX;
        self
    }
}

impl Body for Reading {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let rest = self.rest.as_mut().expect("it is there until the drop");
        let frame = ready!(rest.poll(context));
        let bytes = frame.as_ref().and_then(|frame| Some(frame.as_ref().ok()?.data_ref()?.len()));
        match self.left.checked_sub(bytes.unwrap_or(0)) {
            Some(left) => self.left = left,
            None => {
                let text = format!("a request that needs no login has up to {UNNAMED_BYTES_MAX} bytes");
                return Poll::Ready(Some(Err(error::too_large(text))));
            }
        }
        Poll::Ready(frame)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut rest = self.rest.take().expect("it is there until the drop");
        if rest.incoming.is_end_stream() {
            return;
        }
        // Without a runtime there is no connection.
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(timeout(THROW_AWAY, async move {
            while let Some(Ok(_)) = poll_fn(|context| rest.poll(context)).await {}
        }));
    }
}

/// What comes of a request, counted as it is read.
struct Rest {
    incoming: Incoming,
    waiting: Arc<Waiting>,
}

impl Rest {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = match ready!(Pin::new(&mut self.incoming).poll_frame(context)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Some(Err(error::cut(&error.to_string())))),
            None if self.incoming.is_end_stream() => return Poll::Ready(None),
            None => return Poll::Ready(Some(Err(error::cut("its stream was closed before its end")))),
        };
        if let Some(bytes) = frame.data_ref() {
            self.waiting.read(bytes.len());
        }
        Poll::Ready(Some(Ok(frame)))
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        self.waiting.reader_ended();
    }
}
