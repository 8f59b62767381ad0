//! A batch of spans as an `ExportTraceServiceRequest` in OTLP's JSON encoding: ids in hexadecimal, 64-bit integers as text,
//! enumerations as numbers.

use serde::{Serialize, Serializer};

use super::span::{Protocol, Span};

/// `SPAN_KIND_SERVER`.
const SERVER: u8 = 2;
/// `STATUS_CODE_ERROR`.
const ERROR: u8 = 2;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Export<'a> {
    resource_spans: [ResourceSpans<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans<'a> {
    resource: Resource<'a>,
    scope_spans: [ScopeSpans<'a>; 1],
}

#[derive(Serialize)]
struct Resource<'a> {
    attributes: [Attribute<'a>; 3],
}

#[derive(Serialize)]
struct ScopeSpans<'a> {
    scope: Scope,
    spans: Spans<'a>,
}

#[derive(Serialize)]
struct Scope {
    name: &'static str,
    version: &'static str,
}

struct Spans<'a>(&'a [Span]);

impl Serialize for Spans<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(one))
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct One {
    trace_id: String,
    span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flags: Option<u8>,
    name: String,
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Vec<Attribute<'static>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
}

#[derive(Serialize)]
struct Status {
    code: u8,
}

#[derive(Serialize)]
struct Attribute<'a> {
    key: &'static str,
    value: Value<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Value<'a> {
    StringValue(&'a str),
    IntValue(String),
}

fn text<'a>(key: &'static str, value: &'a str) -> Attribute<'a> {
    Attribute { key, value: Value::StringValue(value) }
}

fn number(key: &'static str, value: impl ToString) -> Attribute<'static> {
    Attribute { key, value: Value::IntValue(value.to_string()) }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the name of a command as clients write it.
fn shown(name: &str) -> String {
    name.to_ascii_uppercase().replace('|', " ")
}

fn one(span: &Span) -> One {
    let transport = if span.client == "unix" { "unix" } else { "tcp" };
    let mut attributes = vec![
        text("network.transport", transport),
        text("esker.client", span.client),
        number("esker.database", span.database),
    ];
    let name = match span.protocol {
        Protocol::Resp { commands, errors, confirmed } => {
            attributes.push(number("esker.commands", commands));
            attributes.push(number("esker.errors", errors));
            let confirmed = confirmed.map(|time| number("esker.confirm_us", time.as_micros()));
            attributes.extend(confirmed);
            shown(span.name)
        }
        Protocol::Grpc { code } => {
            attributes.push(text("rpc.system", "grpc"));
            attributes.push(text("rpc.service", "esker.v1.Esker"));
            attributes.push(text("rpc.method", span.name));
            attributes.push(number("rpc.grpc.status_code", code as i32));
            format!("esker.v1.Esker/{}", span.name)
        }
    };
    One {
        trace_id: hex(&span.trace),
        span_id: hex(&span.id),
        parent_span_id: span.parent.map(|parent| hex(&parent.span)),
        flags: span.parent.map(|parent| parent.flags),
        name,
        kind: SERVER,
        start_time_unix_nano: span.began_ns.to_string(),
        end_time_unix_nano: span.ended_ns.to_string(),
        attributes,
        status: span.has_failed().then_some(Status { code: ERROR }),
    }
}

/// Returns the body of a post with these spans of the server whose run is `run_id`.
pub(super) fn body(spans: &[Span], run_id: &str) -> Vec<u8> {
    let version = env!("CARGO_PKG_VERSION");
    let attributes = [
        text("service.name", "esker"),
        text("service.version", version),
        text("service.instance.id", run_id),
    ];
    let scope_spans = [ScopeSpans { scope: Scope { name: "esker", version }, spans: Spans(spans) }];
    let export =
        Export { resource_spans: [ResourceSpans { resource: Resource { attributes }, scope_spans }] };
    serde_json::to_vec(&export).expect("text and numbers have a JSON encoding")
}
