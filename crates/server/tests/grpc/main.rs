//! gRPC as its clients see it.
#![allow(clippy::disallowed_methods, reason = "the tests live in real time, as the server does")]

mod access;
mod calls;
mod changes;
mod client;
mod generated;
mod limits;
mod retries;
#[path = "../running/mod.rs"]
mod running;
mod services;
mod streams;
mod txns;
mod watches;
