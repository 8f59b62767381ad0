//! A connection, plain or encrypted with TLS.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustls::{ClientConnection, StreamOwned};

use super::tls::Tls;

/// Time limit for a TLS handshake: a server without TLS may wait for more bytes instead of reporting an
/// error.
const HANDSHAKE: Duration = Duration::from_secs(5);

pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    /// A plain connection with a time limit of `patience` for every read and write.
    pub(super) fn plain(stream: TcpStream, patience: Duration) -> io::Result<Stream> {
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        stream.set_nodelay(true)?;
        Ok(Stream::Plain(stream))
    }

    /// An encrypted connection, after the handshake.
    pub(super) fn encrypted(mut stream: TcpStream, tls: &Tls, patience: Duration) -> io::Result<Stream> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience.min(HANDSHAKE)))?;
        stream.set_write_timeout(Some(patience.min(HANDSHAKE)))?;
        let connection = ClientConnection::new(tls.config.clone(), tls.name.clone());
        let mut connection = connection.map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut stream)?;
        }
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Stream::Tls(Box::new(StreamOwned::new(connection, stream))))
    }

    /// Sets the time limit of every read.
    pub(crate) fn set_read_timeout(&self, limit: Duration) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.set_read_timeout(Some(limit)),
            Stream::Tls(stream) => stream.sock.set_read_timeout(Some(limit)),
        }
    }

    /// Returns true if the connection is encrypted.
    pub(super) fn is_encrypted(&self) -> bool {
        matches!(self, Stream::Tls(_))
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(buffer),
            Stream::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.flush(),
            Stream::Tls(stream) => stream.flush(),
        }
    }
}
