//! Per-thread rings: reads that a thread waits for itself are not handed to another thread.
//!
//! ```text
//! block_on: poll the future ──► its reads become SQEs of this thread's ring
//!    ▲                             │ nothing left to poll
//!    └── completions, wakers ◄──── submit and wait, in one system call
//! ```
//!
//! A hand-over to the reactor and back costs a wake-up on each side and leaves the device idle meanwhile (decision
//! 0022). So a thread in [`block_on`] has a ring of its own, created after some reads. Short reads that the thread
//! submits go there; all other operations, and reads that find the ring full, go to the reactor. Wakers on other
//! threads ring the thread's [`Bell`], which the ring polls.
//!
//! Invariants:
//! - An operation in the kernel stays in the ring's table until its completion was seen. The table belongs to the
//!   thread, and is emptied before the thread ends or leaves [`block_on`], because otherwise a waiter would wait for a
//!   completion that no thread reaps.
//! - While the ring is borrowed, no foreign code runs. So a nested [`block_on`] finds it free, and reaps for both.
#![expect(unsafe_code, reason = "the kernel is handed the address of every transfer")]

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use io_uring::{EnterFlags, IoUring, cqueue, opcode, squeue, types};

use super::operation::{Length, Operation};
use super::ring::build;
use super::table::Table;
use super::transient_errors::is_passing;
use super::{AbortOnUnwind, Bell, Shared};
use crate::wake::wake;

/// Maximum operations in flight on a thread's ring. Further ones go to the reactor's ring.
const DEPTH: u32 = 128;

/// Number of reads after which a thread's ring is created. Creating it takes as long as a few reads.
const READS_BEFORE: u32 = 16;

/// User data of the bell's completions, larger than any table index.
const BELL: u64 = u64::MAX;

thread_local! {
    static OWN: Own = Own {
        is_waiting: Cell::new(false),
        depth: Cell::new(0),
        reads: Cell::new(0),
        parker: Arc::new(Parker::new()),
        ring: RefCell::new(None),
    };
}

/// Per-thread state.
struct Own {
    /// True inside [`block_on`], except in code that waits in another way: the thread reaps the completions of its
    /// ring.
    is_waiting: Cell<bool>,
    /// Nesting depth of [`block_on`].
    depth: Cell<u32>,
    /// Reads submitted by the thread before it has a ring; the maximum value if no ring could be created.
    reads: Cell<u32>,
    parker: Arc<Parker>,
    ring: RefCell<Option<OwnRing>>,
}

/// Runs a future on the calling thread, which sleeps while the future is pending. Nested calls use the same ring.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    OWN.with(|own| {
        let was_waiting = own.is_waiting.replace(true);
        own.depth.set(own.depth.get() + 1);
        let has_taken_notice = Cell::new(false);
        let _leaving = OnDrop(|| {
            own.is_waiting.set(was_waiting);
            if !was_waiting {
                own.drain();
            }
            own.depth.set(own.depth.get() - 1);
            // All calls on this thread share one parker, so the notification that this call took may have been meant
            // for an outer one.
            if own.depth.get() > 0 && has_taken_notice.get() {
                own.parker.notified.store(true, Ordering::Release);
            }
        });
        let take_notice = || {
            let is_notified = own.parker.take_notice();
            has_taken_notice.set(has_taken_notice.get() | is_notified);
            is_notified
        };
        let waker = Waker::from(own.parker.clone());
        let mut context = Context::from_waker(&waker);
        let mut was_woken = false;
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
            if take_notice() {
                // The future was woken during its poll, possibly by itself, and may repeat that without any completion.
                // The first time costs no turn of the ring: sets of futures wake themselves after they have polled each
                // member, and then wait.
                if was_woken {
                    own.turn(Turn::Look);
                }
                was_woken = true;
                continue;
            }
            was_woken = false;
            while !take_notice() {
                own.wait();
            }
        }
    })
}

/// Runs code that may wait by other means. Its operations bypass this thread's ring, which is not reaped meanwhile.
pub(crate) fn outside_block_on<R>(run: impl FnOnce() -> R) -> R {
    let was_waiting = OWN.try_with(|own| own.is_waiting.replace(false)).unwrap_or(false);
    let _back = OnDrop(|| {
        OWN.try_with(|own| own.is_waiting.set(was_waiting)).ok();
    });
    run()
}

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Submits an operation to this thread's ring, or returns it.
pub(super) fn submit(shared: &Arc<Shared>, operation: Operation) -> Result<(), Operation> {
    let is_waiting = OWN.try_with(|own| own.is_waiting.get()).unwrap_or(false);
    if !is_waiting || operation.length() != Length::Short {
        return Err(operation);
    }
    OWN.with(|own| own.submit(shared, operation))
}

