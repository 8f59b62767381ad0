//! Errors that keep a server from starting.

use std::net::SocketAddr;
use std::path::PathBuf;

/// An error of the whole server. Errors of a single client are logged and close its connection.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The configured address.
        address: SocketAddr,
        /// The error of the kernel.
        source: std::io::Error,
    },
    /// The unix socket cannot be created.
    #[error("cannot listen on the unix socket {path}: {what}")]
    UnixSocket {
        /// The configured path.
        path: PathBuf,
        /// The cause.
        what: String,
    },
    /// Other machines could connect without a password.
    #[error(
        "other machines can reach {address} without a password: set a password or users, or allow it with \
         allow-unauthenticated"
    )]
    Exposed {
        /// The configured address.
        address: SocketAddr,
    },
    /// The number of databases is out of range.
    #[error("databases is {asked}; it must be 1 to {}", esker_engine::Store::DATABASES)]
    Databases {
        /// The configured number.
        asked: u8,
    },
    /// The password is longer than any login accepts.
    #[error("a password may have at most {} bytes", super::config::PASSWORD_BYTES_MAX)]
    PasswordTooLong,
    /// A TLS address is configured without a certificate.
    #[error("TLS on {address} requires tls-cert and tls-key")]
    NoCertificate {
        /// The configured address.
        address: SocketAddr,
    },
    /// A certificate or key file is unusable.
    #[error("cannot use {path}: {what}")]
    Tls {
        /// The file.
        path: PathBuf,
        /// The cause.
        what: String,
    },
    /// The system has no random numbers for secrets.
    #[error(
        "the system gives no random numbers, which passwords need: {0}; let the process read /dev/urandom"
    )]
    NoRandomness(getrandom::Error),
    /// The users file is unusable.
    #[error("cannot use the users in {path}: {what}")]
    Users {
        /// The file.
        path: PathBuf,
        /// The cause.
        what: String,
    },
}

/// Result with the server's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;
