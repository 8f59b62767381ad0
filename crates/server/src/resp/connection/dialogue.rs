//! The state with which a conversation begins: empty, or continued from the time when the store was being opened.

use std::sync::Arc;

use bytes::BytesMut;

use crate::Limits;
use crate::auth::User;
use crate::base::address::Address;
use crate::resp::commands::TABLE;
use crate::resp::session::{ReplicaReads, Session};
use crate::resp::wire::frame::Parser;
use crate::resp::wire::reply::Replies;
use crate::service::clients::Client;

/// The other end of a connection.
pub(crate) struct Peer {
    /// Unique in this run of the server.
    pub(crate) id: u64,
    pub(crate) address: Address,
    /// The local end of the connection.
    pub(crate) local: Address,
    /// The user before any login.
    pub(crate) user: Option<Arc<User>>,
    /// True on the address for reads from replicas.
    pub(crate) reads_replica: bool,
}

/// The state of a conversation apart from its stream.
pub(crate) struct Dialogue {
    pub(in crate::resp) session: Session,
    pub(in crate::resp) parser: Parser,
    /// Bytes read and not yet parsed.
    pub(in crate::resp) input: BytesMut,
    /// Answers not yet sent.
    pub(in crate::resp) replies: Replies,
}

impl Dialogue {
    /// Returns the state of a new connection.
    pub(in crate::resp) fn new(peer: Peer, limits: &Limits) -> Dialogue {
        let name = peer.user.as_ref().map_or("", |user| user.name());
        let client = Client::new(peer.id, peer.address.clone(), peer.local, name);
        let mut session = Session::new(peer.address, peer.user, Arc::new(client), &TABLE);
        session.replica = peer.reads_replica.then(ReplicaReads::default);
        Dialogue { session, parser: Parser::new(limits), input: BytesMut::new(), replies: Replies::new() }
    }

    /// Returns the address of the client.
    pub(crate) fn address(&self) -> &Address {
        &self.session.peer
    }
}
