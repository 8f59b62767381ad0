//! The frames of a request body, as HTTP/2 delivers them.
//!
//! hyper treats a stream that was reset with `NO_ERROR` as complete, and therefore also the streams of a connection that it gives
//! up. The received part may be incomplete, so only an end set by the client counts as the end here.
//!
//! Frames that a call does not read are read and discarded for a short time, because h2 and [`Waiting`] count received frames
//! until they are read.

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

/// Time for which unwanted frames are read; after that the stream is reset.
const THROW_AWAY: Duration = Duration::from_secs(1);

/// Maximum bytes of a request that needs no login, messages with their headers. Such a request only names a service.
const UNNAMED_BYTES_MAX: usize = 4 << 10;

/// See the module.
pub(super) struct Reading {
    rest: Option<Rest>,
    /// Bytes that may still arrive.
    left: usize,
}

impl Reading {
    pub(super) fn new(incoming: Incoming, waiting: Arc<Waiting>) -> Reading {
        waiting.reader_began();
        Reading { rest: Some(Rest { incoming, waiting }), left: usize::MAX }
    }

    /// Limits the request of a client without a known user to a few small messages.
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
        let rest = self.rest.as_mut().expect("the body is present until drop");
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
        let mut rest = self.rest.take().expect("the body is present until drop");
        if rest.incoming.is_end_stream() {
            return;
        }
        // Without a runtime, there is no connection either.
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(timeout(THROW_AWAY, async move {
            while let Some(Ok(_)) = poll_fn(|context| rest.poll(context)).await {}
        }));
    }
}

/// The remaining frames of a request, counted as they are read.
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
