//! The socket of a client, with its input buffer and its unsent answers.

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

use super::reply::Replies;
use crate::base::counting::count;
use crate::base::turn::poll_pause;
use crate::service::Service;

/// Bytes of a read, initially and after small reads.
const READ_BYTES_MIN: usize = 4 << 10;

/// Limit of the bytes of a read, after reads that filled their buffer.
const READ_BYTES_MAX: usize = 256 << 10;

/// Maximum number of slices of answers per write, and of their bytes: copying more in one call takes longer than a turn.
const PIECES_MAX: usize = 16;
const WRITE_BYTES_MAX: usize = 512 << 10;

/// Bytes that a connection may keep while it waits for its client.
pub(in crate::resp) const IDLE_BYTES_MAX: usize = 8 << 10;

pub(in crate::resp) struct Transport<S> {
    pub(in crate::resp) stream: S,
    pub(in crate::resp) input: BytesMut,
    /// Bytes of memory of `input`, including a parsed front.
    allocated: usize,
    /// Bytes of free space to reserve for the next read.
    room: usize,
    pub(in crate::resp) replies: Replies,
    /// Total bytes sent.
    pub(in crate::resp) sent: u64,
}

#[derive(PartialEq, Eq)]
pub(in crate::resp) enum Exchange {
    /// The number of bytes read.
    Read(usize),
    Wrote,
    /// The client has closed its sending side.
    End,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Transport<S> {
    pub(in crate::resp) fn new(stream: S, input: BytesMut, replies: Replies) -> Transport<S> {
        let allocated = input.capacity();
        Transport { stream, input, allocated, room: READ_BYTES_MIN, replies, sent: 0 }
    }

    /// Returns the bytes of memory of both buffers.
    pub(in crate::resp) fn held_bytes(&self) -> usize {
        self.allocated + self.replies.held_bytes()
    }

    /// Removes and returns the first `bytes` bytes of the input, which are parsed.
    pub(in crate::resp) fn take(&mut self, bytes: usize) -> Bytes {
        let taken = self.input.split_to(bytes).freeze();
        if self.input.is_empty() && self.allocated > 4 * READ_BYTES_MAX {
            self.input = BytesMut::new();
            self.allocated = 0;
        }
        taken
    }

    /// Returns the bytes of free space to reserve for the next read. `missing`: bytes of an incomplete argument. A
    /// long argument gets as much space as has arrived, and never more than it declared.
    pub(in crate::resp) fn room(&self, missing: Option<usize>, most: usize) -> usize {
        let usual = self.room.min(most);
        match missing {
            Some(missing) if self.input.len() >= READ_BYTES_MAX => missing.min(self.input.len()).max(usual),
            _ => usual,
        }
    }

    /// Returns the bytes of memory of both buffers now, and at most while space is reserved.
    pub(in crate::resp) fn held_after(&self, room: usize) -> (usize, usize) {
        let now = self.held_bytes();
        let fits = self.input.capacity() - self.input.len() >= room;
        (now, if fits { now } else { now + self.input.len() + room })
    }

    /// Returns true if [`make_room`](Self::make_room) copies more bytes than fit in the time of one turn.
    pub(in crate::resp) fn grows_long(&self, room: usize) -> bool {
        self.input.len() > READ_BYTES_MAX && self.input.capacity() - self.input.len() < room
    }

    pub(in crate::resp) fn make_room(&mut self, room: usize) {
        if self.input.capacity() - self.input.len() >= room {
            return;
        }
        if self.input.len() >= READ_BYTES_MAX {
            let mut larger = BytesMut::with_capacity(self.input.len() + room);
            larger.extend_from_slice(&self.input);
            self.input = larger;
        } else {
            self.input.reserve(room);
        }
        self.allocated = self.input.capacity();
    }

    /// Releases memory that is not needed while the client is silent.
    pub(in crate::resp) fn trim(&mut self) {
        if self.input.is_empty() && self.allocated > IDLE_BYTES_MAX {
            self.room = READ_BYTES_MIN;
            self.input = BytesMut::with_capacity(self.room);
            self.allocated = self.input.capacity();
        }
        self.replies.trim();
    }

    /// Writes as much as the socket accepts; then, if `reading`, reads the available input. If `reading`, completes
    /// when something was read, else when something was written. Dropping the future loses nothing.
    pub(in crate::resp) async fn exchange(
        &mut self,
        reading: bool,
        service: &Service,
    ) -> io::Result<Exchange> {
        poll_fn(|context| {
            let wrote = self.poll_write(context, service)?;
            if reading {
                return self.poll_read(context, service);
            }
            if wrote { Poll::Ready(Ok(Exchange::Wrote)) } else { Poll::Pending }
        })
        .await
    }

    /// Returns true if anything was written. If bytes remain, the task is woken when the socket accepts more.
    fn poll_write(&mut self, context: &mut Context<'_>, service: &Service) -> io::Result<bool> {
        let mut wrote = false;
        while self.replies.unsent_bytes() > 0 {
            let stream = Pin::new(&mut self.stream);
            let written = match self.replies.unsent_piece() {
                Some(piece) => stream.poll_write(context, &piece[..piece.len().min(WRITE_BYTES_MAX)]),
                None => {
                    let (unsent, pieces) = self.replies.unsent::<PIECES_MAX>();
                    let mut bytes = 0;
                    let fits = |piece: &&IoSlice<'_>| {
                        bytes += piece.len();
                        bytes <= WRITE_BYTES_MAX
                    };
                    match unsent[..pieces].iter().take_while(fits).count() {
                        0 | 1 => {
                            stream.poll_write(context, &unsent[0][..unsent[0].len().min(WRITE_BYTES_MAX)])
                        }
                        several => stream.poll_write_vectored(context, &unsent[..several]),
                    }
                }
            };
            match written {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(bytes)) => {
                    wrote = true;
                    self.sent += bytes as u64;
                    count(&service.counters.output_bytes, bytes as u64);
                    count(&service.counters.socket_writes, 1);
                    self.replies.mark_sent(bytes);
                    // Encryption takes time, so the task yields after many bytes; it is woken again. The usual short answer is
                    // not worth a look at the clock.
                    let is_short = bytes < READ_BYTES_MIN && self.replies.unsent_bytes() == 0;
                    if !is_short && poll_pause(context).is_pending() {
                        return Ok(wrote);
                    }
                }
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => return Ok(wrote),
            }
        }
        // A TLS stream holds back its last record until it is flushed.
        if let Poll::Ready(Err(error)) = Pin::new(&mut self.stream).poll_flush(context) {
            return Err(error);
        }
        Ok(wrote)
    }

    /// Reads into the reserved space.
    fn poll_read(&mut self, context: &mut Context<'_>, service: &Service) -> Poll<io::Result<Exchange>> {
        let offered = (self.input.capacity() - self.input.len()).min(READ_BYTES_MAX);
        assert!(offered > 0, "room is made before every read");
        let bytes = ready!(pin!(self.stream.read_buf(&mut (&mut self.input).limit(offered))).poll(context))?;
        if bytes == 0 {
            return Poll::Ready(Ok(Exchange::End));
        }
        count(&service.counters.input_bytes, bytes as u64);
        count(&service.counters.socket_reads, 1);
        if bytes == offered {
            self.room = (self.room * 2).min(READ_BYTES_MAX);
        } else if bytes < self.room / 4 {
            self.room = (self.room / 2).max(READ_BYTES_MIN);
        }
        Poll::Ready(Ok(Exchange::Read(bytes)))
    }
}
