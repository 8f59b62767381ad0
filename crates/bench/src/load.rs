//! Keeping a number of operations in flight.

use std::future::Future;

use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::failure::Result;

/// Runs operations, `depth` at a time, until `next` has no more; `done` gets what each returned. The first failure ends
/// it.
pub(crate) async fn drive<F: Future>(
    depth: usize,
    mut next: impl FnMut() -> Option<F>,
    mut done: impl FnMut(F::Output) -> Result<()>,
) -> Result<()> {
    let mut in_flight = FuturesUnordered::new();
    loop {
        while in_flight.len() < depth.max(1) {
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use esker_device::block_on;

    use super::*;
    use crate::failure::Failure;

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
    fn so_many_are_in_flight_and_all_are_done() {
        let (running, most) = (Cell::new(0), Cell::new(0));
        let (mut left, mut finished) = (100, 0);
        let next = || {
            left = i32::checked_sub(left, 1).filter(|left| *left >= 0)?;
            Some(slow(&running, &most))
        };
        let all = drive(7, next, |()| {
            finished += 1;
            Ok(())
        });
        block_on(all).expect("nothing fails");
        assert_eq!((finished, most.get(), running.get()), (100, 7, 0));
    }

    #[test]
    fn the_first_failure_ends_it() {
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
}
