//! Keeps a number of operations in flight, as fast as possible or at a fixed rate.

use std::future::Future;
use std::time::{Duration, Instant};

use esker_device::Runtime;
use futures_util::future::{Either, select};
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::failure::Result;

/// Shortest sleep: shorter timers cost more than they gain. Operations that fall due meanwhile are
/// started together.
const LEAST_SLEEP: Duration = Duration::from_micros(100);

/// Runs operations, `depth` at a time, until `next` has no more; `done` gets the result of each. The
/// first failure ends it.
pub(crate) async fn drive<F: Future>(
    depth: usize,
    mut next: impl FnMut() -> Option<F>,
    mut done: impl FnMut(F::Output) -> Result<()>,
) -> Result<()> {
    if depth <= 1 {
        // With one operation in flight, an operation that completes at once must have no overhead.
        while let Some(operation) = next() {
            done(operation.await)?;
        }
        return Ok(());
    }
    let mut in_flight = FuturesUnordered::new();
    loop {
        while in_flight.len() < depth {
            match next() {
                Some(operation) => in_flight.push(operation),
                None => break,
            }
        }
        match in_flight.next().await {
            Some(output) => done(output)?,
            None => return Ok(()),
        }
    }
}

/// The schedule of operations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Operations per second.
    pub(crate) rate: f64,
    /// Number of operations started together.
    pub(crate) run: u64,
    /// Delay of this client after the first one, as a fraction of the time of a run, so that not all
    /// clients write at once.
    pub(crate) shift: f64,
}

impl Pace {
    /// A schedule with single operations, from the start.
    pub(crate) fn steady(rate: f64) -> Pace {
        Pace { rate, run: 1, shift: 0.0 }
    }

    /// Returns the time of `operations` operations.
    fn time(&self, operations: f64) -> Duration {
        Duration::from_secs_f64(operations / self.rate)
    }
}

