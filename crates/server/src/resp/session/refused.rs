//! Records refusals in the ACL log.

use super::Session;
use crate::resp::session::denials::Denial;
use crate::service::acl_log::{Reason, Refusal};
use crate::service::{Service, wall_clock_ms};

/// Records a refusal of a command, by the name under which its calls are counted, with the client's user.
pub(in crate::resp) fn note(
    reason: Reason,
    object: &[u8],
    command: &'static str,
    session: &Session,
    service: &Service,
) {
    let context = if session.transaction.is_some() { "multi" } else { "toplevel" };
    note_of(reason, context, object, user_of(session), command, session, service);
}

/// Records a refusal with a context and a user name, which the client may only have claimed.
pub(in crate::resp) fn note_of(
    reason: Reason,
    context: &'static str,
    object: &[u8],
    user: &[u8],
    command: &'static str,
    session: &Session,
    service: &Service,
) {
    // No existing user has a name longer than this.
    let user = user[..user.len().min(NAME_BYTES_MAX)].to_vec();
    record(Refusal { reason, context, object: object.to_vec(), user }, 1, command, session, service);
}

/// Holds a refusal of a call of a script until [`note_held`] records it.
pub(in crate::resp) fn hold(reason: Reason, object: &[u8], command: &'static str, session: &mut Session) {
    session.denials.add(reason, object, command);
}

/// Records the held refusals of an attempt that is not repeated.
pub(in crate::resp) fn note_held(session: &mut Session, service: &Service) {
    for Denial { reason, object, command, times } in std::mem::take(&mut session.denials).0 {
        let refusal = Refusal { reason, context: "lua", object, user: user_of(session).to_vec() };
        record(refusal, times, command, session, service);
    }
}

fn user_of(session: &Session) -> &[u8] {
    session.user.as_ref().map_or(b"", |user| user.name().as_bytes())
}

fn record(refusal: Refusal, times: u64, command: &str, session: &Session, service: &Service) {
    let mut client = Vec::new();
    session.client.describe(command, &mut client);
    service.acl_log.note(refusal, times, client, wall_clock_ms());
}

const NAME_BYTES_MAX: usize = 128;