impl Own {
    fn submit(&self, shared: &Arc<Shared>, operation: Operation) -> Result<(), Operation> {
        let mut ring = self.ring.borrow_mut();
        let Some(ring) = &mut *ring else {
            let reads = self.reads.get();
            self.reads.set(reads.saturating_add(1));
            if reads == READS_BEFORE {
                *ring = OwnRing::new(&self.parker)
                    .inspect_err(|error| tracing::warn!(%error, "a thread has no ring of its own"))
                    .ok();
            }
            return Err(operation);
        };
        ring.begin(shared, operation)
    }

    /// Sleeps until an operation completes or the thread is woken.
    fn wait(&self) {
        if !self.turn(Turn::Sleep) {
            std::thread::park();
        }
    }

    /// Waits for everything in flight: the future that submitted it is gone, but another task may wait for it.
    fn drain(&self) {
        while self.turn(Turn::Wait) {}
    }

    /// Runs one turn of the ring. Returns false if nothing is in flight on it.
    fn turn(&self, turn: Turn) -> bool {
        let mut ring = self.ring.borrow_mut();
        let Some(own) = ring.as_mut().filter(|ring| !ring.in_flight.is_empty()) else { return false };
        own.turn(turn);
        let mut wakers = std::mem::take(&mut own.wakers);
        drop(ring);
        wakers.drain(..).for_each(wake);
        if let Some(ring) = &mut *self.ring.borrow_mut() {
            ring.wakers = wakers;
        }
        true
    }
}

/// The condition that a turn waits for.
#[derive(Clone, Copy)]
enum Turn {
    /// A completion, or a wake-up of the thread.
    Sleep,
    /// A completion.
    Wait,
    /// No wait.
    Look,
}

/// Wakes a thread, whether it sleeps in the ring or is parked.
struct Parker {
    notified: AtomicBool,
    thread: Thread,
    bell: OnceLock<Bell>,
}

impl Parker {
    fn new() -> Parker {
        Parker { notified: AtomicBool::new(false), thread: std::thread::current(), bell: OnceLock::new() }
    }

    /// Returns true if the thread was woken since the last call.
    ///
    /// Releases, as the swap in `wake_by_ref` acquires: a waker that is not noticed here sees a bell that was made before this
    /// call. Otherwise it could only unpark a thread that is about to sleep in its ring.
    fn take_notice(&self) -> bool {
        self.notified.swap(false, Ordering::AcqRel)
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.notified.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(bell) = self.bell.get() {
            bell.ring();
        }
        self.thread.unpark();
    }
}

struct OwnRing {
    ring: IoUring,
    in_flight: Table<(Operation, Arc<Shared>)>,
    parker: Arc<Parker>,
    bell_reports_every: bool,
    bell_armed: bool,
    reaped: Vec<cqueue::Entry>,
    wakers: Vec<Waker>,
}

impl OwnRing {
    fn new(parker: &Arc<Parker>) -> io::Result<OwnRing> {
        // Room for every operation and the bell, so that a push never fails.
        let ring = build((DEPTH + 1).next_power_of_two())?;
        if !ring.params().is_feature_nodrop() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        if parker.bell.get().is_none() {
            parker.bell.set(Bell::new()?).ok();
        }
        Ok(OwnRing {
            ring,
            in_flight: Table::new(DEPTH),
            parker: parker.clone(),
            bell_reports_every: true,
            bell_armed: false,
            reaped: Vec::new(),
            wakers: Vec::new(),
        })
    }

    fn begin(&mut self, shared: &Arc<Shared>, operation: Operation) -> Result<(), Operation> {
        let Some(number) = self.in_flight.reserve() else { return Err(operation) };
        shared.shorts.began();
        self.push(operation, shared.clone(), number);
        // A thread with several reads in flight will process results next, and the device would be idle meanwhile. With
        // a single read the thread is about to wait, which submits too.
        if self.in_flight.len() > 1 {
            shared.file.counters.submit_call();
            // The next turn meets the same error and handles it.
            self.ring.submit().ok();
        }
        Ok(())
    }

