//! A single-threaded runtime whose every choice comes from a seed.
//!
//! 1. Woken tasks wait in a list. The next one to poll is drawn from it at random.
//! 2. If the list is empty, the clock jumps to the earliest timer, and wakes all tasks that are due.
//! 3. If there is no timer either, nothing can ever happen again. If the main future has not finished, that is a
//!    deadlock, and a panic that names the seed.
//!
//! Threads: handles may be sent anywhere (the trait demands it), but a world is driven by one thread at a time. Wakes
//! from other threads would work, but make runs differ.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use esker_device::{Runtime, Task};
use parking_lot::Mutex;

use crate::trace::Trace;
use crate::{Random, SimNode};

/// Wall-clock time at which the world begins: a fixed instant in 2024.
const WALL_CLOCK_START_MS: u64 = 1_704_067_200_000;

/// Task number of the future passed to `run`.
const MAIN: u64 = 0;

/// Event types in the trace.
const POLLED: u64 = 1;
const JUMPED: u64 = 2;
const CRASHED: u64 = 3;

/// A handle to a simulated world; clones refer to the same one. Tasks usually hold handles to the world that holds
/// them, so a world dropped with unfinished tasks is never freed: end it with [`SimRuntime::crash`].
#[derive(Clone)]
pub struct SimRuntime {
    world: Arc<World>,
}

struct World {
    seed: u64,
    state: Mutex<State>,
}

struct State {
    random: Random,
    now: Duration,
    wall_clock_offset_ms: i64,
    ready: Vec<u64>,
    /// Tasks by number. A task is absent while it is being polled.
    tasks: BTreeMap<u64, Entry>,
    next_task: u64,
    timers: BTreeMap<(Duration, u64), Waker>,
    next_timer: u64,
    next_node: u64,
    trace: Trace,
    steps: u64,
    steps_max: u64,
    running: bool,
}

struct Entry {
    name: &'static str,
    /// The node whose process runs the task; 0 for a task of the world.
    owner: u64,
    task: Option<Task>,
    waker: Arc<TaskWaker>,
}

struct TaskWaker {
    id: u64,
    world: Weak<World>,
    /// True if the task is already in the ready list.
    queued: Mutex<bool>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(world) = self.world.upgrade() else { return };
        if !std::mem::replace(&mut *self.queued.lock(), true) {
            world.state.lock().ready.push(self.id);
        }
    }
}

impl SimRuntime {
    /// Returns a new world for a seed.
    pub fn new(seed: u64) -> SimRuntime {
        let state = State {
            random: Random::new(seed),
            now: Duration::ZERO,
            wall_clock_offset_ms: 0,
            ready: Vec::new(),
            tasks: BTreeMap::new(),
            next_task: MAIN + 1,
            timers: BTreeMap::new(),
            next_timer: 0,
            next_node: 1,
            trace: Trace::new(seed),
            steps: 0,
            steps_max: 50_000_000,
            running: false,
        };
        SimRuntime { world: Arc::new(World { seed, state: Mutex::new(state) }) }
    }

    /// Returns the seed, for messages.
    pub fn seed(&self) -> u64 {
        self.world.seed
    }

