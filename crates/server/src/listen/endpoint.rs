//! What is spoken at an address.

use super::admit::TLS_BYTES;
use crate::grpc;
use crate::tls::Application;

/// What is spoken at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Door {
    pub(crate) application: Application,
    pub(crate) tls: bool,
}

impl Door {
    /// What a connection holds on top of what every one does.
    pub(crate) fn floor_bytes(self) -> usize {
        let tls = if self.tls { TLS_BYTES } else { 0 };
        tls + if self.application == Application::Grpc { grpc::FLOOR_BYTES } else { 0 }
    }
}
