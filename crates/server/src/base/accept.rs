//! Accepting connections, and joining their tasks.

use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::base::address::Address;
use crate::base::limited_log::Notices;
use crate::base::shutdown::Stop;
use crate::base::socket::{Listener, Stream};

/// Pause after a failed accept; most failures mean that the file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Rate limit for log lines about failed accepts, shared by all listeners: one line every 50 ms would fill the log.
static FAILURES: Notices = Notices::new();

/// Returns the next connection. Retries failed accepts.
pub(crate) async fn next(listener: &Listener) -> (Stream, Address) {
    loop {
        match listener.accept().await {
            Ok(connection) => return connection,
            Err(error) => {
                note_failure(&error, &FAILURES);
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Logs a failed accept, unless the rate limit for such lines is reached. Returns true if a line was written.
fn note_failure(error: &std::io::Error, failures: &Notices) -> bool {
    let Some(left_out) = failures.turn() else { return false };
    tracing::warn!(left_out, "cannot accept a connection: {error}{}", remedy(error));
    true
}

/// Names the limit to raise if the process or the machine ran out of file descriptors; otherwise empty.
fn remedy(error: &std::io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE) => {
            "; raise the limit of open files of the process (LimitNOFILE of the service, ulimit -n), or lower connections"
        }
        Some(Errno::NFILE) => {
            "; raise the limit of open files of the machine (fs.file-max), or lower connections"
        }
        _ => "",
    }
}

/// Hands every connection of a listener to `take`, which may spawn a task for it, until the stop. Then waits for the remaining
/// tasks; dropping this future aborts them.
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

/// Logs a connection task that panicked.
pub(crate) fn note_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "a connection panicked");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_accepts_name_the_limit_and_do_not_fill_the_log() {
        let (error, failures) = (std::io::Error::from(Errno::MFILE), Notices::new());
        assert!(remedy(&error).contains("LimitNOFILE") && remedy(&error).contains("connections"));
        assert!(remedy(&Errno::NFILE.into()).contains("fs.file-max"));
        assert_eq!(remedy(&Errno::CONNABORTED.into()), "");
        let lines = (0..1000).filter(|_| note_failure(&error, &failures)).count();
        assert!((1..=20).contains(&lines), "{lines} lines of 1,000");
    }
}
