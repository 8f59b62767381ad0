//! Commands that wait for the end of CLIENT PAUSE.

use crate::resp::session::Session;
use crate::resp::verb::facts::Pauses;
use crate::resp::verb::{Run, Verb};
use crate::resp::wire::reply::Replies;
use crate::service::Service;

/// Waits until a command may run; a client that is killed meanwhile leaves. Returns false if the command may run at once.
/// Otherwise it is admitted again, because rights may have changed.
pub(super) async fn waited(verb: &Verb, session: &mut Session, service: &Service, replies: &Replies) -> bool {
    if !service.pauses.is_on() || verb.pauses == Pauses::Never {
        return false;
    }
    let writes = writes(verb, session);
    if !service.pauses.holds(writes) {
        return false;
    }
    // Earlier answers are sent first.
    if replies.unsent_bytes() == 0 {
        tokio::select! {
            () = service.pauses.over(writes) => {}
            () = session.client.killed() => session.leaving = true,
        }
    }
    true
}

/// Returns true if a command may write, or if one of the commands that an EXEC would run may.
pub(super) fn writes(verb: &Verb, session: &Session) -> bool {
    let queued = session.transaction.as_ref().filter(|_| matches!(verb.run, Run::Exec));
    verb.may_write()
        || queued.is_some_and(|queued| queued.commands().iter().any(|(verb, _)| verb.may_write()))
}
