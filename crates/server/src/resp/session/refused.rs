//! Records refusals in the ACL log.

use super::Session;
use crate::resp::verb::Verb;
use crate::service::acl_log::{Reason, Refusal};
use crate::service::{Service, wall_clock_ms};

/// Records a refusal, with the client's user.
pub(in crate::resp) fn note(
    reason: Reason,
    object: &[u8],
    verb: &Verb,
    session: &Session,
    service: &Service,
) {
    let context = if session.transaction.is_some() { "multi" } else { "toplevel" };
    let user = session.user.as_ref().map_or("", |user| user.name());
    note_of(reason, context, object, user.as_bytes(), verb, session, service);
}

/// Records a refusal with a context and a user name, which the client may only have claimed.
pub(in crate::resp) fn note_of(
    reason: Reason,
    context: &'static str,
    object: &[u8],
    user: &[u8],
    verb: &Verb,
    session: &Session,
    service: &Service,
) {
    let mut client = Vec::new();
    session.client.describe(session.commands.counted_as(verb).name, &mut client);
    // No existing user has a name longer than this.
    let user = &user[..user.len().min(NAME_BYTES_MAX)];
    let refusal = Refusal { reason, context, object: object.to_vec(), user: user.to_vec() };
    service.acl_log.note(refusal, client, wall_clock_ms());
}

const NAME_BYTES_MAX: usize = 128;
