//! Spans of slow requests, as a collector receives them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_server::{Config, TraceConfig};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::Request;

use crate::client::{PATIENCE, Running, here, key, pb, plain, put};
use crate::collector::{Answer, Collector, TAKEN, spans};

/// A server all of whose requests become spans.
async fn traced(endpoint: &str) -> Running {
    let traces = TraceConfig { endpoint: endpoint.parse().unwrap(), slower_than: Duration::ZERO };
    Running::start(Config { http: vec![here()], traces: Some(traces), ..plain() }).await
}

/// Sends commands, and reads until the last answer, `end`.
async fn ask(running: &Running, commands: &str, end: &str) {
    let mut stream = TcpStream::connect(running.resp[0]).await.unwrap();
    stream.write_all(commands.as_bytes()).await.unwrap();
    let mut text = Vec::new();
    while !text.ends_with(end.as_bytes()) {
        let read = timeout(PATIENCE, stream.read_buf(&mut text)).await.expect("an answer").unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&text));
    }
}

/// Returns the value of a metric with its labels.
async fn metric(running: &Running, name: &str) -> u64 {
    let mut stream = TcpStream::connect(running.http[0]).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("the metric exists");
    line.trim().parse().unwrap()
}

/// Waits until a metric has reached a value.
async fn reaches(running: &Running, name: &str, least: u64) {
    let reached = async {
        while metric(running, name).await < least {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, reached).await.unwrap_or_else(|_| panic!("{name} does not reach {least}"));
}

fn named<'a>(spans: &'a [Value], name: &str) -> &'a Value {
    spans.iter().find(|span| span["name"] == name).unwrap_or_else(|| panic!("{name} is not in {spans:?}"))
}

#[tokio::test]
async fn slow_requests_become_spans_without_keys_and_values() {
    let mut collector = Collector::start(&[TAKEN]).await;
    let running = traced(&collector.endpoint).await;
    ask(&running, "SET the-key a-value\r\nINCR the-key\r\nPING\r\n", "+PONG\r\n").await;
    let mut client = running.client().await;
    let mut call = Request::new(put("the-key", "a-value"));
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    call.metadata_mut().insert("traceparent", parent.parse().unwrap());
    client.put(call).await.unwrap();
    let increment = pb::IncrementRequest { key: key("the-key"), ..Default::default() };
    let failed = client.increment(increment).await.unwrap_err();
    let (mut all, mut text) = (Vec::new(), String::new());
    while all.len() < 5 {
        let body = collector.next().await;
        all.extend(spans(&body));
        text += &body;
    }
    assert!(!text.contains("the-key") && !text.contains("a-value"), "{text}");
    let (set, incr, called) = (named(&all, "SET"), named(&all, "INCR"), named(&all, "esker.v1.Esker/Put"));
    assert_eq!((&set["status"], &incr["status"]["code"]), (&Value::Null, &json!(2)));
    assert_eq!(called["traceId"], "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(called["parentSpanId"], "b7ad6b7169203331");
    let nanos = |field: &str| set[field].as_str().unwrap().parse::<u64>().unwrap();
    assert!(nanos("startTimeUnixNano") < nanos("endTimeUnixNano"));
    let attributes = named(&all, "esker.v1.Esker/Increment")["attributes"].as_array().unwrap().clone();
    let code = (failed.code() as i32).to_string();
    let code = json!({"key": "rpc.grpc.status_code", "value": {"intValue": code}});
    assert!(attributes.contains(&code), "{attributes:?}");
    reaches(&running, "esker_trace_spans_sent_total", 5).await;
    for reason in ["queue", "collector", "refused"] {
        let name = format!("esker_trace_spans_dropped_total{{reason=\"{reason}\"}}");
        assert_eq!(metric(&running, &name).await, 0, "{reason}");
    }
}

#[tokio::test]
async fn silent_collector_delays_no_client_and_drops_are_counted() {
    let collector = Collector::start(&[Answer::Never]).await;
    let running = traced(&collector.endpoint).await;
    // More than the queue and a batch hold.
    let pings = "PING\r\n".repeat(3000);
    ask(&running, &(pings + "ECHO end\r\n"), "$3\r\nend\r\n").await;
    reaches(&running, "esker_trace_spans_dropped_total{reason=\"queue\"}", 1).await;
    assert_eq!(metric(&running, "esker_trace_spans_sent_total").await, 0);
    running.client().await.put(put("a", "1")).await.unwrap();
}

#[tokio::test]
async fn batch_is_posted_again_when_the_collector_was_busy() {
    const BUSY: Answer = Answer::Text("503 Service Unavailable\r\nContent-Length: 0\r\n\r\n");
    let mut collector = Collector::start(&[BUSY, TAKEN]).await;
    let running = traced(&collector.endpoint).await;
    ask(&running, "PING\r\n", "+PONG\r\n").await;
    let first = collector.next().await;
    assert_eq!(first, collector.next().await);
    reaches(&running, "esker_trace_spans_sent_total", 1).await;
}

#[tokio::test]
async fn answers_of_a_strange_collector_are_bounded_and_counted() {
    const REFUSED: Answer = Answer::Text(
        "200 OK\r\nContent-Length: 43\r\n\r\n{\"partialSuccess\":{\"rejectedSpans\":\"9999\"}} ",
    );
    const MISSING: Answer = Answer::Text("404 Not Found\r\nContent-Length: 0\r\n\r\n");
    for (answers, metric) in [
        (&[Answer::Endless][..], "esker_trace_spans_sent_total"),
        (
            &[Answer::Text("\u{0}\u{1}garbage\r\n\r\n")],
            "esker_trace_spans_dropped_total{reason=\"collector\"}",
        ),
        (&[MISSING], "esker_trace_spans_dropped_total{reason=\"collector\"}"),
        (&[REFUSED], "esker_trace_spans_dropped_total{reason=\"refused\"}"),
    ] {
        let collector = Collector::start(answers).await;
        let running = traced(&collector.endpoint).await;
        ask(&running, "PING\r\n", "+PONG\r\n").await;
        reaches(&running, metric, 1).await;
        assert_eq!(collector.received.load(Ordering::Relaxed), 1, "{metric}: it is posted once");
    }
}
