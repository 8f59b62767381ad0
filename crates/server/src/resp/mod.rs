//! RESP, the protocol of Redis, in its versions 2 and 3.
//!
//! Bytes of a client become a batch of commands (`frame`), which run in groups against the store (`run`, `command`), on
//! `view`s of their keys, and whose answers (`reply`) go out in the order of the commands (`connection`). A client's
//! `session` remembers what lasts from command to command, `transaction` what waits for EXEC.

mod audit;
mod command;
mod connection;
mod frame;
mod loading;
mod reply;
mod run;
mod sample;
mod session;
mod slice;
mod slow;
mod transaction;
mod transport;
mod view;
mod watch;

pub(crate) use connection::{Peer, serve};
pub(crate) use loading::serve_loading;
