//! Log lines about failed logins and connections.

use std::io;
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};

use esker_server::{Access, Config, Password};
use tokio::net::TcpStream;

use crate::certificates::Authority;
use crate::client::{Client, PATIENCE, Running, here};

/// All log output of this process, by all tests.
static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct ToLog;

impl io::Write for ToLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn log() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::WARN)
            .with_ansi(false)
            .with_writer(|| ToLog)
            .init();
    });
}

/// Returns the lines that contain all of these words; waits for the first one.
async fn lines_with(words: &[&str]) -> Vec<String> {
    let patience = Instant::now() + PATIENCE;
    loop {
        let log = String::from_utf8(LOG.lock().unwrap().clone()).unwrap();
        let found = log.lines().filter(|line| words.iter().all(|word| line.contains(word)));
        let found: Vec<_> = found.map(str::to_owned).collect();
        if !found.is_empty() {
            return found;
        }
        assert!(Instant::now() < patience, "no line with {words:?} in {log}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn wrong_passwords_leave_lines_but_not_one_each() {
    log();
    let access = Access { password: Some(Password::new("open sesame")), ..Access::default() };
    let server = Running::start(Config { access, ..Config::resp(here()) }).await;
    let mut client = server.client().await;
    // A name unique to this test, with a character that would end the line.
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    client.ask(r#"AUTH "mallory\nroot" hunter2"#, wrong).await;
    let found = lines_with(&["login failed", r"mallory\nroot", "127.0.0.1"]).await;
    assert!(!found[0].contains("hunter2"), "{found:?}");
    for _ in 0..200 {
        client.ask("AUTH eve hunter2", wrong).await;
    }
    let found = lines_with(&["login failed", "user=eve"]).await;
    assert!((1..50).contains(&found.len()), "{} lines", found.len());
}

#[tokio::test]
async fn plain_text_at_a_port_of_tls_leaves_a_line() {
    log();
    let authority = Authority::new();
    let config = Config { resp_tls: vec![here()], tls: Some(authority.files(None)), ..Config::resp(here()) };
    let server = Running::start(config).await;
    let mut plain = Client(TcpStream::connect(server.resp[1]).await.unwrap());
    let port = plain.0.local_addr().unwrap().to_string();
    plain.send("PING\r\nPING\r\n").await;
    plain.rest().await;
    lines_with(&["this port speaks TLS, and the client does not", &port]).await;
}

/// The line has the cause and the remedy, with the names of the settings.
#[tokio::test]
async fn refused_write_leaves_a_line_with_its_cause() {
    log();
    let small =
        |options: esker_engine::Options| options.segment_bytes(64 << 10).capacity_limit_bytes(3 << 20);
    let server = Running::start_with(small, Config::resp(here())).await;
    server.store.set_compression(esker_engine::Compression::Off).expect("it needs no feature");
    for key in 0_u32.. {
        assert!(key < 1000, "it is never full");
        if server.store.put(key.to_string(), vec![0_u8; 7000]).await.is_err() {
            break;
        }
    }
    let refused = server.store.refused_write().expect("the store is full");
    let esker_engine::Error::Full { live_bytes, limit_bytes, .. } = refused.error else {
        panic!("{refused:?}")
    };
    let text =
        format!("{live_bytes} bytes are used of at most {limit_bytes}; delete keys, or raise capacity-limit");
    assert_eq!(lines_with(&["WARN", "writes are refused: store is full", &text]).await.len(), 1);
}
