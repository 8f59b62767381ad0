//! `/metrics`, `/healthz`, `/readyz`.

use std::time::Duration;

use esker_server::{Access, Config, Password};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::client::{Client, Running, here};

fn config() -> Config {
    Config { http: vec![here()], ..Config::resp(here()) }
}

#[tokio::test]
async fn metrics_are_well_formed_and_count() {
    let server = Running::start(config()).await;
    let mut client = server.client().await;
    client.ask("SET a 1", "+OK\r\n").await;
    client.ask("GET a", "$1\r\n1\r\n").await;
    let (status, text) = server.get("/metrics", "").await;
    assert_eq!(status, 200);
    for line in [
        "esker_ready 1",
        "esker_commands_total 2",
        "esker_connections 1",
        "esker_key_hits_total 1",
        "esker_store_keys 1",
        "esker_store_puts_total 1",
        "esker_batch_seconds_count 2",
        "# TYPE esker_batch_seconds histogram",
        "# TYPE esker_store_stall_seconds_total counter",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
    // Every sample has a head of its name before it, and every head samples.
    let mut family = "";
    let mut samples = 1;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            assert!(samples > 0, "{family} has no samples");
            (family, samples) = (rest.split(' ').next().unwrap(), 0);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            assert_eq!(rest.split(' ').next(), Some(family));
        } else {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with(family) && value.parse::<f64>().is_ok(), "{line}");
            samples += 1;
        }
    }
}

#[tokio::test]
async fn ready_until_the_stop_and_healthy_all_the_time() {
    let mut config = config();
    config.limits.drain_delay = Duration::from_secs(1);
    let mut server = Running::start(config).await;
    assert_eq!(server.get("/healthz", "").await, (200, "ok\n".to_owned()));
    assert_eq!(server.get("/readyz", "").await, (200, "ready\n".to_owned()));
    server.ask_to_stop();
    let mut answer = (200, String::new());
    for _ in 0..50 {
        answer = server.get("/readyz", "").await;
        if answer.0 != 200 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(answer, (503, "not ready: the server is stopping\n".to_owned()));
    assert_eq!(server.get("/healthz", "").await.0, 200);
    // The delay is for clients that come still.
    server.client().await.ask("PING", "+PONG\r\n").await;
    server.stopped().await;
}

#[tokio::test]
async fn a_store_that_takes_no_writes_is_not_ready() {
    let server = Running::start(config()).await;
    server.store.close().await.unwrap();
    let (status, text) = server.get("/readyz", "").await;
    assert!(status == 503 && text.contains("closed"), "{status} {text}");
    assert_eq!(server.get("/healthz", "").await.0, 200);
}

#[tokio::test]
async fn metrics_need_a_login_where_resp_does() {
    let access = Access { password: Some(Password::new("open sesame")), ..Access::default() };
    let server = Running::start(Config { access, ..config() }).await;
    assert_eq!(server.get("/healthz", "").await.0, 200);
    assert_eq!(server.get("/readyz", "").await.0, 200);
    assert_eq!(server.get("/metrics", "").await.0, 401);
    // default:wrong, default:open sesame
    assert_eq!(server.get("/metrics", "Authorization: Basic ZGVmYXVsdDp3cm9uZw==\r\n").await.0, 401);
    assert_eq!(server.get("/metrics", "Authorization: Basic !!!\r\n").await.0, 401);
    let (status, text) =
        server.get("/metrics", "Authorization: Basic ZGVmYXVsdDpvcGVuIHNlc2FtZQ==\r\n").await;
    assert_eq!(status, 200);
    assert!(!text.contains("sesame"));
}

#[tokio::test]
async fn what_is_wrong_is_refused() {
    let server = Running::start(config()).await;
    assert_eq!(server.get("/", "").await.0, 404);
    assert_eq!(server.get("/healthz", &format!("X: {}\r\n", "x".repeat(20 << 10))).await.0, 431);
    let mut client = Client(TcpStream::connect(server.http[0]).await.unwrap());
    client.send("POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nConnection: close\r\n\r\n").await;
    assert!(client.rest().await.starts_with("HTTP/1.1 405 "));
    let mut garbage = TcpStream::connect(server.http[0]).await.unwrap();
    garbage.write_all(&[0xff; 100]).await.unwrap();
    assert!(Client(garbage).rest().await.starts_with("HTTP/1.1 400 "));
    assert_eq!(server.get("/healthz", "").await.0, 200);
}
