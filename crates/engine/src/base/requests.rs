//! Requests that a background task serves: whoever asks waits until the task has looked after they asked.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::base::completion::{Completion, Waiter};
use crate::base::error::Error;
use crate::base::health::{Follower, Health};

/// Those who wait for the reclaimer to have done something.
#[derive(Default)]
pub(crate) struct Requests {
    asked: Mutex<Asked>,
}

/// Whoever asks while the collector already looks at what there is has to wait for its next look: what they made
/// garbage of may have come too late for this one.
#[derive(Default)]
struct Asked {
    /// They asked since the last look began.
    since: Option<Completion>,
    /// They asked before.
    before: Vec<Completion>,
}

impl Requests {
    /// Requests that fail when the store stops.
    pub(crate) fn following(health: &Health) -> Arc<Requests> {
        let requests = Arc::new(Requests::default());
        let follower: Arc<dyn Follower> = requests.clone();
        health.follow(Arc::downgrade(&follower));
        requests
    }

    pub(crate) fn ask(&self) -> Waiter {
        self.asked.lock().since.get_or_insert_with(Completion::new).waiter()
    }

    /// The collector is about to look what there is to collect.
    pub(crate) fn look(&self) {
        let asked = &mut *self.asked.lock();
        asked.before.extend(asked.since.take());
    }

    /// Whether somebody asked before the collector looked.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.asked.lock().before.is_empty()
    }

    /// Nothing is left to do for those who asked before the collector looked.
    pub(crate) fn done(&self) {
        let served = std::mem::take(&mut self.asked.lock().before);
        served.into_iter().for_each(|completion| completion.open(Ok(())));
    }

    /// Nobody will collect any more.
    pub(crate) fn fail(&self, error: &Error) {
        self.look();
        let refused = std::mem::take(&mut self.asked.lock().before);
        refused.into_iter().for_each(|completion| completion.open(Err(error.clone())));
    }
}

impl Follower for Requests {
    fn failed(&self, error: &Error) {
        self.fail(error);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use crate::base::error::Result;

    use super::*;

    fn answer(completion: &Waiter) -> Option<Result<()>> {
        completion.wait().now_or_never()
    }

    #[test]
    fn only_who_asked_before_a_look_is_answered_by_it() {
        let requests = Requests::default();
        requests.look();
        let early = requests.ask();
        assert!(!requests.is_wanted(), "it looked before");
        requests.done();
        assert!(answer(&early).is_none(), "nobody had asked when it looked");
        requests.look();
        assert!(requests.is_wanted());
        let late = requests.ask();
        requests.done();
        assert!(answer(&early).is_some_and(|how| how.is_ok()));
        assert!(answer(&late).is_none(), "it asked after the look, though somebody else had asked before");
        requests.look();
        requests.done();
        assert!(answer(&late).is_some_and(|how| how.is_ok()));
    }

    #[test]
    fn whoever_waits_is_told_that_nobody_collects_any_more() {
        let requests = Requests::default();
        let before = requests.ask();
        requests.look();
        let since = requests.ask();
        requests.fail(&Error::Closed { reason: "a test".into() });
        assert!([before, since].iter().all(|completion| answer(completion).is_some_and(|how| how.is_err())));
    }
}
