//! Sleeping until a wake-up or a deadline, and yielding to other tasks, as background tasks do.

use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

use esker_device::Runtime;
use futures_util::future::select;

/// Waits until `woken` completes, but at most for `left`; without a limit if `left` is `None`.
pub(crate) async fn woken_or_after(
    runtime: &dyn Runtime,
    woken: impl Future<Output = ()>,
    left: impl Into<Option<Duration>>,
) {
    match left.into() {
        None => woken.await,
        Some(left) => {
            select(std::pin::pin!(woken), runtime.sleep(left)).await;
        }
    }
}

/// As [`woken_or_after`], with a deadline on the runtime's clock.
pub(crate) async fn woken_or_at(
    runtime: &dyn Runtime,
    woken: impl Future<Output = ()>,
    at: impl Into<Option<Duration>>,
) {
    let left = at.into().map(|at| at.saturating_sub(runtime.now()));
    woken_or_after(runtime, woken, left).await;
}

/// Lets other tasks of the executor run.
pub(crate) async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
