//! Tests of the queue, and of the spans' JSON.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tonic::Code;

use super::*;
use crate::base::address::Address;

fn peer() -> Address {
    Address::Network("127.0.0.1:9".parse().unwrap())
}

fn resp(peer: &Address, errors: u64) -> Request<'_> {
    let protocol = Protocol::Resp { commands: 3, errors, confirmed: Some(Duration::from_micros(70)) };
    Request { name: "config|get", protocol, database: 2, peer, parent: None }
}

fn grpc(peer: &Address, code: Code, parent: Option<Parent>) -> Request<'_> {
    Request { name: "Get", protocol: Protocol::Grpc { code }, database: 0, peer, parent }
}

#[test]
fn full_queue_drops_spans_and_counts_them() {
    let endpoint = "http://127.0.0.1:1".parse().unwrap();
    let traces = Traces::new(TraceConfig { endpoint, slower_than: Duration::from_millis(1) });
    assert!(!traces.is_slow(Duration::from_micros(999)) && traces.is_slow(Duration::from_millis(1)));
    for _ in 0..QUEUE_MAX + 10 {
        traces.note(resp(&peer(), 0), Duration::from_millis(5));
    }
    assert_eq!(traces.counts.queue_full.load(Ordering::Relaxed), 10);
    assert!(size_of::<Span>() <= 160, "{}", size_of::<Span>());
}

fn made(request: Request<'_>) -> Value {
    let now = Duration::from_nanos(1_700_000_000_123_456_789);
    let span = Span::new(request, now, Duration::from_nanos(23_456_789)).unwrap();
    let body = json::body(&[span], "run");
    let export: Value = serde_json::from_slice(&body).unwrap();
    let resource = &export["resourceSpans"][0];
    assert_eq!(resource["resource"]["attributes"][0]["value"]["stringValue"], "esker");
    assert_eq!(resource["resource"]["attributes"][2]["value"]["stringValue"], "run");
    resource["scopeSpans"][0]["spans"][0].clone()
}

#[test]
fn span_has_the_fields_of_otlp() {
    let span = made(resp(&peer(), 1));
    assert_eq!(span["name"], "CONFIG GET");
    assert_eq!((&span["kind"], &span["status"]["code"]), (&json!(2), &json!(2)));
    assert_eq!(span["startTimeUnixNano"], "1700000000100000000");
    assert_eq!(span["endTimeUnixNano"], "1700000000123456789");
    let length = |field: &str| span[field].as_str().unwrap().len();
    assert_eq!((length("traceId"), length("spanId"), &span["parentSpanId"]), (32, 16, &Value::Null));
    let attributes = span["attributes"].as_array().unwrap();
    let of = |key: &str| attributes.iter().find(|one| one["key"] == key).unwrap()["value"].clone();
    assert_eq!(of("network.transport"), json!({"stringValue": "tcp"}));
    assert_eq!(of("esker.client"), json!({"stringValue": "loopback"}));
    assert_eq!(of("esker.database"), json!({"intValue": "2"}));
    assert_eq!(of("esker.commands"), json!({"intValue": "3"}));
    assert_eq!(of("esker.errors"), json!({"intValue": "1"}));
    assert_eq!(of("esker.confirm_us"), json!({"intValue": "70"}));
    assert_eq!(made(resp(&peer(), 0))["status"], Value::Null);
    assert_ne!(made(resp(&peer(), 0))["traceId"], made(resp(&peer(), 0))["traceId"]);
}

#[test]
fn span_of_a_call_continues_the_caller_s_trace() {
    let parent = Parent::parse(b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    let span = made(grpc(&peer(), Code::Unavailable, parent));
    assert_eq!(span["traceId"], "0af7651916cd43dd8448eb211c80319c");
    assert_eq!((&span["parentSpanId"], &span["flags"]), (&json!("b7ad6b7169203331"), &json!(1)));
    assert_eq!((&span["name"], &span["status"]["code"]), (&json!("esker.v1.Esker/Get"), &json!(2)));
    // A refusal that the client caused is no failure of the server.
    assert_eq!(made(grpc(&peer(), Code::InvalidArgument, None))["status"], Value::Null);
}
