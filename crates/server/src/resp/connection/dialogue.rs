//! What a conversation begins with: nothing, or what was said while the store was being opened.

use std::sync::Arc;

use bytes::BytesMut;

use crate::Limits;
use crate::auth::User;
use crate::base::address::Address;
use crate::resp::session::Session;
use crate::resp::wire::frame::Parser;
use crate::resp::wire::reply::Replies;
use crate::service::clients::Client;

/// The other end of a connection.
pub(crate) struct Peer {
    /// Unique in this run of the server.
    pub(crate) id: u64,
    pub(crate) address: Address,
    /// This end.
    pub(crate) local: Address,
    /// Who it speaks for before it has said anything.
    pub(crate) user: Option<Arc<User>>,
}

/// What there is of a conversation beside its stream.
pub(crate) struct Dialogue {
    pub(in crate::resp) session: Session,
    pub(in crate::resp) parser: Parser,
    /// What was read and not parsed.
    pub(in crate::resp) input: BytesMut,
    /// What was answered and not sent.
    pub(in crate::resp) replies: Replies,
}

impl Dialogue {
    /// Nothing was said yet.
    pub(in crate::resp) fn new(peer: Peer, limits: &Limits) -> Dialogue {
        let name = peer.user.as_ref().map_or("", |user| user.name());
        let client = Client::new(peer.id, peer.address.clone(), peer.local, name);
        Dialogue {
            session: Session::new(peer.address, peer.user, Arc::new(client)),
            parser: Parser::new(limits),
            input: BytesMut::new(),
            replies: Replies::new(),
        }
    }

    /// Where the client is.
    pub(crate) fn address(&self) -> &Address {
        &self.session.peer
    }
}
