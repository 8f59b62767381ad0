//! Esker's network front ends: RESP (the protocol of Redis), gRPC, and HTTP for monitoring; see [`Server`].
//!
//! # Layout
//!
//! From bottom to top; each module uses only the ones above it in this list:
//!
//! - `base`: settings, errors, addresses, counters, the stop, time.
//! - `auth`: users, logins and rights. `budget`: memory held by clients. `tls`: certificates.
//! - `service`: state that all connections share: the store, settings, counters and the list of clients; in `status`, a document
//!   of the server's current state.
//! - `resp`, `grpc`, `http`: the protocols, which are independent of each other.
//! - `listen`: sockets, admission, replies while the store is opened, the stop. `fuzzing`: entry points for fuzzing.
//!
//! The server is not part of the engine that the simulator replays from a seed, so it uses the clock and threads directly.
#![allow(clippy::disallowed_methods, reason = "a server lives in real time; only the engine is replayed")]

mod auth;
mod base;
mod budget;
#[doc(hidden)]
pub mod fuzzing;
mod grpc;
mod http;
mod listen;
mod resp;
mod service;
mod tls;

/// Target of audit log lines, which name the user of each administrative change.
const AUDIT: &str = "esker_server::audit";

pub use auth::{LOGIN_BYTES, Right, UserEntry, UserFile};
pub use base::config::{
    Access, ClientCertificates, Config, LogFilter, PASSWORD_BYTES_MAX, Password, TlsFiles, UnixSocket,
};
pub use base::error::{Error, Result};
pub use base::keyspace_events::KeyspaceEvents;
pub use base::limits::Limits;
pub use base::otlp::{OtlpEndpoint, TraceConfig};
pub use base::policy::{WHEN_FULL_WORDS, when_full_of};
pub use base::settings::setting_of;
pub use base::text::{read_bounded, read_text};
pub use listen::{Addresses, Control, Server, Sockets};
pub use resp::family as family_of_command;
/// Checks whether the server would run commands and scripts, without a store.
pub use resp::served;
pub use service::status;
