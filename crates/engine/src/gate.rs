//! A door that opens once, for everybody who waits at it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::error::Result;

/// Opens once with a result; whoever waits gets a copy of it.
pub(crate) struct Gate {
    state: Mutex<State>,
}

enum State {
    Shut(Vec<Option<Waker>>),
    Open(Result<()>),
}

impl Gate {
    pub(crate) fn new() -> Arc<Gate> {
        Arc::new(Gate { state: Mutex::new(State::Shut(Vec::new())) })
    }

    /// Opens it; later openings change nothing.
    pub(crate) fn open(&self, result: Result<()>) {
        let mut state = self.state.lock();
        if let State::Shut(wakers) = &mut *state {
            let wakers = std::mem::take(wakers);
            *state = State::Open(result);
            drop(state);
            wakers.into_iter().flatten().for_each(Waker::wake);
        }
    }

    pub(crate) fn wait(self: &Arc<Gate>) -> Wait {
        Wait { gate: self.clone(), place: None }
    }
}

/// Waiting at a gate. Dropping it gives the place up.
pub(crate) struct Wait {
    gate: Arc<Gate>,
    place: Option<usize>,
}

impl Future for Wait {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let wait = &mut *self;
        match &mut *wait.gate.state.lock() {
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
        if let (Some(place), State::Shut(wakers)) = (self.place, &mut *self.gate.state.lock()) {
            wakers[place] = None;
        }
    }
}
