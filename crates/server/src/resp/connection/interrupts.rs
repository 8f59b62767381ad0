//! Events that reach a client while it waits.

use std::sync::Arc;

use tokio_util::task::AbortOnDropHandle;

use crate::auth::Users;
use crate::base::shutdown::Stop;
use crate::service::clients::Client;

/// An event during a wait of a conversation.
pub(super) enum Interrupt {
    Killed,
    Stopped,
    /// The users were changed or reloaded.
    Users,
    /// The client became the target of another client's CLIENT TRACKING REDIRECT.
    Told,
}

/// A separate task, so that its futures are polled only when they are woken: polling them with every command would
/// cost as much as parsing the command.
pub(super) type Interrupts = AbortOnDropHandle<Interrupt>;

/// Starts a task that waits for the next interrupt. Must be called before the caller checks whether the session's user
/// is outdated and whether another client redirects its invalidations to this one, because otherwise a change between
/// the check and the call would be missed.
pub(super) fn interrupts(client: Arc<Client>, mut stop: Stop, users: &Users) -> Interrupts {
    let mut reloads = users.reloads();
    // Read here, because the task may be polled much later.
    let listens = client.listens_for_another();
    AbortOnDropHandle::new(tokio::spawn(async move {
        tokio::select! {
            biased;
            () = client.killed() => Interrupt::Killed,
            () = stop.announced() => Interrupt::Stopped,
            () = client.begins_to_listen(), if !listens => Interrupt::Told,
            Ok(()) = reloads.changed() => Interrupt::Users,
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::address::Address;
    use crate::base::config::Access;
    use crate::base::shutdown::Stopper;
    use crate::resp::command_table;

    /// With one thread, the task is polled only when this test waits.
    #[tokio::test]
    async fn interrupt_before_first_poll_is_not_missed() {
        let users = Users::open(&Access::default(), command_table(), 1 << 20).unwrap();
        let (stopper, stop) = Stopper::new();
        let client = || {
            let address = Address::Network("127.0.0.1:1".parse().unwrap());
            Arc::new(Client::new(7, address.clone(), address, "default"))
        };
        let next = |client: &Arc<Client>| interrupts(client.clone(), stop.clone(), &users);

        let told = client();
        let interrupt = next(&told);
        told.listen_for_another();
        assert!(matches!(interrupt.await, Ok(Interrupt::Told)));

        let (knows_it, killed) = (next(&told), client());
        let interrupt = next(&killed);
        killed.kill();
        assert!(matches!(interrupt.await, Ok(Interrupt::Killed)));

        stopper.stop();
        assert!(matches!(knows_it.await, Ok(Interrupt::Stopped)), "a redirection is announced only once");
    }
}
