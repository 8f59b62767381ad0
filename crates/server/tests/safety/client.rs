//! A client that sends raw bytes over any stream.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

pub(crate) use crate::running::{PATIENCE, Running, here};

impl Running {
    pub(crate) async fn client(&self) -> Client<TcpStream> {
        Client(TcpStream::connect(self.resp[0]).await.unwrap())
    }

    /// Returns status and body of an HTTP response.
    pub(crate) async fn get(&self, path: &str, headers: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.http[0]).await.unwrap();
        get_over(&mut stream, path, headers).await
    }
}

pub(crate) async fn get_over<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    path: &str,
    headers: &str,
) -> (u16, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("an answer");
    let answer = String::from_utf8(answer).unwrap();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status.unwrap_or_else(|| panic!("no status in {answer:?}")), body.to_owned())
}

pub(crate) struct Client<S>(pub(crate) S);

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
        self.0.flush().await.unwrap();
    }

    /// Sends a line and compares the reply.
    pub(crate) async fn ask(&mut self, line: &str, expected: &str) {
        self.send(format!("{line}\r\n")).await;
        self.expect(line, expected).await;
    }

    pub(crate) async fn expect(&mut self, what: &str, expected: &str) {
        let mut found = Vec::new();
        let read = async {
            while found.len() < expected.len() && expected.as_bytes().starts_with(&found) {
                let mut buffer = vec![0; expected.len() - found.len()];
                match self.0.read(&mut buffer).await {
                    Ok(0) | Err(_) => break,
                    Ok(bytes) => found.extend_from_slice(&buffer[..bytes]),
                }
            }
        };
        let _ = timeout(PATIENCE, read).await;
        assert_eq!(String::from_utf8_lossy(&found), expected, "{what}");
    }

    /// Sends a line repeatedly while the reply is `meanwhile`; the next reply must be `then`.
    pub(crate) async fn ask_until(&mut self, line: &str, meanwhile: &str, then: &str) {
        loop {
            self.send(format!("{line}\r\n")).await;
            let answer = self.until("\r\n").await;
            if answer != meanwhile {
                return assert_eq!(answer, then, "{line}");
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Returns the bytes up to the first occurrence of `end`.
    pub(crate) async fn until(&mut self, end: &str) -> String {
        let mut found = Vec::new();
        let read = async {
            while !found.ends_with(end.as_bytes()) {
                found.push(self.0.read_u8().await.unwrap());
            }
        };
        timeout(PATIENCE, read).await.expect("an answer");
        String::from_utf8(found).unwrap()
    }

    /// Returns all bytes until the server closes the connection.
    pub(crate) async fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        let _ = timeout(PATIENCE, self.0.read_to_end(&mut rest)).await.expect("the server closes");
        String::from_utf8_lossy(&rest).into_owned()
    }
}
