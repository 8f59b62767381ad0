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

/// The next interrupt. Must be made before it is looked at who the session's user is and whether the client listens, or else it
/// could miss what changes in between.
pub(super) fn interrupts(client: Arc<Client>, mut stop: Stop, users: &Users) -> Interrupts {
    let mut reloads = users.reloads();
    // The task may be polled much later.
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

    /// On one thread a task is polled only when this one waits.
    #[tokio::test]
    async fn nothing_is_missed_that_happens_before_the_task_is_polled() {
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
        assert!(matches!(knows_it.await, Ok(Interrupt::Stopped)), "it is told once that it listens");
    }
}
