//! TCP and unix sockets behind one type: listeners and byte streams.

use std::io::{self, IoSlice, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::address::Address;

/// A listening socket.
#[derive(Debug)]
pub(crate) enum Listener {
    Network(TcpListener, SocketAddr),
    Local(UnixListener, Arc<Path>),
}

impl Listener {
    /// Returns the next connection and its peer address.
    pub(crate) async fn accept(&self) -> io::Result<(Stream, Address)> {
        match self {
            Listener::Network(listener, _) => {
                let (stream, peer) = listener.accept().await?;
                Ok((Stream::Network(stream), Address::Network(peer)))
            }
            Listener::Local(listener, socket) => {
                let (stream, _) = listener.accept().await?;
                let uid = stream.peer_cred()?.uid();
                Ok((Stream::Local(stream), Address::Local { socket: socket.clone(), uid }))
            }
        }
    }
}

/// Byte stream of a connection.
#[derive(Debug)]
pub(crate) enum Stream {
    Network(TcpStream),
    Local(UnixStream),
}

impl Stream {
    /// Returns the local address; `peer` is the remote address. Both ends of a unix socket have the address of the socket.
    pub(crate) fn local_address(&self, peer: &Address) -> io::Result<Address> {
        match self {
            Stream::Network(stream) => stream.local_addr().map(Address::Network),
            Stream::Local(_) => Ok(peer.clone()),
        }
    }

    /// Sets TCP_NODELAY, so that small replies are sent at once, and keepalive, which detects dead peers. Unix sockets need
    /// neither.
    pub(crate) fn tune(&self, keepalive_after: Option<Duration>, peer: &Address) {
        let Stream::Network(stream) = self else { return };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, %peer, "cannot set TCP_NODELAY");
        }
        if let Some(after) = keepalive_after
            && let Err(error) = SockRef::from(stream).set_tcp_keepalive(&keepalive(after))
        {
            tracing::debug!(%error, %peer, "cannot set SO_KEEPALIVE");
        }
    }

    /// Sends a few bytes if the kernel accepts them at once, and closes the stream.
    pub(crate) fn say_and_close(self, text: &str) {
        let _ = match self {
            Stream::Network(stream) => stream.into_std().and_then(|mut stream| stream.write(text.as_bytes())),
            Stream::Local(stream) => stream.into_std().and_then(|mut stream| stream.write(text.as_bytes())),
        };
    }
}

/// Probes the peer after `after` of silence, and three times in all before the connection is closed, as Redis does.
fn keepalive(after: Duration) -> TcpKeepalive {
    /// Range that the kernel accepts, in seconds.
    const RANGE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(32_767)];
    let within = |time: Duration| time.clamp(RANGE[0], RANGE[1]);
    TcpKeepalive::new().with_time(within(after)).with_interval(within(after / 3)).with_retries(3)
}

/// Calls the same method on either kind of stream.
macro_rules! either {
    ($stream:expr, $inner:ident => $call:expr) => {
        match $stream.get_mut() {
            Stream::Network($inner) => $call,
            Stream::Local($inner) => $call,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        either!(self, inner => Pin::new(inner).poll_read(context, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, inner => Pin::new(inner).poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self, inner => Pin::new(inner).poll_write_vectored(context, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, inner => Pin::new(inner).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, inner => Pin::new(inner).poll_shutdown(context))
    }
}
