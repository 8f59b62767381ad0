//! Parallel work during an opening.

use std::sync::Arc;

use esker_device::Runtime;

use crate::base::error::{Error, Result};

/// Runs a future as a task of the runtime, and returns its result.
pub(super) async fn run<T: Send + 'static>(
    runtime: &Arc<dyn Runtime>,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let (send, receive) = tokio::sync::oneshot::channel();
    runtime.spawn(
        "recover",
        Box::pin(async move {
            let _ = send.send(work.await);
        }),
    );
    receive
        .await
        .unwrap_or_else(|_| Err(Error::Closed { reason: "the runtime ended during recovery".into() }))
}
