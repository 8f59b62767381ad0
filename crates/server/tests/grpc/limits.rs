//! Messages and clients that exceed limits.

use std::time::Duration;

use bytes::BufMut;
use esker_server::{Config, Limits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::client::{Client, PATIENCE, Running, from, get, key, locked, pb, plain, put, refused};
use crate::http2::{Speaker, settings, whole_call};

#[tokio::test]
async fn messages_have_a_longest() {
    let limits = Limits { bulk_bytes_max: 1 << 20, ..Limits::default() };
    let running = Running::start(Config { limits, ..plain() }).await;
    let mut client = running.client().await;
    client.put(put("fits", vec![7; 1 << 20])).await.unwrap();
    refused(client.put(put("k", vec![7; 2 << 20])).await, Code::ResourceExhausted, "TOO_LARGE");
    // The limit applies to responses too.
    running.store.put("large", vec![7; 2 << 20]).await.unwrap();
    refused(client.get(get("large")).await, Code::ResourceExhausted, "TOO_LARGE");
    let keys = vec![key("fits"), key("fits")];
    refused(client.multi_get(pb::MultiGetRequest { keys }).await, Code::ResourceExhausted, "TOO_LARGE");
    assert_eq!(running.store.get("k").await.unwrap(), None);
}

/// Sends messages unmodified and ignores the content of responses.
pub(crate) struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = ();
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, message: Vec<u8>, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put_slice(&message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, _: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        Ok(Some(()))
    }
}

#[tokio::test]
async fn request_with_too_many_elements_is_refused_before_decoding() {
    let running = Running::start(plain()).await;
    let mut client = tonic::client::Grpc::new(running.channel().await);
    for (method, two_lists, most, what) in [
        ("Batch", &b"\x0a\0\x0a\0"[..], 10_000, "10002 operations"),
        ("MultiGet", b"\x0a\0\x0a\0", 1000, "1002 keys are asked for"),
        ("Txn", b"\x0a\0\x12\0", 1000, "1002 comparisons and operations"),
        ("Watch", b"\x0a\0\x12\0", 64, "66 prefixes and keys"),
    ] {
        // The count is checked first; otherwise the decoder rejects the bytes after the elements.
        for (count, expected) in [(most, "decode"), (most + 2, what)] {
            let message = [&two_lists.repeat(count / 2)[..], b"\x0f"].concat();
            let path = PathAndQuery::try_from(format!("/esker.v1.Esker/{method}")).unwrap();
            client.ready().await.unwrap();
            let answer = client.unary(tonic::Request::new(message), path, Raw).await;
            let status = answer.expect_err("it is refused");
            assert!(status.message().contains(expected), "{method}: {status:?}");
        }
    }
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

/// The start of an HTTP/2 client: preface and empty settings.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

#[tokio::test]
async fn client_without_login_is_dropped() {
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

/// Health checks need no login, so a client that only checks health is not logged in.
#[tokio::test]
async fn client_checking_only_health_is_dropped_after_login_wait() {
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
    // A channel reconnects, so clients that check from time to time do not notice.
    let mut health = HealthClient::new(running.channel().await);
    for _ in 0..4 {
        assert_eq!(health.check(ask.clone()).await.unwrap().into_inner().status(), ServingStatus::Serving);
        sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn client_not_reading_answers_is_dropped() {
    let mut config = plain();
    config.limits.reply_wait = Some(Duration::from_millis(300));
    let running = Running::start(config).await;
    running.store.put("k", vec![7; 8 << 20]).await.unwrap();
    let mut client = running.client().await;
    let wanted = pb::DownloadRequest { key: key("k"), chunk_bytes: 1 << 10, ..Default::default() };
    let mut parts = client.download(wanted).await.unwrap().into_inner();
    sleep(Duration::from_secs(2)).await;
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

/// The periodic check hardly ever observes short calls while they run.
#[tokio::test]
async fn connection_with_occasional_calls_is_not_idle() {
    let mut config = plain();
    config.limits.idle_wait = Some(Duration::from_secs(1));
    let running = Running::start(config).await;
    let mut speaker = Speaker::open(running.grpc[0], &settings(1 << 20)).unwrap();
    let is_sent_away = async |speaker: &mut Speaker, wait| {
        let until = Instant::now() + wait;
        while !speaker.sent_away && Instant::now() < until {
            speaker.send().unwrap();
            speaker.listen().unwrap();
            sleep(Duration::from_millis(10)).await;
        }
        speaker.sent_away
    };
    for n in 0..8 {
        let call = whole_call(speaker.stream(), "Get", b"\x0a\x01k");
        speaker.say(&call);
        assert!(!is_sent_away(&mut speaker, Duration::from_millis(300)).await, "after {n} calls");
    }
    assert!(is_sent_away(&mut speaker, PATIENCE).await);
}

/// A client without a login may run a few short calls at a time.
#[tokio::test]
async fn memory_is_for_those_who_log_in() {
    let running = Running::start(locked("secret")).await;
    let channel = running.channel().await;
    let mut health = HealthClient::new(channel.clone());
    let long = HealthCheckRequest { service: "x".repeat(100 << 10) };
    refused(health.check(long).await, Code::ResourceExhausted, "TOO_LARGE");
    // A stream of many short messages is refused too.
    let mut raw = tonic::client::Grpc::new(channel.clone());
    raw.ready().await.unwrap();
    let many = tonic::Request::new(futures_util::stream::iter(vec![b"\x0a\0".to_vec(); 1000]));
    let check = PathAndQuery::from_static("/grpc.health.v1.Health/Check");
    refused(raw.client_streaming(many, check, Raw).await, Code::ResourceExhausted, "TOO_LARGE");
    let mut watches = Vec::new();
    for _ in 0..8 {
        watches.push(health.watch(HealthCheckRequest::default()).await.unwrap());
    }
    refused(health.watch(HealthCheckRequest::default()).await, Code::Unauthenticated, "LOGIN");
    Client::new(channel).get(from(get("k"), "default", "secret")).await.unwrap();
    health.watch(HealthCheckRequest::default()).await.unwrap();
}

/// Data sent to refused calls and never read is not counted forever, even beside a lasting call.
#[tokio::test]
async fn a_connection_bears_any_number_of_refused_calls() {
    let running = Running::start(locked("secret")).await;
    let mut client = running.client().await;
    let watch = from(pb::WatchRequest { keys: vec![key("k")], ..Default::default() }, "default", "secret");
    let mut watch = client.watch(watch).await.unwrap().into_inner();
    watch.message().await.unwrap().expect("it begins");
    let mut uploader = client.clone();
    let upload = from(futures_util::stream::pending(), "default", "secret");
    let upload = tokio::spawn(async move { uploader.upload(upload).await });
    for _ in 0..700 {
        refused(client.get(get("k")).await, Code::Unauthenticated, "LOGIN");
    }
    assert!(!upload.is_finished());
    client.put(from(put("k", "x"), "default", "secret")).await.unwrap();
    let told = timeout(PATIENCE, watch.message()).await.expect("something comes").unwrap();
    assert!(matches!(told.unwrap().message, Some(pb::watch_response::Message::Changes(_))));
    upload.abort();
}
