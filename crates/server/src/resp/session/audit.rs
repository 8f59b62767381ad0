//! What admins did to the server, for the log: who, from where, what. Nothing that a client sent is repeated, since it could
//! be a secret or break a line: callers give words and numbers of their own.

use super::Session;

/// Writes an action that was done to the log.
pub(in crate::resp) fn note(session: &Session, action: &str) {
    let user = session.user.as_ref().map_or("", |user| user.name());
    tracing::info!(target: crate::AUDIT, user, address = %session.peer, connection = session.id, "{action}");
}
