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

/// See the module.
pub(super) struct Reading(Option<Rest>);

impl Reading {
    pub(super) fn new(incoming: Incoming, waiting: Arc<Waiting>) -> Reading {
        waiting.reader_began();
        Reading(Some(Rest { incoming, waiting }))
    }
}

impl Body for Reading {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.0.as_mut().expect("it is there until the drop").poll(context)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut rest = self.0.take().expect("it is there until the drop");
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
