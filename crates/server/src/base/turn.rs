//! Turns: no task keeps its thread busy for long, because otherwise every other client of that thread waits.
//!
//! A turn is one poll of a task. [`Measured`] notes when each turn of a connection begins and observes the processor time that
//! it took (`esker_turn_seconds`). Two means keep turns short:
//!
//! 1. A loop over keys, pages, frames, requests or bytes calls [`pause`] in each round, which yields once the turn has lasted
//!    [`TURN`]. The turn belongs to the thread, so a function that is called in a loop cannot begin a new one by mistake.
//! 2. Work that cannot yield leaves the serving threads. If it owns its data, it is a job of the [`pool`](super::pool). If it
//!    borrows, [`beside`] polls its future after the serving thread has handed its other tasks to another thread.
//!
//! Outside of a measured task (in tests, and in a runtime of one thread) `pause` always yields, and `beside` only polls.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::block_in_place;

use super::counting::Histogram;
use super::moment::Moment;

/// Time after which a turn ends at the next [`pause`].
pub(crate) const TURN: Duration = Duration::from_micros(500);

/// Length of a turn beside the serving threads, where it delays only tasks that wait for a place of [`BESIDE`]. Each turn there costs
/// the hand-over of a thread.
const TURN_BESIDE: Duration = Duration::from_millis(5);

/// Turns of less wall-clock time than this are observed by their wall-clock time, which bounds their processor time: reading the
/// thread's processor clock costs a tenth of a short command.
const SHORT: Duration = Duration::from_micros(128);

/// Age up to which a thread's reading of its processor clock is used for the beginning of a turn.
const READING_AGE_MAX: Duration = Duration::from_micros(100);

/// Polls of [`beside`] that run at a time, in this process.
static BESIDE: Semaphore = Semaphore::const_new(2);

thread_local! {
    static THREAD: Thread = const { Thread {
        began: Cell::new(None),
        reading: Cell::new(None),
        beside: Cell::new(Duration::ZERO),
        is_beside: Cell::new(false),
        beside_began: Cell::new(None),
    } };
    /// The place of [`BESIDE`] that the poll occupies. Not a field of [`Thread`], because each use of a variable with a destructor
    /// tests whether that has run.
    static PLACE: Cell<Option<SemaphorePermit<'static>>> = const { Cell::new(None) };
}

/// State of the turn that a thread is polling.
struct Thread {
    /// The beginning of the turn; `None` outside of measured tasks.
    began: Cell<Option<Moment>>,
    /// The last reading of the thread's processor clock, and its time.
    reading: Cell<Option<(Moment, Duration)>>,
    /// Processor time that this turn spent beside the serving threads.
    beside: Cell<Duration>,
    /// The thread is beside the serving threads now.
    is_beside: Cell<bool>,
    /// When that began.
    beside_began: Cell<Option<Moment>>,
}

/// Processor time of the calling thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// A task whose turns are measured.
pub(crate) struct Measured<F> {
    future: F,
    turns: Arc<Histogram>,
}

impl<F> Measured<F> {
    /// Observes the processor time of each poll of a future.
    pub(crate) fn new(future: F, turns: Arc<Histogram>) -> Measured<F> {
        Measured { future, turns }
    }
}

impl<F: Future + Unpin> Future for Measured<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let began = begin_turn();
        let polled = Pin::new(&mut self.future).poll(context);
        self.turns.observe(end_turn(began));
        polled
    }
}

fn begin_turn() -> Moment {
    let now = Moment::now();
    THREAD.with(|thread| {
        thread.began.set(Some(now));
        thread.beside.set(Duration::ZERO);
        let is_recent = |(at, _)| now - at < READING_AGE_MAX;
        if !thread.reading.get().is_some_and(is_recent) {
            thread.reading.set(Some((now, processor_time())));
        }
    });
    now
}

/// Ends the thread's turn. Returns the processor time that it took without the time beside the serving threads; at most
/// [`READING_AGE_MAX`] too much.
fn end_turn(began: Moment) -> Duration {
    let now = Moment::now();
    let took = now - began;
    THREAD.with(|thread| {
        thread.began.set(None);
        if took < SHORT {
            return took;
        }
        let processor = processor_time();
        let before = thread.reading.replace(Some((now, processor))).map_or(processor, |(_, before)| before);
        took.min(processor.saturating_sub(before)).saturating_sub(thread.beside.get())
    })
}

/// Returns true if the turn of this thread has lasted [`TURN`] by `now`, or [`TURN_BESIDE`] beside the serving threads.
pub(crate) fn is_over_at(now: Moment) -> bool {
    THREAD.with(|thread| match (thread.began.get(), thread.beside_began.get()) {
        (None, _) => true,
        (Some(_), Some(began)) => now - began >= TURN_BESIDE,
        (Some(began), None) => now - began >= TURN,
    })
}

