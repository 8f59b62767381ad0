//! Messages and clients that take too much.

use std::time::Duration;

use esker_server::{Config, Limits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::client::{PATIENCE, Running, get, key, locked, pb, plain, put, refused};

#[tokio::test]
async fn messages_have_a_longest() {
    let limits = Limits { bulk_bytes_max: 1 << 20, ..Limits::default() };
    let running = Running::start(Config { limits, ..plain() }).await;
    let mut client = running.client().await;
    client.put(put("fits", vec![7; 1 << 20])).await.unwrap();
    refused(client.put(put("k", vec![7; 2 << 20])).await, Code::ResourceExhausted, "TOO_LARGE");
    // And so have answers.
    running.store.put("large", vec![7; 2 << 20]).await.unwrap();
    refused(client.get(get("large")).await, Code::ResourceExhausted, "TOO_LARGE");
    let keys = vec![key("fits"), key("fits")];
    refused(client.multi_get(pb::MultiGetRequest { keys }).await, Code::ResourceExhausted, "TOO_LARGE");
    assert_eq!(running.store.get("k").await.unwrap(), None);
}

#[tokio::test]
async fn a_client_has_so_much_memory() {
    let limits = Limits {
        client_bytes_max: 8 << 20,
        connection_bytes_max: 3 << 20,
        memory_wait: Duration::from_millis(50),
        ..Limits::default()
    };
    let running = Running::start(Config { limits, ..plain() }).await;
    let mut client = running.client().await;
    client.put(put("k", vec![7; 1 << 20])).await.unwrap();
    refused(client.put(put("k", vec![7; 2 << 20])).await, Code::ResourceExhausted, "CLIENT_MEMORY");
    running.store.put("k", vec![7; 4 << 20]).await.unwrap();
    refused(client.get(get("k")).await, Code::ResourceExhausted, "CLIENT_MEMORY");
}

/// What a client of HTTP/2 says first: its preface and empty settings.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

#[tokio::test]
async fn who_does_not_log_in_is_dropped() {
    let mut config = locked("secret");
    config.limits.login_wait = Some(Duration::from_millis(100));
    let running = Running::start(config).await;
    for first in [HELLO, b"", b"GET / HTTP/1.1\r\n\r\n"] {
        let mut stream = TcpStream::connect(running.grpc[0]).await.unwrap();
        stream.write_all(first).await.unwrap();
        let mut rest = Vec::new();
        let _ = timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("the server closes");
    }
}

/// Nobody has to log in to ask for the health, so who asks for it has not logged in.
#[tokio::test]
async fn who_only_asks_for_the_health_is_dropped_as_well() {
    let mut config = locked("secret");
    config.limits.login_wait = Some(Duration::from_millis(300));
    let running = Running::start(config).await;
    let ask = HealthCheckRequest::default();
    let mut stream =
        HealthClient::new(running.channel().await).watch(ask.clone()).await.unwrap().into_inner();
    let serving = timeout(PATIENCE, stream.message()).await.expect("an answer").unwrap().unwrap();
    assert_eq!(serving.status(), ServingStatus::Serving);
    let end = timeout(PATIENCE, stream.message()).await.expect("the server ends it");
    assert!(end.is_err(), "{end:?}");
    // A channel connects anew, so that those who look now and then see nothing of it.
    let mut health = HealthClient::new(running.channel().await);
    for _ in 0..4 {
        assert_eq!(health.check(ask.clone()).await.unwrap().into_inner().status(), ServingStatus::Serving);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn who_does_not_take_answers_is_dropped() {
    let mut config = plain();
    config.limits.reply_wait = Some(Duration::from_millis(300));
    let running = Running::start(config).await;
    running.store.put("k", vec![7; 8 << 20]).await.unwrap();
    let mut client = running.client().await;
    let wanted = pb::DownloadRequest { key: key("k"), chunk_bytes: 1 << 10, ..Default::default() };
    let mut parts = client.download(wanted).await.unwrap().into_inner();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut cut = false;
    while !cut {
        match timeout(PATIENCE, parts.message()).await.expect("an end") {
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(_) => cut = true,
        }
    }
    assert!(cut, "all of it came");
}

#[tokio::test]
async fn a_request_that_does_not_arrive_is_given_up() {
    let mut config = plain();
    config.limits.command_wait = Some(Duration::from_millis(200));
    let running = Running::start(config).await;
    let mut client = running.client().await;
    let never = futures_util::stream::pending();
    let answer = timeout(PATIENCE, client.upload(never)).await.expect("an answer");
    refused(answer, Code::DeadlineExceeded, "SLOW");
}
