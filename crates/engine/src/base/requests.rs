//! Requests that a background task serves: each waits for a pass of the task that starts after the request was made.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::base::completion::{Completion, Waiter};
use crate::base::error::Error;
use crate::base::health::{Follower, Health};

/// Callers that wait for a background task.
#[derive(Default)]
pub(crate) struct Requests {
    asked: Mutex<Asked>,
}

/// Requests in two groups. A request that is made while the collector already looks for garbage must wait for its next
/// pass, because this pass may have missed the caller's garbage.
#[derive(Default)]
struct Asked {
    /// Requests made since the current pass began.
    since: Option<Completion>,
    /// Requests made before the current pass began.
    before: Vec<Completion>,
}

impl Requests {
    /// Creates a queue whose requests fail when the store stops.
    pub(crate) fn following(health: &Health) -> Arc<Requests> {
        let requests = Arc::new(Requests::default());
        let follower: Arc<dyn Follower> = requests.clone();
        health.follow(Arc::downgrade(&follower));
        requests
    }

    pub(crate) fn ask(&self) -> Waiter {
        self.asked.lock().since.get_or_insert_with(Completion::new).waiter()
    }

    /// Notes that the collector begins a pass.
    pub(crate) fn look(&self) {
        let asked = &mut *self.asked.lock();
        asked.before.extend(asked.since.take());
    }

    /// Returns true if a request was made before the current pass began.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.asked.lock().before.is_empty()
    }

    /// Completes the requests made before the current pass began: it found nothing left to do.
    pub(crate) fn done(&self) {
        let served = std::mem::take(&mut self.asked.lock().before);
        served.into_iter().for_each(|completion| completion.open(Ok(())));
    }

    /// Fails all requests, because the collector has stopped.
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
    fn requests_fail_answers_waiters_before_and_after_look() {
        let requests = Requests::default();
        let before = requests.ask();
        requests.look();
        let since = requests.ask();
        requests.fail(&Error::Closed { reason: "a test".into() });
        assert!([before, since].iter().all(|completion| answer(completion).is_some_and(|how| how.is_err())));
    }
}
