//! The protocol of a listening address.

use super::admit::TLS_BYTES;
use crate::grpc;
use crate::tls::Application;

/// The protocol of a listening address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Door {
    pub(crate) application: Application,
    pub(crate) tls: bool,
    /// True for the addresses of RESP at which replicas answer reads.
    pub(crate) reads_replica: bool,
}

impl Door {
    /// Returns the bytes of floor that a connection needs beyond those of every connection.
    pub(crate) fn floor_bytes(self) -> usize {
        let tls = if self.tls { TLS_BYTES } else { 0 };
        tls + if self.application == Application::Grpc { grpc::FLOOR_BYTES } else { 0 }
    }
}
