//! Accepting connections, and the end of their tasks.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::base::address::Address;
use crate::base::shutdown::Stop;
use crate::base::socket::{Listener, Stream};

/// Pause after a failed accept, which mostly means that file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The next connection.
pub(crate) async fn next(listener: &Listener) -> (Stream, Address) {
    loop {
        match listener.accept().await {
            Ok(connection) => return connection,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Hands every connection of a listener to `take`, which may give it a task, until the stop; then the tasks that are left come to
/// their end, or this is dropped with them.
pub(crate) async fn until_stop(
    listener: Arc<Listener>,
    mut stop: Stop,
    mut take: impl FnMut(&mut JoinSet<()>, Stream, Address),
) {
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = stop.announced() => break,
            Some(ended) = tasks.join_next() => note_panic(ended),
            (stream, peer) = next(&listener) => take(&mut tasks, stream, peer),
        }
    }
    drop(listener);
    while let Some(ended) = tasks.join_next().await {
        note_panic(ended);
    }
}

/// Tells of a task that panicked.
pub(crate) fn note_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "a connection panicked");
    }
}
