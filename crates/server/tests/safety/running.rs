//! A server with a store of its own, whatever its configuration, and a client that says raw bytes over any stream.

use std::future::pending;
use std::net::SocketAddr;
use std::time::Duration;

use esker_engine::{Options, Store};
use esker_server::{Config, Control, Server};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Nothing here takes longer unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Running {
    pub(crate) resp: Vec<SocketAddr>,
    pub(crate) http: Vec<SocketAddr>,
    pub(crate) control: Control,
    pub(crate) store: Store,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<()>,
    _directory: TempDir,
}

pub(crate) fn here() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

impl Running {
    pub(crate) async fn start(config: Config) -> Running {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::directory(directory.path().join("store")).memory_bytes(128 << 20);
        let store = Store::open(options).await.unwrap();
        let server = Server::bind(config, store.clone()).unwrap();
        let (resp, http) = (server.addresses().to_vec(), server.http_addresses());
        let control = server.control();
        let (stop, stopped) = oneshot::channel();
        let server = tokio::spawn(server.run(async {
            if stopped.await.is_err() {
                pending::<()>().await;
            }
        }));
        Running { resp, http, control, store, stop: Some(stop), server, _directory: directory }
    }

    pub(crate) async fn client(&self) -> Client<TcpStream> {
        Client(TcpStream::connect(self.resp[0]).await.unwrap())
    }

    pub(crate) fn ask_to_stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    pub(crate) async fn stopped(self) {
        timeout(PATIENCE, self.server).await.expect("the server stops").unwrap();
    }

    /// The body of an HTTP answer, after its status.
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
    let request = format!("GET {path} HTTP/1.1\r\nHost: esker\r\nConnection: close\r\n{headers}\r\n");
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

    /// Sends a line and compares the answer.
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

    /// Everything until the server closes.
    pub(crate) async fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        let _ = timeout(PATIENCE, self.0.read_to_end(&mut rest)).await.expect("the server closes");
        String::from_utf8_lossy(&rest).into_owned()
    }
}
