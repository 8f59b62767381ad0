//! What a connection remembers of its client between commands.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::auth::User;

/// State of one client.
pub(crate) struct Session {
    /// Unique in this run of the server.
    pub(crate) id: u64,
    /// The other end of the socket.
    pub(crate) peer: SocketAddr,
    /// Who the client speaks for; `None` before it has said so where it must.
    pub(crate) user: Option<Arc<User>>,
    /// Given by `CLIENT SETNAME` or `HELLO SETNAME`; empty if none.
    pub(crate) name: Vec<u8>,
    /// The client said goodbye, or must go: nothing after the current command runs.
    pub(crate) leaving: bool,
    /// Keys that the next group of reads asks for at a time. It shrinks after large values and grows after small ones,
    /// so that neither many small reads wait for each other nor many large ones are in memory at once.
    pub(crate) read_width: usize,
}

impl Session {
    pub(crate) fn new(id: u64, peer: SocketAddr, user: Option<Arc<User>>) -> Session {
        Session { id, peer, user, name: Vec::new(), leaving: false, read_width: 32 }
    }
}
