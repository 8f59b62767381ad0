//! Esker's network front ends. Today that is RESP, the protocol of Redis; see [`Server`].
//!
//! # Layout
//!
//! - `listen`: sockets, the accept loop, the cap on connections.
//! - `shutdown`: how a stop reaches the connections, and how the server waits for them.
//! - `auth`: who a connection is, and what it may do.
//! - `service`: what every connection works on: the store, the settings, the counters.
//! - `resp/frame`: bytes to commands. `resp/reply`: answers to bytes.
//! - `resp/connection`: one client: read, run, answer.
//! - `resp/run`: which commands of a pipeline go to the store together.
//! - `resp/command`: what every verb means, one file per group.
//!
//! A server is no part of the engine that is replayed from a seed, so it uses the clock and threads directly.
#![allow(clippy::disallowed_methods, reason = "a server lives in real time; only the engine is replayed")]

mod auth;
mod config;
mod error;
mod limits;
mod listen;
mod resp;
mod service;
mod shutdown;

pub use config::Config;
pub use error::{Error, Result};
pub use limits::Limits;
pub use listen::{Server, Sockets};