    /// Drives the world until `future` has finished. Background tasks remain, and continue with the next call.
    ///
    /// # Panics
    ///
    /// If nothing can ever happen again (a deadlock), if the step limit is reached (a livelock), if called from within,
    /// or if a task panics. A task's panic is not caught, because a simulation must report it.
    pub fn run<F: Future>(&self, future: F) -> F::Output {
        let mut future = std::pin::pin!(future);
        let main = self.waker(MAIN);
        {
            let mut state = self.world.state.lock();
            assert!(!state.running, "a world is driven from one place at a time");
            state.running = true;
        }
        let _running = Running(self);
        Wake::wake_by_ref(&main);
        loop {
            match self.next_ready() {
                Some(MAIN) => {
                    *main.queued.lock() = false;
                    let waker = Waker::from(main.clone());
                    if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                        return output;
                    }
                }
                Some(id) => self.poll_task(id),
                None => assert!(self.jump(), "{}", self.deadlock()),
            }
        }
    }

    /// Drives the world until no task is ready and no timer is left.
    pub fn run_until_idle(&self) {
        loop {
            match self.next_ready() {
                Some(id) if id != MAIN => self.poll_task(id),
                Some(_) => {}
                None if self.jump() => {}
                None => return,
            }
        }
    }

    /// Simulates a power failure for the software: drops every task and timer, wherever it is. Time and trace continue.
    /// Call it from outside of `run`, or from a future that holds nothing that must be dropped.
    pub fn crash(&self) {
        // Dropped values may spawn, wake and sleep, so they are dropped without the lock, repeatedly until none are
        // left.
        for _ in 0..100 {
            let (tasks, timers) = {
                let mut state = self.world.state.lock();
                state.ready.retain(|id| *id == MAIN);
                state.trace.record(&[CRASHED]);
                (std::mem::take(&mut state.tasks), std::mem::take(&mut state.timers))
            };
            if tasks.is_empty() && timers.is_empty() {
                return;
            }
            drop(tasks);
            drop(timers);
        }
        panic!("seed {}: tasks keep appearing while all are being dropped", self.world.seed);
    }

    /// Simulates the end of a process for the software: drops every task except those with this name, which model
    /// activity outside the process (a device that completes submitted operations).
    pub fn crash_except(&self, kept: &str) {
        for _ in 0..100 {
            let dropped = {
                let mut state = self.world.state.lock();
                state.trace.record(&[CRASHED]);
                let (stay, go): (BTreeMap<_, _>, BTreeMap<_, _>) =
                    std::mem::take(&mut state.tasks).into_iter().partition(|(_, entry)| entry.name == kept);
                state.ready.retain(|id| *id == MAIN || stay.contains_key(id));
                state.tasks = stay;
                go
            };
            if dropped.is_empty() {
                return;
            }
            // Timers are removed by the futures that sleep on them.
            drop(dropped);
        }
        panic!("seed {}: tasks keep appearing while all are being dropped", self.world.seed);
    }

    /// Adds a machine to the world, whose tasks end together.
    pub fn add_node(&self) -> SimNode {
        let mut state = self.world.state.lock();
        let number = state.next_node;
        state.next_node += 1;
        SimNode {
            world: self.clone(),
            number,
            wall_clock_offset_ms: Arc::default(),
            clock_drift_ppm: Arc::default(),
        }
    }

    pub(crate) fn spawn_owned(&self, name: &'static str, owner: u64, task: Task) {
        let waker = {
            let mut state = self.world.state.lock();
            let id = state.next_task;
            state.next_task += 1;
            let waker = self.waker(id);
            state.tasks.insert(id, Entry { name, owner, task: Some(task), waker: waker.clone() });
            waker
        };
        waker.wake();
    }

    /// Drops every task of one node.
    pub(crate) fn crash_owned(&self, owner: u64) {
        for _ in 0..100 {
            let dropped = {
                let mut state = self.world.state.lock();
                state.trace.record(&[CRASHED, owner]);
                let (dropped, stay): (BTreeMap<_, _>, BTreeMap<_, _>) =
                    std::mem::take(&mut state.tasks).into_iter().partition(|(_, entry)| entry.owner == owner);
                state.ready.retain(|id| !dropped.contains_key(id));
                state.tasks = stay;
                dropped
            };
            if dropped.is_empty() {
                return;
            }
            drop(dropped);
        }
        panic!("seed {}: tasks of node {owner} keep appearing while they are being dropped", self.world.seed);
    }

    /// Returns the number of unfinished background tasks.
    pub fn task_count(&self) -> usize {
        self.world.state.lock().tasks.len()
    }

    /// Returns a hash of every choice so far, of the clock's jumps, and of all [recorded](SimRuntime::record) words.
    pub fn trace(&self) -> u64 {
        self.world.state.lock().trace.finish()
    }

    /// Adds words to the trace, so that a difference shows there and not only in its consequences.
    pub fn record(&self, words: &[u64]) {
        self.world.state.lock().trace.record(words);
    }

    /// Returns a separate generator, for a part of a test whose choices should not depend on the rest.
    pub fn fork_random(&self) -> Random {
        self.world.state.lock().random.fork()
    }

    /// Moves only the wall clock, as an operator or a time server does.
    pub fn jump_wall_clock(&self, by_ms: i64) {
        self.world.state.lock().wall_clock_offset_ms += by_ms;
    }

    /// Sets the number of polls, over the whole life of the world, above which a run counts as a livelock. Default: 50
    /// million.
    pub fn set_steps_max(&self, steps_max: u64) {
        self.world.state.lock().steps_max = steps_max;
    }

    fn waker(&self, id: u64) -> Arc<TaskWaker> {
        Arc::new(TaskWaker { id, world: Arc::downgrade(&self.world), queued: Mutex::new(false) })
    }

    fn next_ready(&self) -> Option<u64> {
        let mut state = self.world.state.lock();
        if state.ready.is_empty() {
            return None;
        }
        state.steps += 1;
        assert!(
            state.steps <= state.steps_max,
            "seed {}: no end after {} steps, at {:?}: a livelock?",
            self.world.seed,
            state.steps_max,
            state.now
        );
        let choices = state.ready.len() as u64;
        let choice = state.random.below(choices) as usize;
        let id = state.ready.swap_remove(choice);
        state.trace.record(&[POLLED, id]);
        Some(id)
    }

    fn poll_task(&self, id: u64) {
        let (mut task, waker) = {
            let mut state = self.world.state.lock();
            let Some(entry) = state.tasks.get_mut(&id) else { return };
            let Some(task) = entry.task.take() else { return };
            (task, entry.waker.clone())
        };
        *waker.queued.lock() = false;
        let polled = task.as_mut().poll(&mut Context::from_waker(&Waker::from(waker)));
        let mut state = self.world.state.lock();
        // The entry is gone if the task finished or the world crashed while it was polled. In both cases the task is
        // dropped without the lock, because dropping it may acquire the lock.
        match state.tasks.get_mut(&id) {
            Some(entry) if polled.is_pending() => entry.task = Some(task),
            Some(_) => {
                let entry = state.tasks.remove(&id);
                drop(state);
                drop((entry, task));
            }
            None => {
                drop(state);
                drop(task);
            }
        }
    }

    /// Moves the clock to the earliest timer. Returns false if there is none.
    fn jump(&self) -> bool {
        let due = {
            let mut state = self.world.state.lock();
            let Some((time, _)) = state.timers.keys().next().copied() else { return false };
            state.now = state.now.max(time);
            let now = state.now;
            state.trace.record(&[JUMPED, now.as_nanos() as u64]);
            let later = state.timers.split_off(&(now, u64::MAX));
            std::mem::replace(&mut state.timers, later)
        };
        due.into_values().for_each(Waker::wake);
        true
    }

    fn deadlock(&self) -> String {
        let state = self.world.state.lock();
        let mut waiting: BTreeMap<&str, usize> = BTreeMap::new();
        state.tasks.values().for_each(|entry| *waiting.entry(entry.name).or_default() += 1);
        format!(
            "seed {}: deadlock at {:?}: nothing can go on, waiting are {waiting:?}",
            self.world.seed, state.now
        )
    }
}

