//! gRPC: the service `esker.v1` of `proto/esker/v1/esker.proto`, and the standard services for health and reflection.
//!
//! - `connection`: one connection, with HTTP/2 below and the services above; its limits and its end.
//! - `frames`: limits that HTTP/2 itself lacks.
//! - `reading`: the frames of a request body.
//! - `body`: bodies of requests and responses, with memory taken beforehand and a minimum speed.
//! - `message_counts`: number of list elements of a message, before it is decoded. `chunks`: the chunks of an upload.
//! - `client`: the client of a connection, and the memory of its calls.
//! - `call`: state of a call. `service`: dispatch of calls to functions.
//! - `read`: unary reads. `write`, `change`, `txn`: writes, the last two of which read first, atomically. `stream`: streaming
//!   calls.
//! - `watch`: streams of changes as they become visible.
//! - `rights`: the RESP commands whose rights a call requires.
//! - `request_info`: common properties of unary requests. `once`: requests that are executed once however often they are sent.
//! - `convert`: conversions between messages and engine types. `error`: errors as status codes with details.
//! - `loading`: responses while the store is opened.
//! - `health`: the standard health service.
//!
//! Isolation is that of the engine: every call is one engine operation, also relative to RESP writers.

mod body;
mod call;
mod change;
mod chunks;
mod client;
mod cluster;
mod connection;
mod convert;
mod error;
mod frames;
pub(crate) mod fuzzed;
mod health;
mod loading;
mod message_counts;
mod once;
mod read;
mod reading;
mod request_info;
mod rights;
mod service;
mod stream;
mod txn;
mod watch;
mod write;

/// Generated from the `.proto`; the test `generated` checks and regenerates it.
#[allow(
    missing_docs,
    dead_code,
    unreachable_pub,
    clippy::all,
    clippy::disallowed_methods,
    rustdoc::all,
    reason = "generated"
)]
#[rustfmt::skip]
mod pb {
    include!("generated/esker.v1.rs");
}

/// Descriptor set of the `.proto`, for reflection.
const DESCRIPTORS: &[u8] = include_bytes!("generated/esker.v1.bin");

pub(crate) use connection::{FLOOR_BYTES, serve};
pub(crate) use loading::serve_loading;
