//! The thread that owns the ring. Each turn of its loop:
//!
//! 1. Poll the woken tasks of this thread. Then take requests from the queue, including those of the tasks, up to the
//!    limit of operations in flight, and push them. Long ones wait for their [`Scheduler`].
//! 2. If both are empty, mark the bell as asleep, and check both once more. In this order, because otherwise a request
//!    queued in between would wait for some other completion.
//! 3. Submit everything and wait for one completion: the only system call of the turn.
//! 4. Settle every available completion, pushing the remainder of partial transfers again.
//! 5. Wake the waiters of completed operations.
#![allow(
    unsafe_code,
    reason = "an operation is handed to the kernel, which uses its memory until the completion"
)]

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

use io_uring::cqueue;

use super::AbortOnUnwind;
use super::Shared;
use super::operation::{Length, Operation};
use super::ring::Ring;
use super::scheduler::Scheduler;
use super::table::Table;
use super::transient_errors::is_passing;
use crate::wake::wake;

/// User data of the bell's completions, larger than any table index.
const BELL: u64 = u64::MAX;

pub(super) struct Reactor {
    shared: Arc<Shared>,
    ring: Ring,
    in_flight: Table<Operation>,
    scheduler: Scheduler,
    /// True if the kernel reports every ring of the bell without being asked again.
    bell_reports_every: bool,
    bell_armed: bool,
    reaped: Vec<cqueue::Entry>,
    wakers: Vec<Waker>,
}

impl Reactor {
    pub(super) fn new(shared: Arc<Shared>, ring: Ring, depth: u32) -> Reactor {
        let scheduler = Scheduler::new(shared.shorts.clone());
        Reactor {
            shared,
            ring,
            in_flight: Table::new(depth),
            scheduler,
            bell_reports_every: true,
            bell_armed: false,
            reaped: Vec::new(),
            wakers: Vec::new(),
        }
    }

    pub(super) fn run(mut self) {
        let guard = AbortOnUnwind;
        let failure = loop {
            // 1.
            self.poll_tasks();
            self.take_requests();
            // 2.
            self.shared.bell.fall_asleep();
            if !self.shared.ready.is_empty() {
                // Rung so that the wait ends at once; tasks that wake themselves thus delay no completion.
                self.shared.bell.ring();
            } else if self.in_flight.has_room() {
                if !self.shared.queue.is_empty() {
                    self.shared.bell.wake_up();
                    continue;
                }
                // `stopping` is read before the last check of the queues: it is set after the last request was queued,
                // so no request arrives after the check.
                let stopping = self.shared.stopping.load(Ordering::Acquire);
                if stopping && self.in_flight.is_empty() && self.is_idle() {
                    break None;
                }
            }
            // 3.
            self.shared.file.counters.submit_call();
            let submitted = self.ring.submit_and_wait();
            self.shared.bell.wake_up();
            match submitted {
                Ok(_) => {}
                // Interrupted, or short of memory or of room for completions: reap and retry.
                Err(error) if is_passing(&error) => {}
                Err(error) => break Some(error),
            }
            // 4. and 5.
            self.settle();
            self.wakers.drain(..).for_each(wake);
        };
        if let Some(error) = failure {
            self.fail(&error);
        }
        std::mem::forget(guard);
    }

    /// Polls the tasks that are ready now, but not those that are woken meanwhile.
    fn poll_tasks(&self) {
        for _ in 0..self.shared.ready.len() {
            let Some(runnable) = self.shared.ready.pop() else { break };
            runnable.run();
        }
    }

    fn take_requests(&mut self) {
        if !self.bell_armed {
            self.ring.push_poll(self.shared.bell.event.as_raw_fd(), self.bell_reports_every, BELL);
            self.bell_armed = true;
        }
        while let Some(number) = self.in_flight.reserve() {
            let Some(operation) = self.next_operation() else {
                self.in_flight.release(number);
                break;
            };
            self.push(operation, number);
        }
    }

    /// Returns the next operation that may be submitted. While long operations wait, at least one of them is in flight.
    fn next_operation(&mut self) -> Option<Operation> {
        loop {
            if let Some(long) = self.scheduler.next() {
                return Some(long);
            }
            let operation = self.shared.queue.pop()?;
            if operation.length() != Length::Long {
                return Some(operation);
            }
            self.scheduler.wait(operation);
        }
    }

    fn push(&mut self, mut operation: Operation, number: usize) {
        let length = operation.length();
        let turn_bytes = if length == Length::Long { self.scheduler.most_bytes() } else { usize::MAX };
        let most_bytes = operation.bytes_at_a_time(turn_bytes, self.shared.file.unit_bytes());
        self.scheduler.began(length);
        // SAFETY: the operation goes to the table, and stays there until `settle` (on its completion) or `fail` takes
        // it out; `fail` leaks its memory. Unwinding aborts.
        unsafe { self.ring.push(&mut operation, most_bytes, number as u64) };
        self.in_flight.put(number, operation);
    }

    fn settle(&mut self) {
        let mut reaped = std::mem::take(&mut self.reaped);
        self.ring.reap(&mut reaped);
        for completion in reaped.drain(..) {
            if completion.user_data() == BELL {
                self.bell_rang(&completion);
                continue;
            }
            let number = completion.user_data() as usize;
            let mut operation = self.in_flight.take(number);
            let length = operation.length();
            self.scheduler.ended(length);
            match operation.advance(completion.result(), self.shared.file.block_bytes()) {
                Some(outcome) => {
                    self.in_flight.release(number);
                    self.wakers.extend(operation.complete(outcome, &self.shared.file));
                }
                None if length == Length::Long => {
                    self.in_flight.release(number);
                    self.scheduler.wait(operation);
                }
                None => self.push(operation, number),
            }
        }
        self.reaped = reaped;
    }

    fn bell_rang(&mut self, completion: &cqueue::Entry) {
        // A kernel before 5.13 refuses to report every ring.
        self.bell_reports_every &= completion.result() >= 0;
        if !cqueue::more(completion.flags()) {
            self.shared.bell.silence();
            self.bell_armed = false;
        }
    }

    /// True if no request and no task waits for this thread.
    fn is_idle(&self) -> bool {
        self.shared.queue.is_empty() && self.shared.ready.is_empty()
    }

    /// Handles the failure of the ring: every operation fails, until the device is dropped.
    fn fail(mut self, error: &io::Error) {
        tracing::error!(path = %self.shared.file.path, %error, "io_uring failed; the device takes no more operations");
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        let table = std::mem::replace(&mut self.in_flight, Table::new(0)).give_up().into_iter();
        self.wakers.extend(table.filter_map(|operation| operation.abandon(errno, &self.shared.file)));
        loop {
            let queued = std::iter::from_fn(|| self.shared.queue.pop());
            let all: Vec<Operation> = self.scheduler.give_up().into_iter().chain(queued).collect();
            for operation in all {
                let outcome = Err(io::Error::from_raw_os_error(errno));
                self.wakers.extend(operation.complete(outcome, &self.shared.file));
            }
            self.wakers.drain(..).for_each(wake);
            self.poll_tasks();
            self.shared.bell.fall_asleep();
            // `stopping` is read before the queues are checked: in the opposite order a request queued in between would
            // remain unanswered. Both come after `fall_asleep`, because otherwise the bell rung for the stop could be
            // missed.
            let stopping = self.shared.stopping.load(Ordering::Acquire);
            if self.is_idle() {
                if stopping {
                    return;
                }
                self.shared.bell.wait();
            }
            self.shared.bell.wake_up();
        }
    }
}

#[cfg(test)]
#[path = "reactor_tests.rs"]
mod tests;
