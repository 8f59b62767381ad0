//! Deadline for writing records that were acknowledged from memory.

use std::time::Duration;

/// The earliest time by which any record must be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: Option<Duration>,
    /// Shortest delay allowed so far. A later record that allows as much changes nothing, and need not read the clock.
    shortest: Duration,
}

impl Deadline {
    /// No record is waiting yet.
    pub(crate) const NONE: Deadline = Deadline { at: None, shortest: Duration::MAX };

    pub(crate) fn at(&self) -> Option<Duration> {
        self.at
    }

    /// Adds a record that must be written within `may_take` from `now` on. Returns true if the deadline is earlier than before.
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
