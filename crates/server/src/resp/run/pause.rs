//! Commands that wait for the end of CLIENT PAUSE.

use crate::resp::session::Session;
use crate::resp::verb::facts::Pauses;
use crate::resp::verb::{Run, Verb};
use crate::service::Service;

/// Returns true if a command has to wait. CLIENT never waits, so that a pause can be ended.
pub(super) fn holds(verb: &Verb, session: &Session, service: &Service) -> bool {
    verb.pauses != Pauses::Never && service.pauses.holds(writes(verb, session))
}

/// Waits until a command may run. A client that is killed meanwhile leaves.
pub(super) async fn wait(verb: &Verb, session: &mut Session, service: &Service) {
    let writes = writes(verb, session);
    tokio::select! {
        () = service.pauses.over(writes) => {}
        () = session.client.killed() => session.leaving = true,
    }
}

/// Returns true if a command may write, or if one of the commands that an EXEC would run may.
fn writes(verb: &Verb, session: &Session) -> bool {
    let queued = session.transaction.as_ref().filter(|_| matches!(verb.run, Run::Exec));
    verb.may_write()
        || queued.is_some_and(|queued| queued.commands().iter().any(|(verb, _)| verb.may_write()))
}
