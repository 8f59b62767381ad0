//! What can keep a server from running.

use std::net::SocketAddr;
use std::path::PathBuf;

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
    /// A unix socket cannot be made.
    #[error("cannot listen on the unix socket {path}: {what}")]
    UnixSocket {
        /// The path asked for.
        path: PathBuf,
        /// Why not.
        what: String,
    },
    /// Other machines would be served without a password.
    #[error(
        "other machines reach {address}, and nobody needs a password: set a password or users, or allow it with \
         allow-unauthenticated"
    )]
    Exposed {
        /// The address asked for.
        address: SocketAddr,
    },
    /// There cannot be so many databases.
    #[error("databases is {asked}, and must be 1 to {}", esker_engine::Store::DATABASES)]
    Databases {
        /// How many were asked for.
        asked: u8,
    },
    /// No login can give such a password.
    #[error("a password has up to {} bytes", super::config::PASSWORD_BYTES_MAX)]
    PasswordTooLong,
    /// An address speaks TLS, and there is no certificate.
    #[error("{address} is to speak TLS, which needs tls-cert and tls-key")]
    NoCertificate {
        /// The address asked for.
        address: SocketAddr,
    },
    /// Certificates or keys cannot be used.
    #[error("cannot use {path}: {what}")]
    Tls {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Secrets cannot be made.
    #[error(
        "the system gives no random numbers, which passwords need: {0}; let the process read /dev/urandom"
    )]
    NoRandomness(getrandom::Error),
    /// The file of users cannot be used.
    #[error("cannot use the users in {path}: {what}")]
    Users {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
}

/// The server's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;
