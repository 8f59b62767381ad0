//! Admission and its reporting: TLS, users, HTTP, limits of time and number.
#![allow(clippy::disallowed_methods, reason = "the tests live in real time, as the server does")]

mod access;
mod certificates;
mod client;
mod http;
mod keepalive;
mod loading;
mod log;
mod monitor;
mod prefixes;
#[path = "../running/mod.rs"]
mod running;
mod tls;
