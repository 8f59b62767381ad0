//! A server on a free port, and a client that sends raw bytes.

use std::time::Duration;

use esker_server::{Config, Limits};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

pub(crate) use crate::running::{PATIENCE, Running, here};

/// Returns a RESP configuration with these limits.
pub(crate) fn limited(limits: Limits) -> Config {
    Config { limits, settings: vec![("dir".into(), "/somewhere".into())], ..Config::resp(here()) }
}

/// Memory limit of one client on a server with little memory, in bytes.
pub(crate) const EACH_BYTES: usize = 3 << 20;

/// Starts a server with little memory for clients.
pub(crate) async fn narrow() -> Running {
    let limits = Limits {
        client_bytes_max: 8 << 20,
        connection_bytes_max: EACH_BYTES,
        memory_wait: Duration::from_millis(50),
        ..Limits::default()
    };
    Running::start(limited(limits)).await
}

pub(crate) fn plain() -> Config {
    limited(Limits::default())
}

impl Running {
    pub(crate) async fn client(&self) -> Client {
        Client(TcpStream::connect(self.resp[0]).await.unwrap())
    }

    /// Connects to the address for reads from replicas.
    pub(crate) async fn replica_client(&self) -> Client {
        Client(TcpStream::connect(self.replica_resp[0]).await.unwrap())
    }
}

/// A client over TCP or another stream.
pub(crate) struct Client<S = TcpStream>(pub(crate) S);

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Expects these bytes next.
    #[track_caller]
    pub(crate) fn expect(&mut self, expected: impl AsRef<[u8]>) -> impl Future<Output = ()> {
        let place = std::panic::Location::caller();
        let expected = expected.as_ref().to_vec();
        async move {
            let mut found = Vec::new();
            let read = async {
                while found.len() < expected.len() && expected.starts_with(&found) {
                    let mut buffer = vec![0; expected.len() - found.len()];
                    let bytes = self.0.read(&mut buffer).await.unwrap();
                    if bytes == 0 {
                        break;
                    }
                    found.extend_from_slice(&buffer[..bytes]);
                }
            };
            let timed_out = timeout(PATIENCE, read).await.is_err();
            let shown = |bytes: &[u8]| bytes.escape_ascii().to_string();
            assert!(
                found == expected,
                "{place}: expected {}, found {}{}",
                shown(&expected),
                shown(&found),
                if timed_out { " and then silence" } else { "" }
            );
        }
    }

    /// Sends an inline command and compares the reply.
    pub(crate) async fn ask(&mut self, line: &str, expected: &str) {
        self.send(format!("{line}\r\n")).await;
        let mut found = vec![0; expected.len()];
        let read = timeout(PATIENCE, self.0.read_exact(&mut found)).await;
        let found = String::from_utf8_lossy(&found);
        assert!(
            read.is_ok_and(|read| read.is_ok()) && found == expected,
            "{line}: expected {expected:?}, found {found:?}"
        );
    }

    /// Returns the next line, without its line end.
    pub(crate) async fn line(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            line.push(timeout(PATIENCE, self.0.read_u8()).await.expect("a line comes").unwrap());
        }
        String::from_utf8_lossy(&line[..line.len() - 2]).into_owned()
    }

    /// Reads a line, which must not be an error.
    pub(crate) async fn skip_line(&mut self) {
        let line = self.line().await;
        assert!(!line.starts_with('-'), "{line}");
    }

    /// Sends a command and returns its reply, a bulk string or a RESP3 text.
    pub(crate) async fn text(&mut self, line: &str) -> String {
        self.send(format!("{line}\r\n")).await;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n") {
            head.push(timeout(PATIENCE, self.0.read_u8()).await.unwrap().unwrap());
        }
        let bytes: usize = std::str::from_utf8(&head[1..head.len() - 2]).unwrap().parse().unwrap();
        let mut body = vec![0; bytes + 2];
        self.0.read_exact(&mut body).await.unwrap();
        String::from_utf8(body[..bytes].to_vec()).unwrap()
    }

    /// Expects that no byte arrives for a while.
    pub(crate) async fn expect_nothing(&mut self) {
        let read = timeout(Duration::from_millis(100), self.0.read_u8()).await;
        assert!(read.is_err(), "{read:?} came");
    }

    /// Expects that the connection is closed without further bytes.
    pub(crate) async fn expect_end(&mut self) {
        let mut rest = Vec::new();
        let ended = timeout(PATIENCE, self.0.read_to_end(&mut rest)).await.expect("the server closes");
        // A reset also ends the connection: the server may close it before reading all our bytes.
        let _ = ended;
        assert_eq!(rest.escape_ascii().to_string(), "");
    }
}

/// Returns a command as an array of bulk strings.
pub(crate) fn command<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.as_ref().len()).bytes());
        bytes.extend_from_slice(word.as_ref());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
