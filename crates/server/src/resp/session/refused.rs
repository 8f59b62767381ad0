//! Records refusals in the ACL log.

use super::Session;
use crate::resp::verb::Verb;
use crate::service::acl_log::{OBJECT_BYTES_MAX, Reason, Refusal};
use crate::service::{Service, wall_clock_ms};

/// Different refusals held for one attempt; beyond it, the oldest is dropped.
const DENIALS_MAX: usize = 16;

/// Maximum bytes of the held refusals of an attempt.
pub(in crate::resp) const DENIALS_BYTES_MAX: usize = DENIALS_MAX * (OBJECT_BYTES_MAX + size_of::<Denial>());

/// Refusals of calls of scripts, held until the attempt to run the scripts has ended: scripts that run again are refused
/// again.
#[derive(Clone, Default)]
pub(crate) struct Denials(Vec<Denial>);

/// A refusal of a call of a script, and how often it happened.
#[derive(Clone)]
struct Denial {
    reason: Reason,
    object: Vec<u8>,
    verb: &'static Verb,
    times: u64,
}

impl Denials {
    fn add(&mut self, reason: Reason, object: &[u8], verb: &'static Verb) {
        let object = &object[..object.len().min(OBJECT_BYTES_MAX)];
        let is_equal = |held: &&mut Denial| {
            held.reason == reason && held.object == object && std::ptr::eq(held.verb, verb)
        };
        if let Some(held) = self.0.iter_mut().find(is_equal) {
            held.times += 1;
            return;
        }
        if self.0.len() == DENIALS_MAX {
            self.0.remove(0);
        }
        self.0.push(Denial { reason, object: object.to_vec(), verb, times: 1 });
    }

    /// Discards the refusals of an attempt that is repeated.
    pub(in crate::resp) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Records a refusal, with the client's user.
pub(in crate::resp) fn note(
    reason: Reason,
    object: &[u8],
    verb: &Verb,
    session: &Session,
    service: &Service,
) {
    let context = if session.transaction.is_some() { "multi" } else { "toplevel" };
    note_of(reason, context, object, user_of(session), verb, session, service);
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
    // No existing user has a name longer than this.
    let user = user[..user.len().min(NAME_BYTES_MAX)].to_vec();
    record(Refusal { reason, context, object: object.to_vec(), user }, 1, verb, session, service);
}

/// Holds a refusal of a call of a script until [`note_held`] records it.
pub(in crate::resp) fn hold(reason: Reason, object: &[u8], verb: &'static Verb, session: &mut Session) {
    session.denials.add(reason, object, verb);
}

/// Records the held refusals of an attempt that is not repeated.
pub(in crate::resp) fn note_held(session: &mut Session, service: &Service) {
    for Denial { reason, object, verb, times } in std::mem::take(&mut session.denials).0 {
        let refusal = Refusal { reason, context: "lua", object, user: user_of(session).to_vec() };
        record(refusal, times, verb, session, service);
    }
}

fn user_of(session: &Session) -> &[u8] {
    session.user.as_ref().map_or(b"", |user| user.name().as_bytes())
}

fn record(refusal: Refusal, times: u64, verb: &Verb, session: &Session, service: &Service) {
    let mut client = Vec::new();
    session.client.describe(session.commands.counted_as(verb).name, &mut client);
    service.acl_log.note(refusal, times, client, wall_clock_ms());
}

const NAME_BYTES_MAX: usize = 128;
