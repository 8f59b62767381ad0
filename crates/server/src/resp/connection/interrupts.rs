//! What reaches a client that waits.

use std::sync::Arc;

use tokio_util::task::AbortOnDropHandle;

use crate::auth::Users;
use crate::base::shutdown::Stop;
use crate::service::clients::Client;

/// What happens to a conversation while it waits.
pub(super) enum Interrupt {
    Killed,
    Stopped,
    /// The users were read again.
    Users,
    /// It is told what another client would be told.
    Told,
}

/// A task of its own, so that all that it waits for is polled only when it was woken: to do so with every command costs as much as to
/// parse the command.
pub(super) type Interrupts = AbortOnDropHandle<Interrupt>;

/// The next interrupt. Must be made before the session's user is looked at, or else it could miss a reading in between.
pub(super) fn interrupts(client: Arc<Client>, mut stop: Stop, users: &Users) -> Interrupts {
    let mut reloads = users.reloads();
    AbortOnDropHandle::new(tokio::spawn(async move {
        tokio::select! {
            biased;
            () = client.killed() => Interrupt::Killed,
            () = stop.announced() => Interrupt::Stopped,
            () = client.begins_to_listen() => Interrupt::Told,
            Ok(()) = reloads.changed() => Interrupt::Users,
        }
    }))
}
