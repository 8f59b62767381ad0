//! Settings of the wire: addresses, credentials and limits.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// A secret that all nodes of a cluster share. It never travels, and is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Maximum length of a secret, in bytes.
    pub const BYTES_MAX: usize = 1024;

    /// Returns a secret of these bytes.
    ///
    /// # Errors
    /// [`WireError::Settings`] if it is empty or longer than [`BYTES_MAX`](Self::BYTES_MAX).
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Secret, WireError> {
        let bytes = bytes.into();
        match bytes.len() {
            1..=Secret::BYTES_MAX => Ok(Secret(bytes)),
            length => Err(WireError::Settings(format!(
                "the cluster's secret has {length} bytes; it must have 1 to {}",
                Secret::BYTES_MAX
            ))),
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Files for mutual TLS, in PEM. They are read by [`Wire::bind`](super::Wire::bind) and
/// [`Wire::reload_tls`](super::Wire::reload_tls).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireTls {
    /// Certificate chain of this node, for both ends of a connection. Its names must contain the host of the advertised
    /// address.
    pub certificate: PathBuf,
    /// Private key of the certificate.
    pub key: PathBuf,
    /// Certificate authorities of the cluster. A peer must have a certificate of one of them.
    pub authorities: PathBuf,
}

/// Limits of the wire. The defaults suit three nodes in a data centre.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireLimits {
    /// Maximum length of a request, in bytes: 16 MiB, and a long value. Nodes of a cluster should agree on it.
    pub frame_bytes_max: usize,
    /// Maximum bytes of requests that wait to be sent to one node, for each of its two connections. One request is
    /// accepted regardless of its length if none waits.
    pub outgoing_bytes_max: usize,
    /// Maximum bytes of requests of all nodes that are being received and handled; snapshot parts have as much again.
    /// Beyond it, connections are not read until answers have been sent.
    pub incoming_bytes_max: usize,
    /// Maximum number of unanswered requests to one node, for each of its two connections.
    pub calls_max: usize,
    /// Maximum number of incoming connections that have not authenticated yet, and of those of nodes that want to join.
    pub unauthenticated_max: usize,
    /// Time in which a connection must authenticate, TLS included.
    pub hello_timeout: Duration,
    /// Time in which an outgoing TCP connection must be established.
    pub dial_timeout: Duration,
    /// Time after which a request without an answer fails.
    pub request_timeout: Duration,
    /// Interval of the pings of both sides of a connection.
    pub ping_interval: Duration,
    /// Time after which a connection on which nothing arrives is closed, and its node counts as unreachable.
    pub silence_max: Duration,
    /// Pause after a failed attempt to connect: the first, and the maximum. It doubles in between.
    pub backoff: (Duration, Duration),
}

impl Default for WireLimits {
    fn default() -> WireLimits {
        WireLimits {
            frame_bytes_max: 32 << 20,
            outgoing_bytes_max: 32 << 20,
            incoming_bytes_max: 64 << 20,
            calls_max: 4096,
            unauthenticated_max: 64,
            hello_timeout: Duration::from_secs(5),
            dial_timeout: Duration::from_secs(1),
            request_timeout: Duration::from_secs(10),
            ping_interval: Duration::from_millis(400),
            silence_max: Duration::from_secs(2),
            backoff: (Duration::from_millis(50), Duration::from_secs(2)),
        }
    }
}

/// Settings of the wire.
#[derive(Clone, Debug)]
pub struct WireSettings {
    /// Address to listen on, `host:port`. Port 0 chooses a free one.
    pub listen: String,
    /// Address by which other nodes reach this one, `host:port`. By default the address that is listened on.
    pub advertise: Option<String>,
    /// The secret of the cluster. Without one, `tls` is required.
    pub secret: Option<Secret>,
    /// Mutual TLS. With a secret, too, both are required of a peer.
    pub tls: Option<WireTls>,
    /// Allows listening beyond the loopback interface without TLS: frames after the hello are neither encrypted nor
    /// protected against changes on the way.
    pub allow_plain: bool,
    /// Limits.
    pub limits: WireLimits,
}

impl WireSettings {
    /// Returns settings for an address and a secret, without TLS and with default limits.
    pub fn new(listen: impl Into<String>, secret: Secret) -> WireSettings {
        WireSettings {
            listen: listen.into(),
            advertise: None,
            secret: Some(secret),
            tls: None,
            allow_plain: false,
            limits: WireLimits::default(),
        }
    }
}

/// The reason why the wire cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The settings contradict each other, or are incomplete.
    #[error("{0}")]
    Settings(String),
    /// The address cannot be resolved or listened on.
    #[error("cannot listen on {address} for other nodes: {source}{}", hint(source))]
    Bind {
        /// The address.
        address: String,
        /// The cause.
        source: io::Error,
    },
    /// Another process, or another part of this one, listens on the address.
    #[error(
        "the address {0} for other nodes is in use; choose another port, or stop the process that uses it"
    )]
    InUse(String),
    /// The wire would listen beyond the loopback interface without encryption.
    #[error(
        "{0} can be reached from other machines, and without TLS the traffic between nodes is not encrypted; \
         configure TLS for the cluster, or allow plain connections explicitly"
    )]
    Plain(String),
    /// A file for TLS cannot be used.
    #[error("TLS between nodes: {}: {what}", path.display())]
    Tls {
        /// The file.
        path: PathBuf,
        /// The cause.
        what: String,
    },
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrNotAvailable => "; no interface of this machine has the address",
        io::ErrorKind::PermissionDenied => "; ports below 1024 need a privilege",
        _ => "",
    }
}
