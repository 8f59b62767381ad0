//! RESP, the protocol of Redis, in its versions 2 and 3.
//!
//! The modules from bottom to top; each uses only the modules listed above it:
//!
//! - `wire`: parses bytes into commands and encodes answers as bytes.
//! - `verbs`: the static description of every verb.
//! - `session`: the state of a connection between commands, and the `view` of keys that a command works on.
//! - `command`: the implementation of every verb.
//! - `script`: scripts, which call commands; its interpreter, in `lua`, knows no commands.
//! - `run`: groups commands that go to the store together, and runs transactions.
//! - `connection`: the loop of one client: read, run, answer; `watch` enforces its time limits. `loading` answers
//!   clients while the store is being opened, and then hands them over.

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
