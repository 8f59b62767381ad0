//! Health, reflection, and counters.

use futures_util::stream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::client::{PATIENCE, Running, get, here, locked, pb, plain, put};

#[tokio::test]
async fn health_is_told_to_everybody_and_changes_with_the_server() {
    let mut running = Running::start(locked("secret")).await;
    let mut health = HealthClient::new(running.channel().await);
    let of = |service: &str| HealthCheckRequest { service: service.to_owned() };
    for service in ["", "esker.v1.Esker", "esker.v1.Esker/write"] {
        let status = health.check(of(service)).await.unwrap().into_inner().status();
        assert_eq!(status, ServingStatus::Serving);
    }
    assert_eq!(health.check(of("x")).await.unwrap_err().code(), Code::NotFound);
    let mut watch = health.watch(of("")).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    running.ask_to_stop();
    let next = timeout(PATIENCE, watch.message()).await.unwrap().unwrap().unwrap();
    assert_eq!(next.status(), ServingStatus::NotServing);
    running.stopped().await;
}

#[tokio::test]
async fn the_server_tells_what_it_serves() {
    let running = Running::start(plain()).await;
    let mut reflection = ServerReflectionClient::new(running.channel().await);
    let ask = |message| ServerReflectionRequest { host: String::new(), message_request: Some(message) };
    let asked = [
        ask(MessageRequest::ListServices(String::new())),
        ask(MessageRequest::FileContainingSymbol("esker.v1.Esker.Scan".to_owned())),
    ];
    let mut answers = reflection.server_reflection_info(stream::iter(asked)).await.unwrap().into_inner();
    let first = answers.message().await.unwrap().unwrap().message_response.unwrap();
    let MessageResponse::ListServicesResponse(services) = first else { panic!("{first:?}") };
    let names: Vec<_> = services.service.into_iter().map(|service| service.name).collect();
    assert!(
        names.contains(&"esker.v1.Esker".to_owned()) && names.contains(&"grpc.health.v1.Health".to_owned())
    );
    let second = answers.message().await.unwrap().unwrap().message_response.unwrap();
    assert!(matches!(second, MessageResponse::FileDescriptorResponse(_)), "{second:?}");
}

#[tokio::test]
async fn calls_are_counted() {
    let running = Running::start(pb_config()).await;
    let mut client = running.client().await;
    client.put(put("a", "x")).await.unwrap();
    client.get(get("a")).await.unwrap();
    client.get(get("b")).await.unwrap();
    client.get(get("")).await.unwrap_err();
    let stats = client.stats(pb::StatsRequest {}).await.unwrap().into_inner();
    assert!(stats.ready && stats.keys == 1 && stats.uptime_ms < 60_000 && !stats.tiers.is_empty());
    assert!(!stats.server_version.is_empty() && stats.activity.len() > 3);
    let mut stream = tokio::net::TcpStream::connect(running.http[0]).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    for line in [
        "esker_grpc_calls_total{method=\"Get\"} 3",
        "esker_grpc_calls_total{method=\"Put\"} 1",
        "esker_grpc_failures_total{code=\"INVALID_ARGUMENT\"} 1",
        "esker_key_hits_total 1",
        "esker_key_misses_total 1",
        "esker_connections 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing");
    }
}

fn pb_config() -> esker_server::Config {
    esker_server::Config { http: vec![here()], ..plain() }
}

#[tokio::test]
async fn calls_that_take_long_are_in_the_slow_log() {
    let running = Running::start(plain()).await;
    let mut client = running.client().await;
    let mut resp = tokio::net::TcpStream::connect(running.resp[0]).await.unwrap();
    let mut ask = async |command: &str, end: &str| {
        resp.write_all(command.as_bytes()).await.unwrap();
        let mut text = String::new();
        while !text.ends_with(end) {
            let mut part = [0; 4096];
            let bytes = timeout(PATIENCE, resp.read(&mut part)).await.expect("an answer").unwrap();
            assert!(bytes > 0, "{text}");
            text.push_str(std::str::from_utf8(&part[..bytes]).unwrap());
        }
        text
    };
    ask("CONFIG SET slowlog-log-slower-than 0\r\n", "+OK\r\n").await;
    let long = "k".repeat(200);
    client.put(put(&long, "secret")).await.unwrap();
    let keys = ["a", "b", "c"].map(crate::client::key).to_vec();
    client.multi_get(pb::MultiGetRequest { keys }).await.unwrap();
    ask("CONFIG SET slowlog-log-slower-than -1\r\n", "+OK\r\n").await;
    let told = ask("SLOWLOG GET\r\nPING\r\n", "+PONG\r\n").await;
    let kept = format!("{}... (72 more bytes)\r\n", "k".repeat(128));
    for expected in ["esker.v1.Esker/Put\r\n", "esker.v1.Esker/MultiGet\r\n", "... (2 more keys)\r\n", &kept]
    {
        assert!(told.contains(expected), "{expected} is not in {told}");
    }
    assert!(!told.contains("secret"), "values are not kept");
}