/// Yields to other tasks if the turn is over. To be called in each round of a loop.
pub(crate) async fn pause() {
    pause_at(Moment::now()).await;
}

/// As [`pause`], for a caller that knows the time. Returns the time by now.
pub(crate) async fn pause_at(now: Moment) -> Moment {
    if !is_over_at(now) {
        return now;
    }
    tokio::task::yield_now().await;
    Moment::now()
}

/// As [`pause`], for a function that is polled: pending, and woken at once, if the turn is over.
pub(crate) fn poll_pause(context: &mut Context<'_>) -> Poll<()> {
    if THREAD.with(|thread| thread.began.get()).is_none() || !is_over_at(Moment::now()) {
        return Poll::Ready(());
    }
    context.waker().wake_by_ref();
    Poll::Pending
}

/// Returns when all tasks that are ready on this thread have had their turn.
///
/// A caller that replies after this replies together with the other tasks. A client process with many connections then finds all
/// their replies when it wakes up; if each reply were sent when it is made, the process would be woken for each of them. Waking a
/// process is most of the cost of a reply.
pub(crate) async fn behind_the_others() {
    let mut was_ready = false;
    poll_fn(|context| {
        if was_ready {
            return Poll::Ready(());
        }
        was_ready = true;
        // A task that is woken while it runs joins the end of its thread's queue. `yield_now` would poll for new events first,
        // which costs a client that is alone on its thread as much as its command.
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Runs a closure beside the serving threads if it is not short and there is another serving thread. The caller bounds the number
/// that run at a time.
pub(crate) fn aside<T>(is_short: bool, run: impl FnOnce() -> T) -> T {
    if is_short || is_beside() { run() } else { aside_in(None, run) }
}

fn aside_in<T>(place: Option<SemaphorePermit<'static>>, run: impl FnOnce() -> T) -> T {
    let has_others =
        Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
    let _beside = Beside::begin(has_others, place);
    if has_others { block_in_place(run) } else { run() }
}

/// Gives up the place of the poll that runs beside the serving threads. To be called before work that has a limit of its own and
/// may take seconds, because it must not keep other long commands waiting.
pub(crate) fn leave_place() {
    PLACE.set(None);
}

fn is_beside() -> bool {
    THREAD.with(|thread| thread.is_beside.get())
}

/// The time of a thread beside the serving threads; dropping this ends it.
struct Beside {
    /// Processor time at the beginning; `None` if the thread keeps serving meanwhile.
    began: Option<Duration>,
}

impl Beside {
    fn begin(has_others: bool, place: Option<SemaphorePermit<'static>>) -> Beside {
        THREAD.with(|thread| {
            thread.is_beside.set(true);
            thread.beside_began.set(has_others.then(Moment::now));
        });
        PLACE.set(place);
        Beside { began: has_others.then(processor_time) }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let spent = self.began.map_or(Duration::ZERO, |began| processor_time().saturating_sub(began));
        THREAD.with(|thread| {
            thread.is_beside.set(false);
            thread.beside_began.set(None);
            thread.beside.set(thread.beside.get() + spent);
        });
        PLACE.set(None);
    }
}

/// Polls a future beside the serving threads if `is_long`; see [`beside_while`].
pub(crate) async fn beside<F: Future + Unpin>(is_long: bool, future: F) -> F::Output {
    if is_long { beside_while(|| true, future).await } else { future.await }
}

/// Polls a future beside the serving threads if `is_long` returns true before a poll, at most [`BESIDE`] of them at a time, in
/// the order of arrival. A pending future occupies no place, so it may hold resources that others wait for.
pub(crate) async fn beside_while<F: Future + Unpin>(is_long: impl Fn() -> bool, mut future: F) -> F::Output {
    loop {
        // A nested call already has a place; waiting for a second one could deadlock.
        let is_aside = is_long() && !is_beside();
        let mut place = if is_aside {
            Some(BESIDE.acquire().await.expect("the semaphore is never closed"))
        } else {
            None
        };
        let polled = poll_fn(|context| {
            let mut poll = || Pin::new(&mut future).poll(context);
            Poll::Ready(if place.is_some() && !is_beside() { aside_in(place.take(), poll) } else { poll() })
        })
        .await;
        drop(place);
        match polled {
            Poll::Ready(output) => return output,
            // The future holds the waker of this task.
            Poll::Pending => wait_for_wake().await,
        }
    }
}

/// Completes when the task is polled again.
async fn wait_for_wake() {
    let mut was_polled = false;
    poll_fn(|_| if std::mem::replace(&mut was_polled, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

#[cfg(test)]
#[path = "turn/tests.rs"]
mod tests;