    fn push(&mut self, mut operation: Operation, shared: Arc<Shared>, number: usize) {
        let entry = operation.read_entry(shared.file.as_raw_fd()).expect("only reads go to a thread's ring");
        self.in_flight.put(number, (operation, shared));
        // SAFETY: the operation owns its buffer, and the file is open while `shared` exists. Both stay in the table
        // until `settle` (on their completion) or `abandon` takes them out. `abandon` leaks the buffer; the kernel
        // keeps the file of submitted operations open, and operations that were not submitted never will be: an empty
        // table takes no turn.
        unsafe { self.push_entry(&entry.user_data(number as u64)) };
    }

    /// # Safety
    ///
    /// The memory that the entry points to is valid until its completion has been seen.
    unsafe fn push_entry(&mut self, entry: &squeue::Entry) {
        // SAFETY: by the contract.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.expect("the submission queue has room for every operation in flight and the bell");
    }

    /// Submits all queued entries, waits as `turn` requires, and settles all available completions.
    fn turn(&mut self, turn: Turn) {
        let guard = AbortOnUnwind;
        let submitted = match turn {
            Turn::Sleep => self.sleep(),
            Turn::Wait => self.ring.submit_and_wait(1),
            Turn::Look => self.look(),
        };
        match submitted {
            Ok(_) => {}
            Err(error) if is_passing(&error) => {}
            Err(error) => {
                self.abandon(&error);
                std::mem::forget(guard);
                return;
            }
        }
        self.settle();
        std::mem::forget(guard);
    }

    /// Reaps without waiting. `submit_and_wait(0)` is not enough: a ring with deferred task work completes nothing
    /// unless it is asked for events.
    fn look(&mut self) -> io::Result<usize> {
        let entries = self.ring.submission().len() as u32;
        let flags = EnterFlags::GETEVENTS.bits();
        // SAFETY: `entries` entries are queued, which is the contract of `push_entry`, and there is no argument.
        unsafe { self.ring.submitter().enter::<libc::sigset_t>(entries, 0, flags, None) }
    }

    fn sleep(&mut self) -> io::Result<usize> {
        if !self.bell_armed {
            let event = self.bell().event.as_raw_fd();
            let poll = opcode::PollAdd::new(types::Fd(event), libc::POLLIN as u32);
            // SAFETY: a poll refers to no memory.
            unsafe { self.push_entry(&poll.multi(self.bell_reports_every).build().user_data(BELL)) };
            self.bell_armed = true;
        }
        self.bell().fall_asleep();
        let wait = usize::from(!self.parker.notified.load(Ordering::Acquire));
        let submitted = self.ring.submit_and_wait(wait);
        self.bell().wake_up();
        submitted
    }

    fn bell(&self) -> &Bell {
        self.parker.bell.get().expect("it was made with the ring")
    }

    fn settle(&mut self) {
        let mut reaped = std::mem::take(&mut self.reaped);
        reaped.extend(self.ring.completion());
        let mut last: Option<Arc<Shared>> = None;
        for completion in reaped.drain(..) {
            if completion.user_data() == BELL {
                self.bell_rang(&completion);
                continue;
            }
            let number = completion.user_data() as usize;
            let (mut operation, shared) = self.in_flight.take(number);
            match operation.advance(completion.result(), shared.file.block_bytes()) {
                Some(outcome) => {
                    self.in_flight.release(number);
                    shared.shorts.ended();
                    self.wakers.extend(operation.complete(outcome, &shared.file));
                    last = Some(shared);
                }
                None => self.push(operation, shared, number),
            }
        }
        if let Some(shared) = last {
            shared.file.counters.submit_call();
        }
        self.reaped = reaped;
    }

    fn bell_rang(&mut self, completion: &cqueue::Entry) {
        // A kernel before 5.13 refuses to report every ring.
        self.bell_reports_every &= completion.result() >= 0;
        if !cqueue::more(completion.flags()) {
            self.bell().silence();
            self.bell_armed = false;
        }
    }

    /// Handles the failure of the ring: all operations on it fail, and it accepts no further ones.
    fn abandon(&mut self, error: &io::Error) {
        tracing::error!(%error, "io_uring failed; reads of this thread fail");
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        for (operation, shared) in std::mem::replace(&mut self.in_flight, Table::new(0)).give_up() {
            shared.shorts.ended();
            self.wakers.extend(operation.abandon(errno, &shared.file));
        }
    }
}

impl Drop for OwnRing {
    fn drop(&mut self) {
        while !self.in_flight.is_empty() {
            self.turn(Turn::Wait);
        }
        self.wakers.drain(..).for_each(wake);
    }
}

#[cfg(test)]
#[path = "thread_ring_tests.rs"]
mod tests;
