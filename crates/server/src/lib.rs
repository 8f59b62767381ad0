//! Esker's network front ends. RESP, which is the protocol of Redis, gRPC, and HTTP for those who watch; see [`Server`].
//!
//! # Layout
//!
//! - `config`, `limits`: how it is set up.
//! - `listen`: sockets, the accept loop, the stop. `accept`: one listener. `admit`: who is let in. `tls`: certificates.
//! - `loading`: what is answered while the store is being opened.
//! - `shutdown`: how a stop reaches the connections, and how the server waits for them.
//! - `auth`: who a connection is, and what it may do.
//! - `budget`: memory that clients hold, in all and each. `pace`: how long a transfer may take.
//! - `service`: what every connection works on: the store, the settings, the counters, the clients there are.
//! - `service/status`: what the server does right now, as one document.
//! - `http`, `metrics`: for those who watch. `process`: what the operating system says. `counting`, `rate`: how it is counted. `notices`: log lines that strangers cause.
//! - `resp/frame`: bytes to commands. `resp/reply`: answers to bytes.
//! - `resp/connection`: one client: read, run, answer. `resp/transport`: its socket and buffers. `resp/watch`: its time.
//! - `resp/run`: which commands of a pipeline go to the store together.
//! - `resp/command`: what every verb means, one file per group. `resp/audit`: what admins did, for the log.
//! - `grpc/connection`: one client of gRPC. `grpc/service`: what its calls mean.
//!
//! A server is no part of the engine that is replayed from a seed, so it uses the clock and threads directly.
#![allow(clippy::disallowed_methods, reason = "a server lives in real time; only the engine is replayed")]

mod accept;
mod address;
mod admit;
mod auth;
mod budget;
mod config;
mod counting;
mod error;
mod grpc;
mod http;
mod limits;
mod listen;
mod loading;
mod metrics;
mod notices;
mod pace;
mod process;
mod rate;
mod resp;
mod service;
mod shutdown;
mod tls;

/// The target of log lines that say who changed the server, for filters.
const AUDIT: &str = "esker_server::audit";

pub use auth::{LOGIN_BYTES, Right, UserEntry, UserFile};
pub use config::{Access, ClientCertificates, Config, Password, TlsFiles};
pub use error::{Error, Result};
pub use limits::Limits;
pub use listen::{Addresses, Control, Server, Sockets};
pub use service::status;
