//! The RESP2 client of all verbs that connect to a server: `top`, `ping`, `support`, `compat`, `import`,
//! `export` and `backup take`.
//!
//! - `login`: connection options: user, password, TLS, time limit.
//! - `connection`: sends commands and receives answers; many commands may be sent before the first answer
//!   is read.
//! - `resp`: encoding of commands, and the types of answers.
//! - `stream`, `tls`: the connection, plain or encrypted.
//! - `errors`: errors, with their remedies.

mod connection;
mod errors;
mod login;
mod resp;
mod stream;
mod tls;

pub(crate) use connection::{Client, Server};
pub(crate) use errors::Trouble;
pub(crate) use login::{FromLogin, Login};
pub(crate) use resp::{Answer, write_command};
pub(crate) use stream::Stream;
