//! The runtime of a node, for openraft.
//!
//! openraft reaches its runtime through functions without a receiver, so the runtime of the node whose task is being polled is
//! kept in the thread: [`enter`] sets it during each poll, and every task that is spawned enters the runtime of its
//! spawner. Several nodes can thus share a thread, as they do in a simulated world, each with its own clock.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::io;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use esker_device::{Runtime, Task};
use futures_util::FutureExt;
use openraft::{AsyncRuntime, OptionalSend};
use openraft_rt_sim::SimWatch;
use openraft_rt_tokio::{TokioMpsc, TokioMutex, TokioOneshot};
use rand_next::SeedableRng;
use rand_next::rngs::SmallRng;
use tokio::sync::oneshot;

thread_local! {
    /// Runtime of the node whose task is being polled.
    static CURRENT: RefCell<Option<Arc<dyn Runtime>>> = const { RefCell::new(None) };
}

/// Returns the runtime of the node whose task is being polled.
///
/// # Panics
/// If the current task entered none: [`Replica`](crate::Replica) enters its own before it calls openraft.
fn current() -> Arc<dyn Runtime> {
    let runtime = CURRENT.with_borrow(Clone::clone);
    runtime.expect("openraft is called only by tasks that entered the runtime of a node")
}

/// Returns a future that is polled with `runtime` as the runtime of its node.
pub fn enter<F: Future>(runtime: Arc<dyn Runtime>, future: F) -> Entered<F> {
    Entered { runtime, future: Box::pin(future) }
}

/// A future that is polled with a node's runtime. [`enter`] makes one.
pub struct Entered<F> {
    runtime: Arc<dyn Runtime>,
    future: Pin<Box<F>>,
}

/// Restores the runtime that was current before a poll, also after a panic.
struct Restore(Option<Arc<dyn Runtime>>);

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

impl<F: Future> Future for Entered<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let _restore = Restore(CURRENT.replace(Some(self.runtime.clone())));
        self.future.as_mut().poll(context)
    }
}

/// openraft's view of [`Runtime`].
#[derive(Debug)]
pub struct NodeRuntime;

/// The reason why a task has no result.
#[derive(Debug)]
pub enum NodeJoinError {
    /// It panicked, with this message.
    Panic(String),
    /// It was dropped: the node ended.
    Cancelled,
}

impl fmt::Display for NodeJoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeJoinError::Panic(message) => write!(f, "a task panicked: {message}"),
            NodeJoinError::Cancelled => f.write_str("a task was dropped before its end"),
        }
    }
}

/// Waits for a task. Dropping it leaves the task alone.
pub struct NodeJoinHandle<T>(oneshot::Receiver<Result<T, NodeJoinError>>);

impl<T> Future for NodeJoinHandle<T> {
    type Output = Result<T, NodeJoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|result| result.unwrap_or(Err(NodeJoinError::Cancelled)))
    }
}

/// A point of the monotonic time of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeInstant(Duration);

impl Add<Duration> for NodeInstant {
    type Output = NodeInstant;
    fn add(self, by: Duration) -> NodeInstant {
        NodeInstant(self.0.saturating_add(by))
    }
}

impl AddAssign<Duration> for NodeInstant {
    fn add_assign(&mut self, by: Duration) {
        *self = *self + by;
    }
}

impl Sub<Duration> for NodeInstant {
    type Output = NodeInstant;
    fn sub(self, by: Duration) -> NodeInstant {
        NodeInstant(self.0.saturating_sub(by))
    }
}

impl SubAssign<Duration> for NodeInstant {
    fn sub_assign(&mut self, by: Duration) {
        *self = *self - by;
    }
}

impl Sub for NodeInstant {
    type Output = Duration;
    fn sub(self, other: NodeInstant) -> Duration {
        self.0.saturating_sub(other.0)
    }
}

/// Offset of all instants, so that openraft may subtract a timeout from the time of an early one.
const EPOCH: Duration = Duration::from_secs(1 << 20);

impl NodeInstant {
    /// Returns the time in the clock of the node's runtime.
    pub(super) fn since_start(self) -> Duration {
        self.0.saturating_sub(EPOCH)
    }
}

impl openraft::Instant for NodeInstant {
    fn now() -> NodeInstant {
        NodeInstant(EPOCH + current().now())
    }
}

/// A deadline passed.
#[derive(Debug)]
pub struct NodeTimeoutError;

impl fmt::Display for NodeTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the deadline passed")
    }
}

/// A future with a deadline.
pub struct NodeTimeout<F> {
    future: Pin<Box<F>>,
    sleep: Task,
}

impl<F: Future> Future for NodeTimeout<F> {
    type Output = Result<F::Output, NodeTimeoutError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(output) = self.future.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        self.sleep.as_mut().poll(context).map(|()| Err(NodeTimeoutError))
    }
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

impl AsyncRuntime for NodeRuntime {
    type JoinError = NodeJoinError;
    type JoinHandle<T: OptionalSend + 'static> = NodeJoinHandle<T>;
    type Sleep = Task;
    type Instant = NodeInstant;
    type TimeoutError = NodeTimeoutError;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = NodeTimeout<T>;
    type ThreadLocalRng = SmallRng;
    type Mpsc = TokioMpsc;
    // Unlike tokio's, it wakes its waiters in the order in which they came, so that a seed replays.
    type Watch = SimWatch;
    type Oneshot = TokioOneshot;
    type Mutex<T: OptionalSend + 'static> = TokioMutex<T>;

    fn spawn<T>(future: T) -> NodeJoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        let (runtime, (done, result)) = (current(), oneshot::channel());
        let task = async move {
            let ended = AssertUnwindSafe(future).catch_unwind().await;
            // Without a receiver the task was detached.
            let _ = done.send(ended.map_err(|panic| NodeJoinError::Panic(message_of(&*panic))));
        };
        runtime.spawn("raft", Box::pin(enter(runtime.clone(), task)));
        NodeJoinHandle(result)
    }

    fn sleep(duration: Duration) -> Task {
        current().sleep(duration)
    }

    fn sleep_until(deadline: NodeInstant) -> Task {
        let runtime = current();
        let duration = deadline.0.saturating_sub(EPOCH + runtime.now());
        runtime.sleep(duration)
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(duration: Duration, future: F) -> NodeTimeout<F> {
        NodeTimeout { future: Box::pin(future), sleep: NodeRuntime::sleep(duration) }
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(
        deadline: NodeInstant,
        future: F,
    ) -> NodeTimeout<F> {
        NodeTimeout { future: Box::pin(future), sleep: NodeRuntime::sleep_until(deadline) }
    }

    fn is_panic(error: &NodeJoinError) -> bool {
        matches!(error, NodeJoinError::Panic(_))
    }

    fn thread_rng() -> SmallRng {
        SmallRng::seed_from_u64(current().random())
    }

    fn new(_: usize) -> NodeRuntime {
        NodeRuntime
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        esker_device::block_on(future)
    }

    fn spawn_blocking<F, T>(_: F) -> impl Future<Output = Result<T, io::Error>> + Send
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        std::future::ready(Err(io::Error::new(io::ErrorKind::Unsupported, "a node's tasks never block")))
    }
}
