//! When what was acknowledged from memory is to be written.

use std::time::Duration;

/// The earliest time by which somebody wants something written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: Option<Duration>,
    /// The shortest time that somebody gave it. Whoever comes later and gives it as much changes nothing, and need not look at
    /// the clock.
    shortest: Duration,
}

impl Deadline {
    /// Nobody wants anything yet.
    pub(crate) const NONE: Deadline = Deadline { at: None, shortest: Duration::MAX };

    pub(crate) fn at(&self) -> Option<Duration> {
        self.at
    }

    /// Somebody more gives it so long from `now` on. Returns whether it is earlier than before.
    pub(crate) fn allow(&mut self, may_take: Duration, now: impl FnOnce() -> Duration) -> bool {
        if may_take >= self.shortest {
            return false;
        }
        self.shortest = may_take;
        let at = now().saturating_add(may_take);
        let is_earlier = self.at.is_none_or(|before| at < before);
        if is_earlier {
            self.at = Some(at);
        }
        is_earlier
    }
}
