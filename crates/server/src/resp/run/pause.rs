//! Commands that wait because of CLIENT PAUSE.

use crate::resp::session::Session;
use crate::resp::verbs::Verb;
use crate::service::Service;

/// Waits until a command may run. Who is killed meanwhile leaves. CLIENT always runs, so that a pause can be ended.
pub(super) async fn wait(verb: &Verb, session: &mut Session, service: &Service) {
    if verb.name == "client" {
        return;
    }
    let queued = session.transaction.as_ref().filter(|_| verb.name == "exec");
    let queued_writes =
        queued.is_some_and(|queued| queued.commands().iter().any(|(verb, _)| verb.may_write()));
    let writes = verb.may_write() || queued_writes;
    tokio::select! {
        () = service.pauses.over(writes) => {}
        () = session.client.killed() => session.leaving = true,
    }
}
