//! Propagation of the stop to the connections.
//!
//! The accept loop holds the [`Stopper`]. Every connection holds a [`Stop`] and checks it only between batches of commands, so
//! that every command that was read is also answered.

use tokio::sync::watch;

/// Announces the stop.
pub(crate) struct Stopper(watch::Sender<bool>);

/// Receives the stop.
#[derive(Clone)]
pub(crate) struct Stop(watch::Receiver<bool>);

impl Stopper {
    pub(crate) fn new() -> (Stopper, Stop) {
        let (sender, receiver) = watch::channel(false);
        (Stopper(sender), Stop(receiver))
    }

    pub(crate) fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Stop {
    /// Returns when the stop is announced or the [`Stopper`] is dropped.
    pub(crate) async fn announced(&mut self) {
        let _ = self.0.wait_for(|stopped| *stopped).await;
    }
}
