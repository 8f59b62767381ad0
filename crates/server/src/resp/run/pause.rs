//! Commands that wait because of CLIENT PAUSE.

use crate::resp::session::Session;
use crate::resp::verbs::Verb;
use crate::service::Service;

/// Whether a command has to wait. CLIENT never has, so that a pause can be ended.
pub(super) fn holds(verb: &Verb, session: &Session, service: &Service) -> bool {
    verb.name != "client" && service.pauses.holds(writes(verb, session))
}

/// Waits until a command may run. Who is killed meanwhile leaves.
pub(super) async fn wait(verb: &Verb, session: &mut Session, service: &Service) {
    let writes = writes(verb, session);
    tokio::select! {
        () = service.pauses.over(writes) => {}
        () = session.client.killed() => session.leaving = true,
    }
}

/// Whether a command may write, or one of those that an EXEC would run.
fn writes(verb: &Verb, session: &Session) -> bool {
    let queued = session.transaction.as_ref().filter(|_| verb.name == "exec");
    verb.may_write()
        || queued.is_some_and(|queued| queued.commands().iter().any(|(verb, _)| verb.may_write()))
}
