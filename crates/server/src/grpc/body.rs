//! Bodies of requests and responses.
//!
//! The bytes of a request are charged to the memory for clients as they arrive, and a message is passed on only when it is
//! complete, because the decoder allocates the length that the message header declares. A message that lists more elements than
//! its method allows is not passed on either ([`Counted`]). Twice the bytes are charged, for the message and for the data made
//! from it, until the answer is sent. The bytes are copied from the socket's read buffer, because otherwise a single byte would
//! keep the whole buffer.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use hyper::body::{Body, Frame};
use tokio::time::{Sleep, sleep_until};
use tonic::Status;

use super::client::{Answering, Client};
use super::error;
use super::message_counts::Counted;
use super::reading::Reading;
use crate::base::counting::count;
use crate::base::pace::Pace;
use crate::base::turn::aside;
use crate::budget::Piece;
use crate::service::Service;

/// Length of a message header: compression flag and message length.
const HEAD_BYTES: usize = 5;

/// Memory of a call. Response data already passed on keeps the memory that the call held at that time.
#[derive(Clone, Default)]
pub(super) struct Held {
    pieces: Arc<Mutex<Pieces>>,
    /// See [`Held::bytes`].
    bytes: Arc<AtomicUsize>,
}

type Pieces = Arc<Mutex<Vec<Piece>>>;

impl Held {
    pub(super) fn push(&self, piece: Piece) {
        self.bytes.fetch_add(piece.bytes(), Ordering::Relaxed);
        let pieces = self.now();
        pieces.lock().expect("the lock is never poisoned: no code panics while holding it").push(piece);
    }

    /// Sets the bytes that the call works on once they are known. The memory taken may be several times as much, because the
    /// length of a value is estimated before it is read.
    pub(super) fn works_on(&self, bytes: usize) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Returns an upper bound of the bytes that the call works on: those last set by [`works_on`](Self::works_on), and the memory
    /// taken since.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn now(&self) -> Pieces {
        self.pieces.lock().expect("the lock is never poisoned: no code panics while holding it").clone()
    }

    /// Starts with no memory. The memory held so far is released when all data passed on is sent.
    pub(super) fn renew(&self) {
        self.bytes.store(0, Ordering::Relaxed);
        let before = std::mem::take(
            &mut *self.pieces.lock().expect("the lock is never poisoned: no code panics while holding it"),
        );
        drop(before);
    }
}

/// Memory from which a call is long and runs beside the serving threads, in bytes.
pub(super) const LONG_BYTES: usize = 512 << 10;

type Taking = Pin<Box<dyn Future<Output = Result<Piece, Status>> + Send>>;

/// A request that is arriving.
pub(super) struct Arriving {
    incoming: Reading,
    client: Arc<Client>,
    service: Arc<Service>,
    held: Held,
    message_bytes_max: usize,
    /// Bytes waiting for memory, and the future that takes it.
    taking: Option<(Bytes, Taking)>,
    /// Parts of an incomplete message, and parts of complete messages that are not passed on yet.
    waiting: VecDeque<Bytes>,
    complete: VecDeque<Bytes>,
    head: Vec<u8>,
    /// Missing bytes of the message, once its header is complete.
    lacks: usize,
    /// Counter of the message's list elements, if the method limits them.
    counted: Option<Counted>,
    pace: Pace,
    late: Option<(Duration, Pin<Box<Sleep>>)>,
}

impl Arriving {
    pub(super) fn new(
        incoming: Reading,
        client: Arc<Client>,
        service: Arc<Service>,
        held: Held,
        message_bytes_max: usize,
        counted: Option<Counted>,
    ) -> Arriving {
        let pace = Pace::start();
        let wait = service.config.limits.command_wait;
        Arriving {
            incoming,
            client,
            service,
            held,
            message_bytes_max,
            taking: None,
            waiting: VecDeque::new(),
            complete: VecDeque::new(),
            head: Vec::with_capacity(HEAD_BYTES),
            lacks: 0,
            counted,
            pace,
            late: wait.map(|wait| (wait, Box::pin(sleep_until(pace.deadline(wait))))),
        }
    }

