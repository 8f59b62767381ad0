//! RESP, the protocol of Redis, in its versions 2 and 3.
//!
//! From bottom to top; each uses only what is above it in this list:
//!
//! - `wire`: bytes of a client become commands, and answers become bytes.
//! - `verbs`: the facts of every verb.
//! - `session`: what lasts from command to command, and the `view` of keys that a command works on.
//! - `command`: what every verb does.
//! - `script`: scripts, which call commands; its interpreter, in `lua`, knows of none.
//! - `run`: which commands go to the store together, and transactions.
//! - `connection`: one client: read, run, answer; `watch` looks at its time. `loading` answers while there is no store yet, and
//!   hands its clients over.

mod command;
mod connection;
mod loading;
mod run;
mod script;
mod session;
mod verbs;
mod version;
mod watch;
mod wire;

pub(crate) use command::hyperloglog::fuzzed as fuzzed_hyperloglog;
pub(crate) use connection::{Dialogue, Peer, resume, serve};
pub(crate) use loading::{Opening, serve_loading};
pub(crate) use verbs::command_table;
pub use verbs::family;
pub(crate) use wire::fuzzed;
