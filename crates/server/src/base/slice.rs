//! Turns of a task: one that works for long without waiting for anything lets others run now and then.

use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

/// How long others may have to wait for a task that only computes.
const TURN: Duration = Duration::from_micros(200);

/// A task's turn.
pub(crate) struct Slice {
    began: Instant,
}

impl Slice {
    pub(crate) fn begin(now: Instant) -> Slice {
        Slice { began: now }
    }

    /// Lets others run if the turn is over.
    pub(crate) async fn pause(&mut self) {
        if self.is_over_at(Instant::now()) {
            tokio::task::yield_now().await;
            self.began = Instant::now();
        }
    }

    /// The same for who knows the time; says what it is now.
    pub(crate) async fn pause_at(&mut self, now: Instant) -> Instant {
        if !self.is_over_at(now) {
            return now;
        }
        tokio::task::yield_now().await;
        self.began = Instant::now();
        self.began
    }

    /// Whether the turn is over.
    pub(crate) fn is_over_at(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.began) >= TURN
    }
}

/// Goes on when all tasks that are ready on this thread have had their turn.
///
/// Who answers then does so when the others do. A client process with many connections finds all their answers when it
/// wakes up; if each came as soon as it was made, it would be woken for each of them. To wake a process is most of what
/// it costs to answer one.
pub(crate) async fn behind_the_others() {
    let mut was_ready = false;
    poll_fn(|context| {
        if was_ready {
            return Poll::Ready(());
        }
        was_ready = true;
        // Who is woken while it runs goes to the end of its thread's queue. `yield_now` would look for new events before,
        // which costs a client that is alone on its thread as much as its command.
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Runs what is long beside the threads that serve clients, as far as they have others.
pub(crate) fn aside<T>(is_short: bool, run: impl FnOnce() -> T) -> T {
    let has_others = Handle::try_current().is_ok_and(|of| of.runtime_flavor() == RuntimeFlavor::MultiThread);
    if is_short || !has_others { run() } else { block_in_place(run) }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[tokio::test]
    async fn all_that_are_ready_work_before_the_first_of_them_answers() {
        let said = Arc::new(Mutex::new(String::new()));
        let clients = ['a', 'b', 'c'].map(|name| {
            let said = said.clone();
            tokio::spawn(async move {
                said.lock().expect("nobody panics").push(name);
                behind_the_others().await;
                said.lock().expect("nobody panics").push(name.to_ascii_uppercase());
            })
        });
        for client in clients {
            client.await.expect("it does not panic");
        }
        assert_eq!(*said.lock().expect("nobody panics"), "abcABC");
    }
}
