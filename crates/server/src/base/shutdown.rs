//! How a stop reaches the connections.
//!
//! The accept loop holds the [`Stopper`]; every connection holds a [`Stop`] and looks at it only between batches of
//! commands, so that a command that was read is also answered.

use tokio::sync::watch;

/// Announces the stop.
pub(crate) struct Stopper(watch::Sender<bool>);

/// Hears of the stop.
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
    /// Returns when the stop was announced, or when the announcer is gone.
    pub(crate) async fn announced(&mut self) {
        let _ = self.0.wait_for(|stopped| *stopped).await;
    }
}
