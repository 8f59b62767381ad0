//! Logs administrative actions: user, address, action. Bytes sent by a client are never logged, because they could be
//! a secret or contain a line break: callers pass words and numbers of their own.

use super::Session;

/// Logs an action that was done.
pub(in crate::resp) fn note(session: &Session, action: &str) {
    let user = session.user.as_ref().map_or("", |user| user.name());
    tracing::info!(target: crate::AUDIT, user, address = %session.peer, connection = session.id, "{action}");
}
