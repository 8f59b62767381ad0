//! RESP, the protocol of Redis, in its versions 2 and 3.
//!
//! The modules from bottom to top; each uses only the modules listed above it:
//!
//! - `wire`: parses bytes into commands and encodes answers as bytes.
//! - `session`: the state of a connection between commands, and the `view` of keys that a command works on.
//! - `verb`: the descriptor of a command; the table of all descriptors.
//! - `commands`: the commands, by family: descriptors and the functions that run them.
//! - `script`: scripts, which call commands; its interpreter, in `lua`, knows no commands.
//! - `run`: groups commands that go to the store together, and runs transactions.
//! - `connection`: the loop of one client: read, run, answer; `watch` enforces its time limits. `loading` answers
//!   clients while the store is being opened, and then hands them over.

mod commands;
mod connection;
mod loading;
mod run;
mod script;
mod session;
mod verb;
mod version;
mod watch;
mod wire;

pub(crate) use commands::command_table;
pub use commands::family;
pub(crate) use commands::hyperloglog::fuzzed as fuzzed_hyperloglog;
pub(crate) use connection::{Dialogue, Peer, resume, serve};
pub(crate) use loading::serve_loading;
pub(crate) use verb::Opening;
pub(crate) use wire::fuzzed;
