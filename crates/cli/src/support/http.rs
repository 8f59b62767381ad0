//! The metrics of a running server, over HTTP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::client::Login;
use crate::terminal::Failure;

/// Longest answer in bytes.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// The server's address for HTTP, and the credentials for it.
pub(super) struct Http {
    /// HOST:PORT.
    address: String,
    resolved: Result<SocketAddr, String>,
    /// For basic authentication.
    credentials: Option<String>,
    patience: Duration,
}

impl Http {
    /// Resolves the address that was given as `--http`. Does not connect. `patience`: default time limit of an answer.
    ///
    /// # Errors
    /// If the password is missing, or would be sent over the network, which HTTP does not encrypt.
    pub(super) fn new(given: &str, login: &Login, patience: Duration) -> Result<Http, Failure> {
        let (address, credentials) = (Login::address(given), login.basic()?);
        let resolved = match address.to_socket_addrs() {
            Ok(mut all) => all.next().ok_or_else(|| format!("{address} has no address")),
            Err(error) => Err(format!("'{address}': {error}; give HOST:PORT")),
        };
        let is_remote = resolved.as_ref().is_ok_and(|one| !one.ip().to_canonical().is_loopback());
        if credentials.is_some() && is_remote {
            return Err(Failure::Usage(format!(
                "--http {given} is on another machine, and HTTP would send the password unencrypted; leave out --http, or \
                 run esker support on the server's machine with --http 127.0.0.1:PORT"
            )));
        }
        Ok(Http { address, resolved, credentials, patience: login.patience(patience) })
    }

    /// Gets `/metrics`.
    pub(super) fn metrics(&self) -> Result<Vec<u8>, String> {
        let (address, patience) = (&self.address, self.patience);
        let cannot = |error: std::io::Error| format!("cannot get http://{address}/metrics: {error}");
        let mut stream = TcpStream::connect_timeout(&self.resolved.clone()?, patience).map_err(cannot)?;
        stream.set_read_timeout(Some(patience)).map_err(cannot)?;
        stream.set_write_timeout(Some(patience)).map_err(cannot)?;
        let login = self.credentials.as_ref();
        let login = login.map_or(String::new(), |login| format!("Authorization: Basic {login}\r\n"));
        // An answer to HTTP 1.0 is not sent in chunks, whose sizes would be stored.
        let request = format!("GET /metrics HTTP/1.0\r\nHost: {address}\r\n{login}\r\n");
        stream.write_all(request.as_bytes()).map_err(cannot)?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).map_err(cannot)?;
        let end = answer.windows(4).position(|part| part == b"\r\n\r\n");
        let end = end.ok_or_else(|| format!("{address} does not speak HTTP"))?;
        let head = String::from_utf8_lossy(&answer[..end]);
        let status = head.lines().next().unwrap_or_default();
        match status.split(' ').nth(1) {
            Some("200") => Ok(answer.split_off(end + 4)),
            _ => Err(format!("http://{address}/metrics: {status}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Call {
        #[arg(long)]
        http: String,
        #[command(flatten)]
        login: Login,
    }

    fn http(arguments: &[&str]) -> Result<Http, Failure> {
        let words = ["support"].into_iter().chain(arguments.iter().copied());
        let call = Call::try_parse_from(words).expect("the call is valid");
        Http::new(&call.http, &call.login, Duration::from_secs(10))
    }

    #[test]
    fn password_is_sent_to_this_machine_only() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("secret");
        std::fs::write(&file, "sesame\n").expect("it is written");
        let file = file.to_str().expect("it is text");
        match http(&["--http", "192.0.2.1:9121", "--password-file", file]) {
            Err(Failure::Usage(why)) => assert!(why.contains("--http 192.0.2.1:9121"), "{why}"),
            _ => panic!("the password would be sent over the network"),
        }
        for address in ["127.0.0.1:9121", "[::1]:9121", ":9121", "9121"] {
            assert!(http(&["--http", address, "--password-file", file]).is_ok(), "{address}");
        }
        assert!(http(&["--http", "192.0.2.1:9121"]).is_ok());
    }

    #[test]
    fn silent_server_is_left_after_the_time_limit() {
        let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = silent.local_addr().expect("an address").port().to_string();
        let http = http(&["--http", &port, "--timeout", "50ms"]).expect("it is valid");
        assert_eq!(
            (&*http.address, http.patience),
            (&*format!("127.0.0.1:{port}"), Duration::from_millis(50))
        );
        assert!(http.metrics().is_err());
    }
}
