//! Sockets: admission, replies while the store is opened, and the stop.
//!
//! Ports are bound before a store is opened or formatted, because only a successful bind proves that no other process uses them.
//! Clients that connect during recovery receive a not-ready reply (`loading`) and are served once the store is open.

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
