//! One client: read, run, answer.
//!
//! 1. All complete commands in the input become one batch.
//! 2. The batch runs group by group (`run`). While more answer bytes wait than the backlog may hold, they are written
//!    and nothing else happens: no further group starts, and nothing is read.
//! 3. Answers are written as far as the socket takes them; in the same step more input is read.
//!
//! So the memory a client holds is bounded by its largest command, one read, and the backlog of answers with one group
//! of commands on top. A stop is seen only in step 3: commands that were read are run and answered.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::frame::{Commands, Parser};
use super::reply::Replies;
use super::run::{self, Batch};
use super::session::Session;
use crate::service::{Service, count};
use crate::shutdown::Stop;

/// Room for one read, at first and after small reads.
const READ_BYTES_MIN: usize = 4 << 10;

/// Room for one read after reads that filled what they were given. It bounds how many commands one batch has.
const READ_BYTES_MAX: usize = 256 << 10;

/// Serves one client until it leaves, breaks the protocol, or the server stops.
pub(crate) async fn serve<S>(
    stream: S,
    id: u64,
    (peer, local): (SocketAddr, SocketAddr),
    service: &Service,
    mut stop: Stop,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut transport =
        Transport { stream, input: BytesMut::new(), room: READ_BYTES_MIN, replies: Replies::new() };
    let user = service.users.unnamed();
    let present = service.clients.enter(id, peer, local, user.as_ref().map_or("", |user| user.name()));
    let client = present.client.clone();
    let mut session = Session::new(peer, user, client.clone());
    let mut parser = Parser::new(&service.config.limits);
    let mut commands = Commands::default();
    let backlog_max = service.config.limits.backlog_bytes_max;

    while !session.leaving && !client.is_killed() {
        // 1.
        commands.clear();
        let (consumed, parsed) = parser.parse(&mut transport.input, &mut commands);
        count(&service.counters.commands, commands.len() as u64);

        // 2.
        let mut batch = Batch::new(&commands, transport.take(consumed));
        while !batch.is_done() && !session.leaving {
            run::next(&mut batch, &mut session, service, &mut transport.replies).await;
            while transport.replies.unsent().len() > backlog_max {
                tokio::select! {
                    exchanged = transport.exchange(false, service) => exchanged.map(drop)?,
                    () = client.killed() => return Ok(()),
                }
            }
        }
        drop(batch);

        if let Err(error) = parsed {
            transport.replies.error(&error.0);
            break;
        }

        // 3. Step 2 left no more than the backlog may hold, so input is welcome.
        if !session.leaving {
            tokio::select! {
                biased;
                exchanged = transport.exchange(true, service) => if exchanged? == Exchange::End { break },
                () = stop.announced() => break,
                () = client.killed() => return Ok(()),
            }
        }
    }

    let goodbye = async {
        while !transport.replies.unsent().is_empty() {
            transport.exchange(false, service).await?;
        }
        transport.stream.shutdown().await
    };
    timeout(service.config.limits.closing_wait, goodbye).await?
}

/// The socket with its two buffers.
struct Transport<S> {
    stream: S,
    input: BytesMut,
    /// Room to make for the next read.
    room: usize,
    replies: Replies,
}

#[derive(PartialEq, Eq)]
enum Exchange {
    Read,
    Wrote,
    /// The client sends nothing more.
    End,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Transport<S> {
    /// Takes the first bytes of the input, which are all parsed.
    fn take(&mut self, bytes: usize) -> Bytes {
        let taken = self.input.split_to(bytes).freeze();
        if self.input.is_empty() && self.input.capacity() > 4 * READ_BYTES_MAX {
            self.input = BytesMut::new();
        }
        taken
    }

    /// Writes what the socket takes; then, if `reading`, reads what is there. Waits until one of them got anywhere:
    /// until something was read, or, if not `reading`, until something was written. Dropping the future loses nothing.
    async fn exchange(&mut self, reading: bool, service: &Service) -> io::Result<Exchange> {
        poll_fn(|context| {
            let wrote = self.poll_write(context, service)?;
            if reading {
                return self.poll_read(context, service);
            }
            if wrote { Poll::Ready(Ok(Exchange::Wrote)) } else { Poll::Pending }
        })
        .await
    }

    /// Whether anything was written. If not everything was, the task is woken when more can be.
    fn poll_write(&mut self, context: &mut Context<'_>, service: &Service) -> io::Result<bool> {
        let mut wrote = false;
        while !self.replies.unsent().is_empty() {
            let unsent = self.replies.unsent();
            match Pin::new(&mut self.stream).poll_write(context, unsent) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(bytes)) => {
                    wrote = true;
                    count(&service.counters.output_bytes, bytes as u64);
                    self.replies.mark_sent(bytes);
                }
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => break,
            }
        }
        Ok(wrote)
    }

    fn poll_read(&mut self, context: &mut Context<'_>, service: &Service) -> Poll<io::Result<Exchange>> {
        self.input.reserve(self.room);
        let offered = self.input.capacity() - self.input.len();
        let bytes = ready!(pin!(self.stream.read_buf(&mut self.input)).poll(context))?;
        if bytes == 0 {
            return Poll::Ready(Ok(Exchange::End));
        }
        count(&service.counters.input_bytes, bytes as u64);
        if bytes == offered {
            self.room = (self.room * 2).min(READ_BYTES_MAX);
        } else if bytes < self.room / 4 {
            self.room = (self.room / 2).max(READ_BYTES_MIN);
        }
        Poll::Ready(Ok(Exchange::Read))
    }
}