/// Marks the run as over, even when it panics.
struct Running<'a>(&'a SimRuntime);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut state = self.0.world.state.lock();
        state.running = false;
        state.ready.retain(|id| *id != MAIN);
    }
}

impl Runtime for SimRuntime {
    fn now(&self) -> Duration {
        self.world.state.lock().now
    }

    fn wall_clock_ms(&self) -> u64 {
        let state = self.world.state.lock();
        (WALL_CLOCK_START_MS + state.now.as_millis() as u64).saturating_add_signed(state.wall_clock_offset_ms)
    }

    fn random(&self) -> u64 {
        self.world.state.lock().random.bits()
    }

    fn spawn(&self, name: &'static str, task: Task) {
        self.spawn_owned(name, 0, task);
    }

    fn sleep(&self, duration: Duration) -> Task {
        let wake_at = self.now().saturating_add(duration);
        Box::pin(Sleep { world: Arc::downgrade(&self.world), wake_at, entry: None })
    }

    fn parallelism(&self) -> usize {
        1
    }
}

impl fmt::Debug for SimRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimRuntime").field("seed", &self.world.seed).finish_non_exhaustive()
    }
}

struct Sleep {
    world: Weak<World>,
    wake_at: Duration,
    entry: Option<(Duration, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(world) = self.world.upgrade() else { return Poll::Pending };
        let mut state = world.state.lock();
        if state.now >= self.wake_at {
            return Poll::Ready(());
        }
        let wake_at = self.wake_at;
        let entry = *self.entry.get_or_insert_with(|| {
            state.next_timer += 1;
            (wake_at, state.next_timer)
        });
        let replaced = state.timers.insert(entry, context.waker().clone());
        drop(state);
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let Some((world, entry)) = self.world.upgrade().zip(self.entry) else { return };
        let waker = world.state.lock().timers.remove(&entry);
        drop(waker);
    }
}

#[cfg(test)]
#[path = "runtime_tests.rs"]
mod tests;
