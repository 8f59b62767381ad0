//! A completion event: it completes once, for all waiters.
//!
//! The `Completion` belongs to the component that completes it. If it is dropped before that, by a panic or by mistake,
//! it completes with an error, so that no waiter waits forever.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use esker_device::wake;
use parking_lot::Mutex;

use crate::base::error::{Error, Result};

/// Completes once with a result; each waiter gets a copy of it.
pub(crate) struct Completion {
    waiter: Waiter,
}

/// A reference to a completion event, for waiting.
#[derive(Clone)]
pub(crate) struct Waiter {
    state: Arc<Mutex<State>>,
}

enum State {
    Shut(Vec<Option<Waker>>),
    Open(Result<()>),
}

impl Completion {
    pub(crate) fn new() -> Completion {
        Completion { waiter: Waiter { state: Arc::new(Mutex::new(State::Shut(Vec::new()))) } }
    }

    pub(crate) fn waiter(&self) -> Waiter {
        self.waiter.clone()
    }

    pub(crate) fn open(self, result: Result<()>) {
        self.waiter.open(result);
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        self.waiter.open_if_shut(|| Err(Error::Closed { reason: "what was waited for ended early".into() }));
    }
}

impl Waiter {
    /// Returns a waiter whose event has already completed.
    pub(crate) fn at_open(result: Result<()>) -> Waiter {
        Waiter { state: Arc::new(Mutex::new(State::Open(result))) }
    }

    pub(crate) fn wait(&self) -> Wait {
        Wait { waiter: self.clone(), place: None }
    }

    /// Returns true if both refer to the same event.
    pub(crate) fn is_at(&self, other: &Waiter) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }

    /// Returns true if the event has completed.
    pub(crate) fn is_open(&self) -> bool {
        matches!(*self.state.lock(), State::Open(_))
    }

    fn open(&self, result: Result<()>) {
        self.open_if_shut(|| result);
    }

    fn open_if_shut(&self, result: impl FnOnce() -> Result<()>) {
        let mut state = self.state.lock();
        if let State::Shut(wakers) = &mut *state {
            let wakers = std::mem::take(wakers);
            *state = State::Open(result());
            drop(state);
            wakers.into_iter().flatten().for_each(wake);
        }
    }
}

/// Future of a completion event. Dropping it removes its waker.
pub(crate) struct Wait {
    waiter: Waiter,
    place: Option<usize>,
}

impl Future for Wait {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let wait = &mut *self;
        match &mut *wait.waiter.state.lock() {
            State::Open(result) => Poll::Ready(result.clone()),
            State::Shut(wakers) => {
                let place = *wait.place.get_or_insert_with(|| {
                    wakers.push(None);
                    wakers.len() - 1
                });
                match &mut wakers[place] {
                    Some(waker) => waker.clone_from(context.waker()),
                    empty => *empty = Some(context.waker().clone()),
                }
                Poll::Pending
            }
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let (Some(place), State::Shut(wakers)) = (self.place, &mut *self.waiter.state.lock()) {
            wakers[place] = None;
        }
    }
}

/// A repeatable event: each announcement completes the current completion event and installs the next one.
pub(crate) struct Announcement {
    next: Mutex<Completion>,
}

impl Announcement {
    pub(crate) fn new() -> Announcement {
        Announcement { next: Mutex::new(Completion::new()) }
    }

    pub(crate) fn announce(&self) {
        let completion = std::mem::replace(&mut *self.next.lock(), Completion::new());
        completion.open(Ok(()));
    }

    /// Evaluates a condition, and returns the event to wait for if the condition is false. The event is taken before
    /// the condition is evaluated, because otherwise an announcement in between would be missed, and the waiter could
    /// wait forever.
    pub(crate) fn ask<T>(&self, question: impl FnOnce() -> T) -> (T, Waiter) {
        let next = self.next.lock().waiter();
        (question(), next)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a panic ends a thread")]
    fn a_completion_event_that_is_dropped_opens_with_an_error() {
        let completion = Completion::new();
        let (waiter, wait) = (completion.waiter(), completion.waiter().wait());
        assert!(waiter.wait().now_or_never().is_none());
        drop(completion);
        assert!(wait.now_or_never().is_some_and(|how| how.is_err()));
        assert!(waiter.wait().now_or_never().is_some_and(|how| how.is_err()));
        let completion = Completion::new();
        let waiter = completion.waiter();
        let panicked = std::thread::spawn(move || {
            let _dropped = completion;
            panic!("a panic that a test asked for");
        });
        assert!(panicked.join().is_err());
        assert!(waiter.wait().now_or_never().is_some_and(|how| how.is_err()));
    }

    #[test]
    fn a_waker_that_panics_keeps_nobody_waiting() {
        struct Woken(std::sync::atomic::AtomicUsize, bool);
        impl std::task::Wake for Woken {
            fn wake(self: Arc<Self>) {
                assert!(!self.1, "a panic that a test asked for");
                self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        }
        let completion = Completion::new();
        let wakers = [true, false].map(|panics| Arc::new(Woken(0.into(), panics)));
        let mut waits = [0, 1].map(|_| completion.waiter().wait());
        for (wait, waker) in waits.iter_mut().zip(&wakers) {
            let waker = Waker::from(waker.clone());
            assert!(Pin::new(wait).poll(&mut Context::from_waker(&waker)).is_pending());
        }
        completion.open(Ok(()));
        assert_eq!(wakers[1].0.load(std::sync::atomic::Ordering::Relaxed), 1);
    }

    #[test]
    fn an_open_completion_event_stays_as_it_was_opened() {
        let completion = Completion::new();
        let waiter = completion.waiter();
        completion.open(Ok(()));
        assert!(waiter.wait().now_or_never().is_some_and(|how| how.is_ok()));
    }

    /// The last announcement comes right after the condition was evaluated.
    #[test]
    fn announcement_during_condition_check_is_not_missed() {
        let announcement = Announcement::new();
        let (open, next) = announcement.ask(|| {
            let open = true;
            announcement.announce();
            open
        });
        assert!(open);
        assert!(next.wait().now_or_never().is_some(), "it waits for another announcement");
    }
}
