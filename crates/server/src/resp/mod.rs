//! RESP, the protocol of Redis, in its versions 2 and 3.
//!
//! Bytes of a client become a batch of commands (`frame`), which run in groups against the store (`run`, `command`)
//! and whose answers (`reply`) go out in the order of the commands (`connection`).

mod command;
mod connection;
mod frame;
mod reply;
mod run;
mod session;

pub(crate) use connection::serve;
