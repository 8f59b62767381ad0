//! A rest of the reclaimer on request: between two relocations no record moves, so that the content of the segments can be
//! listed.

use std::sync::Arc;
use std::time::Duration;

use esker_seeded_bugs::{Bug, planted};
use futures_util::future::{Either, select};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::base::error::{Error, Result};
use crate::base::health::{Follower, Health};
use crate::segments::space::Space;

/// Interval at which a rest checks whether the store is closed.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Maximum duration of a rest, so that a requester that is not polled any more does not stop the reclaimer.
const LONGEST_REST: Duration = Duration::from_secs(10);

/// Segments that the relocator fills, each with the end of its durable part.
pub(crate) type OutputEnds = Vec<(u64, u32)>;

/// Requests for a rest. The requester must ensure that there is only one request at a time.
#[derive(Default)]
pub(crate) struct Pauses {
    asked: Mutex<Asked>,
}

#[derive(Default)]
struct Asked {
    pause: Option<Pause>,
    /// True if no request will be answered any more.
    ended: bool,
}

/// A requested rest.
pub(super) struct Pause {
    outputs: oneshot::Sender<OutputEnds>,
    over: oneshot::Receiver<()>,
}

/// The reclaimer rests until this is dropped.
pub(crate) struct Rest {
    pub(crate) outputs: OutputEnds,
    over: oneshot::Sender<()>,
}

impl Rest {
    /// Returns true if the reclaimer works again: it rested for the maximum duration, or the store is closed.
    pub(crate) fn is_over(&self) -> bool {
        self.over.is_closed()
    }
}

impl Pauses {
    /// Creates the pauses, which end when the store fails.
    pub(crate) fn following(health: &Health) -> Arc<Pauses> {
        let pauses = Arc::new(Pauses::default());
        let follower: Arc<dyn Follower> = pauses.clone();
        health.follow(Arc::downgrade(&follower));
        pauses
    }

    /// Requests a rest. `wake` wakes the reclaimer.
    ///
    /// # Errors
    /// `Closed` if the reclaimer has ended, or ends before it rests.
    pub(crate) async fn ask(&self, wake: impl FnOnce()) -> Result<Rest> {
        let (tell, outputs) = oneshot::channel();
        let (over, is_over) = oneshot::channel();
        let closed = || Error::Closed { reason: "it was closed".into() };
        {
            let mut asked = self.asked.lock();
            if asked.ended {
                return Err(closed());
            }
            asked.pause = Some(Pause { outputs: tell, over: is_over });
        }
        wake();
        let outputs = outputs.await.map_err(|_| closed())?;
        Ok(Rest { outputs, over })
    }

    /// Takes the requested rest, if there is one.
    pub(super) fn take(&self) -> Option<Pause> {
        self.asked.lock().pause.take()
    }

    /// Ends all rests, present and future.
    pub(super) fn end(&self) {
        let mut asked = self.asked.lock();
        asked.ended = true;
        asked.pause = None;
    }
}

impl Pause {
    /// Rests until the requester is done, has given up, or the store is closed, and at most for [`LONGEST_REST`], because a
    /// requester that is never polled again cannot end the rest.
    pub(super) async fn rest(self, outputs: OutputEnds, space: &Space) {
        let Pause { outputs: tell, mut over } = self;
        if tell.send(outputs).is_err() {
            return;
        }
        let until = space.runtime.now() + LONGEST_REST;
        // Ends when the other side is dropped.
        while !space.health.is_closed() {
            if space.runtime.now() >= until && !planted(Bug::RestWithoutEnd) {
                tracing::warn!(
                    "a checkpoint did not begin within {LONGEST_REST:?}; relocation continues without it"
                );
                return;
            }
            match select(over, space.runtime.sleep(LOOK_EVERY)).await {
                Either::Left(_) => return,
                Either::Right((_, goes_on)) => over = goes_on,
            }
        }
    }
}

impl Follower for Pauses {
    fn failed(&self, _: &Error) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use esker_device::Runtime;
    use futures_util::future::join;

    use super::*;
    use crate::testing::Plan;

    #[test]
    fn rest_ends_although_nobody_ends_it() {
        let bench = Plan::new(1).build();
        let (pauses, began) = (Pauses::default(), bench.world.now());
        let asking = async {
            let rest = pauses.ask(|| {}).await.expect("it is granted");
            assert!(!rest.is_over());
            bench.sleep(Duration::from_secs(3600)).await;
            assert!(rest.is_over(), "the requester must see that relocation continued");
        };
        let resting = async {
            while pauses.asked.lock().pause.is_none() {
                bench.sleep(Duration::from_millis(1)).await;
            }
            pauses.take().expect("it was asked for").rest(OutputEnds::new(), &bench.space).await;
            assert!(bench.world.now() - began < 2 * LONGEST_REST);
        };
        bench.run(join(asking, resting));
    }
}
