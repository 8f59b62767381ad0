//! What can keep a server from running.

use std::net::SocketAddr;

/// An error of the server as a whole; errors of one client are logged and end its connection.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be had.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// What the kernel said.
        source: std::io::Error,
    },
}

/// The server's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;
