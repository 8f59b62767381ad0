//! The result of an operation in flight.
//!
//! A [`Pending`] and its [`Completion`] share one allocation. Dropping the `Pending` only discards the result: the
//! operation, its buffer and its file belong to the backend until the operation completes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::Runtime;
use crate::wake::wake;

/// A future of an operation's result. Dropping it neither cancels the operation nor frees its buffer.
#[must_use = "an operation whose outcome nobody looks at may have failed"]
pub struct Pending<T>(Inner<T>);

enum Inner<T> {
    Ready(Option<T>),
    Waiting(Arc<Mutex<Delivery<T>>>),
}

enum Delivery<T> {
    Running(Option<Waker>),
    /// The callback that takes the result; it returns the waker to wake.
    PassedOn(PassOn<T>),
    Done(T),
    Taken,
    /// The backend dropped the completion without a result, which is a bug in the backend.
    Abandoned,
}

type PassOn<T> = Box<dyn FnOnce(T) -> Option<Waker> + Send>;

/// The backend's end of a [`Pending`].
pub(crate) struct Completion<T>(Option<Arc<Mutex<Delivery<T>>>>);

impl<T> Pending<T> {
    /// Returns a result that is already known.
    pub fn ready(value: T) -> Self {
        Pending(Inner::Ready(Some(value)))
    }

    /// Spawns `outcome` on a runtime, which runs it to completion even if the `Pending` is dropped. For devices that
    /// are not backed by a kernel. `name` appears in messages.
    pub fn spawn(
        runtime: &dyn Runtime,
        name: &'static str,
        outcome: impl Future<Output = T> + Send + 'static,
    ) -> Pending<T>
    where
        T: Send + 'static,
    {
        let (pending, completion) = Pending::new();
        runtime.spawn(name, Box::pin(async move { completion.finish(outcome.await) }));
        pending
    }

    pub(crate) fn new() -> (Pending<T>, Completion<T>) {
        let state = Arc::new(Mutex::new(Delivery::Running(None)));
        (Pending(Inner::Waiting(state.clone())), Completion(Some(state)))
    }

    /// Passes the result to `pass_on` as soon as it is available, on the thread that completes the operation;
    /// immediately if it is available already. `pass_on` returns the waker to wake. It is dropped without a call if the
    /// backend drops the operation.
    pub(crate) fn pass_on(self, pass_on: impl FnOnce(T) -> Option<Waker> + Send + 'static) {
        let answer = match self.0 {
            Inner::Ready(value) => value,
            Inner::Waiting(state) => {
                let mut state = state.lock();
                match std::mem::replace(&mut *state, Delivery::Taken) {
                    Delivery::Running(_) => {
                        *state = Delivery::PassedOn(Box::new(pass_on));
                        return;
                    }
                    Delivery::Done(value) => Some(value),
                    Delivery::PassedOn(_) | Delivery::Taken | Delivery::Abandoned => None,
                }
            }
        };
        if let Some(waker) = answer.and_then(pass_on) {
            wake(waker);
        }
    }
}

// The value is never pinned: it is moved out once it is available.
impl<T> Unpin for Pending<T> {}

impl<T> Future for Pending<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let state = match &mut self.0 {
            Inner::Ready(value) => return Poll::Ready(value.take().expect("polled after completion")),
            Inner::Waiting(state) => state,
        };
        let mut state = state.lock();
        match &mut *state {
            Delivery::Running(waker) => {
                match waker {
                    Some(waker) => waker.clone_from(context.waker()),
                    None => *waker = Some(context.waker().clone()),
                }
                Poll::Pending
            }
            Delivery::Done(_) => match std::mem::replace(&mut *state, Delivery::Taken) {
                Delivery::Done(value) => Poll::Ready(value),
                _ => unreachable!("the state was just seen to be done"),
            },
            Delivery::Taken | Delivery::PassedOn(_) => panic!("polled after completion"),
            Delivery::Abandoned => panic!("a device dropped an operation without answering it"),
        }
    }
}

impl<T> Completion<T> {
    /// True if the result can still be received.
    pub(crate) fn is_awaited(&self) -> bool {
        self.0.as_ref().is_some_and(|state| {
            Arc::strong_count(state) > 1 || matches!(*state.lock(), Delivery::PassedOn(_))
        })
    }

    /// Stores the result and returns the waker to wake, so that a backend can wake many waiters at once.
    #[must_use = "the waiter sleeps until it is woken"]
    pub(crate) fn complete(mut self, value: T) -> Option<Waker> {
        let state = self.0.take().expect("a completion is used once");
        let mut state = state.lock();
        match std::mem::replace(&mut *state, Delivery::Taken) {
            Delivery::Running(waker) => {
                *state = Delivery::Done(value);
                waker
            }
            Delivery::PassedOn(pass_on) => {
                drop(state);
                pass_on(value)
            }
            _ => unreachable!("an operation completes once"),
        }
    }

    /// Stores the result and wakes the waiter.
    pub(crate) fn finish(self, value: T) {
        if let Some(waker) = self.complete(value) {
            wake(waker);
        }
    }
}

impl<T> Drop for Completion<T> {
    fn drop(&mut self) {
        if let Some(state) = self.0.take() {
            let before = std::mem::replace(&mut *state.lock(), Delivery::Abandoned);
            if let Delivery::Running(Some(waker)) = before {
                wake(waker);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_before_during_and_after_a_wait() {
        assert_eq!(Pending::ready(1).wait(), 1);
        let (pending, completion) = Pending::new();
        completion.finish(2);
        assert_eq!(pending.wait(), 2);
        let (pending, completion) = Pending::new();
        std::thread::scope(|scope| {
            scope.spawn(move || completion.finish(3));
            assert_eq!(pending.wait(), 3);
        });
    }

    #[test]
    fn completion_finishes_after_pending_is_dropped() {
        let (pending, completion) = Pending::new();
        drop(pending);
        let value = Arc::new(1);
        completion.finish(value.clone());
        assert_eq!(Arc::strong_count(&value), 1, "the value is dropped with the completion");
    }

    #[test]
    fn an_answer_that_is_passed_on_arrives_whenever_it_comes() {
        let (sender, arrived) = std::sync::mpsc::channel();
        let to = |sender: &std::sync::mpsc::Sender<u8>| {
            let sender = sender.clone();
            move |value| sender.send(value).map(|()| None).expect("the test listens")
        };
        Pending::ready(1).pass_on(to(&sender));
        let (pending, completion) = Pending::new();
        completion.finish(2);
        pending.pass_on(to(&sender));
        let (pending, completion) = Pending::new();
        pending.pass_on(to(&sender));
        completion.finish(3);
        let (pending, completion) = Pending::new();
        pending.pass_on(to(&sender));
        drop(completion);
        drop(sender);
        assert_eq!(arrived.into_iter().collect::<Vec<u8>>(), [1, 2, 3]);
    }

    #[test]
    #[should_panic(expected = "without answering")]
    fn an_abandoned_operation_is_noticed() {
        let (pending, completion) = Pending::<u8>::new();
        drop(completion);
        pending.wait();
    }
}