    /// Divides bytes into complete messages and an incomplete one.
    fn sort(&mut self, mut bytes: Bytes) -> Result<(), Status> {
        while !bytes.is_empty() {
            if self.head.len() < HEAD_BYTES {
                let part = bytes.split_to(bytes.len().min(HEAD_BYTES - self.head.len()));
                self.head.extend_from_slice(&part);
                self.waiting.push_back(part);
                let &[_, a, b, c, d] = &self.head[..] else { continue };
                self.lacks = u32::from_be_bytes([a, b, c, d]) as usize;
                if self.lacks > self.message_bytes_max {
                    return Err(error::too_large(format!(
                        "the message has {} bytes; a message has up to {} (argument-limit and 128 KiB), and longer \
                         values go by Upload",
                        self.lacks, self.message_bytes_max
                    )));
                }
            } else {
                let part = bytes.split_to(bytes.len().min(self.lacks));
                self.lacks -= part.len();
                if let Some(counted) = &mut self.counted {
                    counted.read(&part);
                }
                self.waiting.push_back(part);
            }
            if self.head.len() == HEAD_BYTES && self.lacks == 0 {
                self.head.clear();
                if let Some(counted) = &mut self.counted {
                    counted.end()?;
                }
                self.complete.append(&mut self.waiting);
            }
        }
        Ok(())
    }

    /// Fails if the stream ends inside a message.
    fn check_end(&mut self) -> Result<(), Status> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.waiting.clear();
        Err(error::invalid("the stream ended inside a message"))
    }
}

impl Body for Arriving {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        loop {
            if let Some(bytes) = this.complete.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            if let Some((_, taking)) = &mut this.taking {
                let piece = ready!(taking.as_mut().poll(context));
                let (bytes, _) = this.taking.take().expect("the bytes are stored together with their future");
                match piece {
                    Ok(piece) => this.held.push(piece),
                    Err(status) => return Poll::Ready(Some(Err(status))),
                }
                if let Err(status) = this.sort(Bytes::copy_from_slice(&bytes)) {
                    return Poll::Ready(Some(Err(status)));
                }
                continue;
            }
            let frame = match Pin::new(&mut this.incoming).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(Some(Err(status))) => return Poll::Ready(Some(Err(status))),
                Poll::Ready(None) => return Poll::Ready(this.check_end().err().map(Err)),
                Poll::Pending => {
                    if let Some((wait, late)) = &mut this.late {
                        let deadline = this.pace.deadline(*wait);
                        if late.deadline() != deadline {
                            late.as_mut().reset(deadline);
                        }
                        ready!(late.as_mut().poll(context));
                        return Poll::Ready(Some(Err(error::too_slow())));
                    }
                    return Poll::Pending;
                }
            };
            match frame.into_data() {
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) => {
                    count(&this.service.counters.input_bytes, bytes.len() as u64);
                    this.pace.progress(bytes.len());
                    let (pieces, wanted) = (this.client.pieces.clone(), 2 * bytes.len());
                    let taking = async move { pieces.take(wanted).await.map_err(error::of_memory) };
                    this.taking = Some((bytes, Box::pin(taking)));
                }
                // Trailers also end the stream.
                Err(frame) => return Poll::Ready(Some(this.check_end().map(|()| frame))),
            }
        }
    }
}

/// A response that is leaving, with the memory of its call.
pub(super) struct Leaving {
    body: tonic::body::Body,
    answering: Arc<Answering>,
    service: Arc<Service>,
    held: Held,
}

impl Leaving {
    pub(super) fn new(
        body: tonic::body::Body,
        answering: Arc<Answering>,
        service: Arc<Service>,
        held: Held,
    ) -> Leaving {
        Leaving { body, answering, service, held }
    }
}

/// Bytes of a response on their way. HTTP/2 queues them until the client's window allows sending, even after the response has
/// ended, so they carry their memory.
pub(super) struct Outgoing {
    bytes: Bytes,
    answering: Arc<Answering>,
    _pieces: Pieces,
}

impl Buf for Outgoing {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, bytes: usize) {
        self.bytes.advance(bytes);
        self.answering.sent(bytes);
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.answering.sent(self.bytes.len());
    }
}

impl Body for Leaving {
    type Data = Outgoing;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Outgoing>, Status>>> {
        let this = &mut *self;
        // The response is encoded here. Concurrent encodings are bounded by the memory that they hold.
        let is_short = this.held.bytes() < LONG_BYTES;
        let Some(frame) = ready!(aside(is_short, || Pin::new(&mut this.body).poll_frame(context))) else {
            return Poll::Ready(None);
        };
        let frame = frame?;
        if let Some(status) = frame.trailers_ref().and_then(Status::from_header_map) {
            this.service.counters.grpc.ended(status.code());
            this.answering.ended();
        }
        let frame = frame.map_data(|bytes| {
            count(&this.service.counters.output_bytes, bytes.len() as u64);
            this.answering.handed_on(bytes.len());
            Outgoing { bytes, answering: this.answering.clone(), _pieces: this.held.now() }
        });
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
