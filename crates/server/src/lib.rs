//! Esker's network front ends. RESP, which is the protocol of Redis, gRPC, and HTTP for those who watch; see [`Server`].
//!
//! # Layout
//!
//! From bottom to top; each uses only what is above it in this list:
//!
//! - `base`: settings, errors, addresses, counters, the stop, time.
//! - `auth`: who a connection is, and what it may do. `budget`: memory that clients hold. `tls`: certificates.
//! - `service`: what every connection works on: the store, the settings, the counters, the clients there are; in `status`, what
//!   the server does right now, as one document.
//! - `resp`, `grpc`, `http`: the protocols, which do not know each other.
//! - `listen`: sockets, who is let in, what is answered while the store is being opened, the stop. `fuzzing`: what is fuzzed.
//!
//! A server is no part of the engine that is replayed from a seed, so it uses the clock and threads directly.
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

/// The target of log lines that say who changed the server, for filters.
const AUDIT: &str = "esker_server::audit";

pub use auth::{LOGIN_BYTES, Right, UserEntry, UserFile};
pub use base::config::{
    Access, ClientCertificates, Config, LogFilter, PASSWORD_BYTES_MAX, Password, TlsFiles, UnixSocket,
};
pub use base::error::{Error, Result};
pub use base::keyspace_events::KeyspaceEvents;
pub use base::limits::Limits;
pub use base::policy::{WHEN_FULL_WORDS, when_full_of};
pub use base::settings::setting_of;
pub use base::text::{read_bounded, read_text};
pub use listen::{Addresses, Control, Server, Sockets};
pub use resp::family as family_of_command;
pub use service::status;
