//! The client of RESP2 that every verb has which speaks to a server: `top`, `import`, `export` and `backup take`.
//!
//! - `login`: what a call says of it: user, password, TLS, time.
//! - `connection`: commands out, answers in; many may be sent before the first answer is read.
//! - `resp`: the bytes of a command, and what an answer can be.
//! - `stream`, `tls`: the connection, plain or encrypted.
//! - `trouble`: why there is no answer, and what to do about it.

mod connection;
mod errors;
mod login;
mod resp;
mod stream;
mod tls;

pub(crate) use connection::{Client, Server};
pub(crate) use errors::Trouble;
pub(crate) use login::Login;
pub(crate) use resp::{Answer, write_command};