/// Like [`drive`], on a schedule. `next` gets the time from which the operation's latency counts: now, or
/// the time when it was due if it had to wait because `depth` others were in flight. So a store that
/// stops for a second affects the latencies of all operations that fell due in it, and not just of
/// `depth`.
pub(crate) async fn drive_at<F: Future>(
    pace: Pace,
    depth: usize,
    runtime: &dyn Runtime,
    mut next: impl FnMut(Instant) -> Option<F>,
    mut done: impl FnMut(F::Output) -> Result<()>,
) -> Result<()> {
    let mut in_flight = FuturesUnordered::new();
    let began = Instant::now() + pace.time(pace.shift * pace.run as f64);
    let (mut begun, mut ended) = (0u64, false);
    // The time since which the maximum number of operations has been in flight.
    let mut held_since: Option<Instant> = None;
    loop {
        let now = Instant::now();
        let mut due = began + pace.time(begun as f64);
        while !ended && in_flight.len() < depth.max(1) && due <= now {
            match next(held_since.map_or(now, |since| due.max(since))) {
                Some(operation) => in_flight.push(operation),
                None => ended = true,
            }
            begun += 1;
            due = began + pace.time(begun as f64);
        }
        if in_flight.len() < depth.max(1) {
            held_since = None;
        } else if held_since.is_none() {
            held_since = Some(now);
        }
        if ended || in_flight.len() >= depth.max(1) {
            match in_flight.next().await {
                Some(output) => done(output)?,
                None => return Ok(()),
            }
            continue;
        }
        let all_due = due + pace.time(pace.run.saturating_sub(1) as f64);
        let sleep = runtime.sleep(all_due.saturating_duration_since(now).max(LEAST_SLEEP));
        if in_flight.is_empty() {
            sleep.await;
        } else if let Either::Left((Some(output), _)) = select(in_flight.next(), sleep).await {
            done(output)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use esker_device::{Threads, block_on};

    use super::*;
    use crate::instruments::failure::Failure;

    /// Ready at its third poll.
    async fn slow(running: &Cell<usize>, most: &Cell<usize>) {
        running.set(running.get() + 1);
        most.set(most.get().max(running.get()));
        let mut polls = 0;
        std::future::poll_fn(|context| {
            polls += 1;
            context.waker().wake_by_ref();
            if polls == 3 { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
        running.set(running.get() - 1);
    }

    #[test]
    fn depth_is_kept_and_all_operations_complete() {
        for depth in [1, 7] {
            let (running, most) = (Cell::new(0), Cell::new(0));
            let (mut left, mut finished) = (100, 0);
            let next = || {
                left = i32::checked_sub(left, 1).filter(|left| *left >= 0)?;
                Some(slow(&running, &most))
            };
            let all = drive(depth, next, |()| {
                finished += 1;
                Ok(())
            });
            block_on(all).expect("nothing fails");
            assert_eq!((finished, most.get(), running.get()), (100, depth, 0));
        }
    }

    #[test]
    fn first_failure_ends_run() {
        let mut begun = 0;
        let next = || {
            begun += 1;
            Some(async {})
        };
        let mut done = 0;
        let all = drive(4, next, |()| {
            done += 1;
            if done == 3 { Err(Failure::Failed("third".into())) } else { Ok(()) }
        });
        assert!(matches!(block_on(all), Err(Failure::Failed(text)) if text == "third"));
        assert!(begun <= 7, "{begun}");
    }

    #[test]
    fn rate_limit_is_kept() {
        let runtime = Threads::new(1).expect("a thread");
        let began = Instant::now();
        let mut left = 200;
        let next = |_| {
            left = i32::checked_sub(left, 1).filter(|left| *left >= 0)?;
            Some(async {})
        };
        block_on(drive_at(Pace::steady(1000.0), 4, &*runtime, next, |()| Ok(()))).expect("nothing fails");
        let took = began.elapsed();
        assert!(took > Duration::from_millis(190), "200 operations at 1000 a second took {took:?}");
    }

    #[test]
    fn operations_of_burst_are_consecutive() {
        let runtime = Threads::new(1).expect("a thread");
        let (mut last, mut pauses, mut left) = (Instant::now(), 0, 100);
        let next = |start: Instant| {
            pauses += usize::from(start.duration_since(last) > Duration::from_millis(10));
            last = start;
            left = i32::checked_sub(left, 1).filter(|left| *left >= 0)?;
            Some(async {})
        };
        let pace = Pace { run: 20, ..Pace::steady(1000.0) };
        block_on(drive_at(pace, 1, &*runtime, next, |()| Ok(()))).expect("nothing fails");
        assert!(pauses >= 4, "one before each 20, but there are {pauses}");
    }

    #[test]
    fn client_starts_later_by_its_share_of_burst() {
        let runtime = Threads::new(1).expect("a thread");
        let began = Instant::now();
        let mut first = None;
        let next = |start: Instant| {
            first.is_none().then(|| first = Some(start))?;
            Some(async {})
        };
        let pace = Pace { run: 20, shift: 0.5, ..Pace::steady(1000.0) };
        block_on(drive_at(pace, 1, &*runtime, next, |()| Ok(()))).expect("nothing fails");
        // Half of a run of 20 ms, and then until the whole run is due.
        let waited = first.expect("there is one").duration_since(began);
        assert!(waited >= Duration::from_millis(29), "{waited:?}");
    }

    #[test]
    fn pause_counts_for_all_operations_due_in_it() {
        let runtime = Threads::new(1).expect("a thread");
        let (mut begun, waited) = (0, Cell::new(Duration::ZERO));
        let next = |start: Instant| {
            begun += 1;
            waited.set(waited.get().max(start.elapsed()));
            let (first, runtime) = (begun == 1, runtime.clone());
            (begun <= 100).then_some(async move {
                if first {
                    runtime.sleep(Duration::from_millis(50)).await;
                }
            })
        };
        block_on(drive_at(Pace::steady(1000.0), 1, &*runtime, next, |()| Ok(()))).expect("nothing fails");
        // The second was due after a millisecond and could start after fifty.
        assert!(waited.get() > Duration::from_millis(40), "{:?}", waited.get());
    }
}
