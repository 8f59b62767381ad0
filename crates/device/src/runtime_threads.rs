//! The production runtime: a few worker threads and one timer thread, all of which sleep while idle.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use async_executor::Executor;
use futures_lite::FutureExt;
use parking_lot::{Condvar, Mutex};

use crate::clock::Clock;
use crate::pending::Completion;
use crate::wake::wake;
use crate::{Pending, Runtime, Task};

/// Runs tasks on worker threads. The threads end and unfinished tasks are dropped when [`Threads::shutdown`] is called
/// or the last handle is dropped. A task that holds a handle keeps the runtime alive, so owners of long-running tasks
/// must end them or call `shutdown`.
pub struct Threads {
    executor: Arc<Executor<'static>>,
    workers: usize,
    timer: Arc<Timer>,
    running: Mutex<Running>,
}

struct Running {
    stop: Vec<Completion<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Starts `workers` worker threads (at least one) and a timer.
    pub fn new(workers: usize) -> io::Result<Arc<Threads>> {
        let workers = workers.max(1);
        let executor = Arc::new(Executor::new());
        let timer = Arc::new(Timer::new());
        let mut running = Running { stop: Vec::new(), threads: Vec::new() };
        let spawned = (0..workers).try_for_each(|index| {
            let (stopped, stop) = Pending::new();
            let executor = executor.clone();
            // Workers have no ring of their own, because a task that moves to another worker would wait for this one's
            // ring.
            let work = move || futures_lite::future::block_on(executor.run(stopped));
            running.threads.push(start_thread(format!("esker-worker-{index}"), work)?);
            running.stop.push(stop);
            Ok(())
        });
        let spawned = spawned.and_then(|()| {
            let timer = timer.clone();
            running.threads.push(start_thread("esker-timer".into(), move || timer.run())?);
            Ok(())
        });
        // Created before the check, so that its drop ends the threads that did start.
        let threads = Threads { executor, workers, timer, running: Mutex::new(running) };
        spawned.map(|()| Arc::new(threads))
    }

    /// Starts one worker per processor.
    pub fn per_core() -> io::Result<Arc<Threads>> {
        Threads::new(std::thread::available_parallelism().map_or(1, usize::from))
    }

    /// Ends the threads after the polls in progress return, and waits for them. Unfinished tasks are dropped with the
    /// last handle.
    pub fn shutdown(&self) {
        let running =
            std::mem::replace(&mut *self.running.lock(), Running { stop: Vec::new(), threads: Vec::new() });
        self.timer.stop();
        for stop in running.stop {
            stop.finish(());
        }
        for thread in running.threads {
            // A task on a worker may drop the last handle, and a thread cannot join itself.
            if thread.thread().id() != std::thread::current().id() {
                thread.join().ok();
            }
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threads").field("workers", &self.workers).finish()
    }
}

#[expect(clippy::disallowed_methods, reason = "these are the threads that `Runtime::spawn` runs tasks on")]
pub(crate) fn start_thread(name: String, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name).spawn(work)
}

/// A panic ends its task, not the thread. Code that depends on the task detects that through a guard of its own.
pub async fn catching(name: &'static str, task: Task) {
    if AssertUnwindSafe(task).catch_unwind().await.is_err() {
        tracing::error!(task = name, "a background task panicked");
    }
}

impl Runtime for Threads {
    fn now(&self) -> Duration {
        self.timer.clock.now()
    }

    fn wall_clock_ms(&self) -> u64 {
        Clock::wall_clock_ms()
    }

    fn random(&self) -> u64 {
        Clock::random()
    }

    fn spawn(&self, name: &'static str, task: Task) {
        self.executor.spawn(catching(name, task)).detach();
    }

    fn sleep(&self, duration: Duration) -> Task {
        let wake_at = self.now().saturating_add(duration);
        Box::pin(Sleep { timer: self.timer.clone(), wake_at, entry: None })
    }

    fn parallelism(&self) -> usize {
        self.workers
    }
}

/// Wakers by due time. The number distinguishes entries with the same time.
struct Timer {
    clock: Clock,
    state: Mutex<TimerState>,
    changed: Condvar,
}

#[derive(Default)]
struct TimerState {
    due: BTreeMap<(Duration, u64), Waker>,
    next_number: u64,
    /// Time of the timer thread's next wake-up; `None` while it sleeps indefinitely.
    looks_at: Option<Duration>,
    stopped: bool,
}

impl TimerState {
    /// True if the thread would sleep past `due`. If an earlier deadline was cancelled, the thread wakes once in vain,
    /// which costs less than waking it for every new deadline.
    fn oversleeps(&self, due: Duration) -> bool {
        self.looks_at.is_none_or(|at| due < at)
    }
}

impl Timer {
    fn new() -> Timer {
        Timer { clock: Clock::start(), state: Mutex::default(), changed: Condvar::new() }
    }

    fn run(&self) {
        let mut state = self.state.lock();
        while !state.stopped {
            let Some((first, _)) = state.due.keys().next().copied() else {
                state.looks_at = None;
                self.changed.wait(&mut state);
                continue;
            };
            state.looks_at = Some(first);
            let now = self.clock.now();
            if first > now {
                self.changed.wait_for(&mut state, first - now);
                continue;
            }
            let later = state.due.split_off(&(now, u64::MAX));
            let due = std::mem::replace(&mut state.due, later);
            // Woken without the lock: a waker may drop a task, and with it a sleep that acquires the lock.
            parking_lot::MutexGuard::unlocked(&mut state, || due.into_values().for_each(wake));
        }
    }

    fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }
}

struct Sleep {
    timer: Arc<Timer>,
    wake_at: Duration,
    entry: Option<(Duration, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let due = self.wake_at;
        if self.timer.clock.now() >= due {
            return Poll::Ready(());
        }
        let sleep = &mut *self;
        let mut state = sleep.timer.state.lock();
        let entry = *sleep.entry.get_or_insert_with(|| {
            state.next_number += 1;
            (due, state.next_number)
        });
        let replaced = state.due.insert(entry, context.waker().clone());
        let oversleeps = state.oversleeps(due);
        drop(state);
        drop(replaced);
        if oversleeps {
            sleep.timer.changed.notify_one();
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(entry) = self.entry {
            let waker = self.timer.state.lock().due.remove(&entry);
            drop(waker);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn tasks_run_sleep_and_survive_a_panic() {
        let runtime = Threads::new(2).unwrap();
        let (answer, completion) = Pending::new();
        runtime.spawn("panics", Box::pin(async { panic!("on purpose") }));
        let inner = Arc::downgrade(&runtime);
        let task = async move {
            let sleep = inner.upgrade().map(|runtime| runtime.sleep(Duration::from_millis(20)));
            sleep.expect("the runtime is alive").await;
            completion.finish(inner.upgrade().expect("the runtime is alive").now());
        };
        runtime.spawn("sleeps", Box::pin(task));
        assert!(answer.wait() >= Duration::from_millis(20));
        assert_eq!(runtime.parallelism(), 2);
        assert_ne!(runtime.random(), runtime.random());
        assert!(runtime.wall_clock_ms() > 1_600_000_000_000);
    }

    #[test]
    fn sleeps_end_in_order_of_their_deadlines() {
        let runtime = Threads::new(1).unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let waits: Vec<Pending<()>> = [40u64, 5, 20]
            .into_iter()
            .map(|delay_ms| {
                let (done, completion) = Pending::new();
                let (sleep, order) = (runtime.sleep(Duration::from_millis(delay_ms)), order.clone());
                let task = async move {
                    sleep.await;
                    order.lock().push(delay_ms);
                    completion.finish(());
                };
                runtime.spawn("sleeper", Box::pin(task));
                done
            })
            .collect();
        waits.into_iter().for_each(Pending::wait);
        assert_eq!(*order.lock(), [5, 20, 40]);
        drop(runtime.sleep(Duration::MAX));
    }

    #[test]
    fn the_thread_is_woken_for_what_is_due_before_it_looks_again() {
        let runtime = Threads::new(1).unwrap();
        let looks_at = || runtime.timer.state.lock().looks_at;
        let poll = |sleep: &mut Task| {
            assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        };
        let changes = |before: Option<Duration>| {
            for _ in 0..10_000 {
                if looks_at() != before {
                    return;
                }
                std::thread::park_timeout(Duration::from_millis(1));
            }
            panic!("the thread sleeps on");
        };
        let mut sooner = runtime.sleep(Duration::from_secs(1000));
        poll(&mut sooner);
        changes(None);
        let then = looks_at();
        let later = then.unwrap() + Duration::from_secs(1);
        assert!(!runtime.timer.state.lock().oversleeps(later));
        let mut soonest = runtime.sleep(Duration::from_secs(500));
        poll(&mut soonest);
        changes(then);
        assert!(looks_at() < then);
    }

    #[test]
    fn a_waker_that_panics_ends_nobody_elses_sleep() {
        struct Panics;
        impl std::task::Wake for Panics {
            fn wake(self: Arc<Self>) {
                panic!("on purpose");
            }
        }
        let runtime = Threads::new(1).unwrap();
        let waker = Waker::from(Arc::new(Panics));
        let mut sleep = runtime.sleep(Duration::from_millis(1));
        assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let (done, completion) = Pending::new();
        let later = runtime.sleep(Duration::from_millis(50));
        let task = async move {
            later.await;
            completion.finish(());
        };
        runtime.spawn("sleeps on", Box::pin(task));
        done.wait();
    }

    struct CountsDrop(Arc<AtomicUsize>);
    impl Drop for CountsDrop {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn unfinished_tasks_are_dropped_with_the_runtime() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let runtime = Threads::new(2).unwrap();
        for _ in 0..10 {
            let guard = CountsDrop(dropped.clone());
            let sleep = runtime.sleep(Duration::from_secs(3600));
            let task = async move {
                let _guard = guard;
                sleep.await;
            };
            runtime.spawn("waits", Box::pin(task));
        }
        runtime.shutdown();
        drop(runtime);
        assert_eq!(dropped.load(Ordering::SeqCst), 10);
    }

    #[test]
    fn the_last_handle_may_be_dropped_by_a_task() {
        let runtime = Threads::new(2).unwrap();
        let (done, completion) = Pending::new();
        let handle = runtime.clone();
        let sleep = runtime.sleep(Duration::from_millis(10));
        let task = async move {
            sleep.await;
            drop(handle);
            completion.finish(());
        };
        runtime.spawn("drops the runtime", Box::pin(task));
        drop(runtime);
        done.wait();
    }
}
