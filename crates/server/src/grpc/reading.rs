//! A request's frames as HTTP/2 hands them on.
//!
//! hyper takes a stream that was reset with `NO_ERROR` for one that came to its end, and so each stream of a connection that it
//! gives up. What came until then may be a part of the request, so only the end that the client set is one here.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming};
use tonic::Status;

use super::error;
use super::frames::Waiting;

/// See the module.
pub(super) struct Reading {
    incoming: Incoming,
    waiting: Arc<Waiting>,
}

impl Reading {
    pub(super) fn new(incoming: Incoming, waiting: Arc<Waiting>) -> Reading {
        Reading { incoming, waiting }
    }
}

impl Body for Reading {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
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
