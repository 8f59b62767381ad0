//! gRPC: `esker.v1` as `proto/esker/v1/esker.proto` describes it, with the standard services for health and reflection.
//!
//! - `connection`: one client, with HTTP/2 below and the services above; what a connection may take, and how it ends.
//! - `frames`: what HTTP/2 itself does not bound.
//! - `reading`: a request's frames as HTTP/2 hands them on.
//! - `body`: what arrives and what leaves, in memory that was taken before, and at a pace.
//! - `counted`: how many things a message lists, before it is decoded. `chunks`: those of an upload.
//! - `client`: who calls, and the memory of its calls.
//! - `call`: what a call has. `service`: which function each call is.
//! - `read`: calls that read. `write`, `change`, `txn`: those that write; the latter look first, in one step. `stream`: those that
//!   stream.
//! - `watch`: changes as they become visible.
//! - `rights`: the commands of RESP that a call stands for, whose rights it needs.
//! - `asked`: what all requests of one message have in common. `once`: requests that may be made again without being done again.
//! - `convert`: messages to what the engine takes. `error`: errors to codes with details.
//! - `loading`: what is answered while the store is being opened.
//! - `health`: the standard service.
//!
//! Isolation is the engine's: every call is one of its operations, and so it is against writers of RESP.

mod body;
mod call;
mod change;
mod chunks;
mod client;
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

/// Made from the `.proto`; the test `generated` says whether it is current, and makes it.
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

/// The `.proto` as reflection tells it.
const DESCRIPTORS: &[u8] = include_bytes!("generated/esker.v1.bin");

pub(crate) use connection::{FLOOR_BYTES, serve};
pub(crate) use loading::serve_loading;
