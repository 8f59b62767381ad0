//! gRPC, tested through clients.
#![allow(clippy::disallowed_methods, reason = "the tests live in real time, as the server does")]

mod access;
mod calls;
mod changes;
mod client;
mod cluster;
mod collector;
mod cut;
mod generated;
#[path = "../hostile/http2.rs"]
#[allow(dead_code, reason = "attackers need more of it")]
mod http2;
mod limits;
mod retries;
mod rights;
#[path = "../running/mod.rs"]
mod running;
mod services;
mod streams;
mod traces;
mod txns;
mod watches;
