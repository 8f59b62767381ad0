//! A rest that somebody asks of the reclaimer: between two relocations nothing moves, so that what the segments hold can be
//! listed.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::base::error::{Error, Result};
use crate::base::health::{Follower, Health};
use crate::segments::space::Space;

/// How often a rest looks whether the store is closed.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Segments that the relocator fills, with where the durable part of each ends.
pub(crate) type OutputEnds = Vec<(u64, u32)>;

/// Where a rest is asked for. Whoever asks sees to it that nobody else does at the same time.
#[derive(Default)]
pub(crate) struct Pauses {
    asked: Mutex<Asked>,
}

#[derive(Default)]
struct Asked {
    pause: Option<Pause>,
    /// Nobody answers any more.
    ended: bool,
}

/// A rest that was asked for.
pub(super) struct Pause {
    outputs: oneshot::Sender<OutputEnds>,
    over: oneshot::Receiver<()>,
}

/// The reclaimer rests until this is dropped.
pub(crate) struct Rest {
    pub(crate) outputs: OutputEnds,
    _over: oneshot::Sender<()>,
}

impl Pauses {
    /// Pauses that end when the store fails.
    pub(crate) fn following(health: &Health) -> Arc<Pauses> {
        let pauses = Arc::new(Pauses::default());
        let follower: Arc<dyn Follower> = pauses.clone();
        health.follow(Arc::downgrade(&follower));
        pauses
    }

    /// Asks for a rest. `wake` wakes the reclaimer.
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
        Ok(Rest { outputs, _over: over })
    }

    /// The rest that was asked for, if one was.
    pub(super) fn take(&self) -> Option<Pause> {
        self.asked.lock().pause.take()
    }

    /// Nobody rests any more.
    pub(super) fn end(&self) {
        let mut asked = self.asked.lock();
        asked.ended = true;
        asked.pause = None;
    }
}

impl Pause {
    /// Rests until whoever asked for it is done, has given up, or the store is closed: nobody may be left to poll the other side.
    pub(super) async fn rest(self, outputs: OutputEnds, space: &Space) {
        let Pause { outputs: tell, mut over } = self;
        if tell.send(outputs).is_err() {
            return;
        }
        // It ends when the other side is dropped.
        while !space.health.is_closed() {
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
