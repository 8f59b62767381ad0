//! Accepting connections, and the end of their tasks.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::base::shutdown::Stop;

/// Pause after a failed accept, which mostly means that file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The next connection.
pub(crate) async fn next(listener: &TcpListener) -> (TcpStream, SocketAddr) {
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
    listener: Arc<TcpListener>,
    mut stop: Stop,
    mut take: impl FnMut(&mut JoinSet<()>, TcpStream, SocketAddr),
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
