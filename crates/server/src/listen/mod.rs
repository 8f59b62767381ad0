//! Sockets: who is let in, what is answered while the store is being opened, and the stop.
//!
//! Ports are listened on before a store is opened or formatted: only that tells for sure that nobody else has them. Who
//! connects while the store recovers is told so (`loading`), and served when it is open.

mod admit;
mod connections;
mod endpoint;
mod loading;
mod opened;
mod server;
mod socket_file;
mod sockets;

pub use server::{Control, Server};
pub use sockets::{Addresses, Sockets};
