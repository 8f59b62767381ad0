//! The server over real sockets, compared byte for byte.
#![allow(clippy::disallowed_methods, reason = "the tests live in real time, as the server does")]

mod admins;
mod bounds;
mod channels;
mod client;
mod clock;
mod cluster;
mod databases;
mod errors;
mod frames;
mod handshake;
mod info;
mod memory;
mod notifications;
mod odd;
mod pipeline;
mod redis;
#[path = "../running/mod.rs"]
mod running;
mod scans;
mod script_limits;
mod script_rows;
mod scripts;
mod server;
mod session;
mod strings;
mod tracking;
mod transactions;
mod transcript;
mod unix_socket;
mod users;
