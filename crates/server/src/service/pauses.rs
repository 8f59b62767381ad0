//! CLIENT PAUSE: commands wait until a deadline or CLIENT UNPAUSE.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::{Instant as Timer, timeout_at};

/// Commands that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Paused {
    /// Commands that may write or publish.
    Writes,
    All,
}

/// The paused commands and the end of the pause.
type Pause = Option<(Paused, Instant)>;

/// The current pause, if any.
pub(crate) struct Pauses {
    /// Without a pause, commands read only this flag.
    is_on: AtomicBool,
    pause: watch::Sender<Pause>,
}

/// Maximum length of a pause, beyond which clocks overflow; it means forever.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

impl Default for Pauses {
    fn default() -> Pauses {
        Pauses { is_on: AtomicBool::new(false), pause: watch::Sender::new(None) }
    }
}

impl Pauses {
    /// Begins a pause. Combined with a current pause, the later end and the larger set of commands apply.
    pub(crate) fn begin(&self, paused: Paused, from: Instant, length: Duration) {
        let until = from + length.min(LONGEST);
        self.pause.send_modify(|pause| {
            let known = pause.filter(|(_, end)| from < *end).unwrap_or((paused, until));
            *pause = Some((paused.max(known.0), until.max(known.1)));
            self.is_on.store(true, Ordering::Relaxed);
        });
    }

    pub(crate) fn end(&self) {
        self.pause.send_modify(|pause| {
            *pause = None;
            self.is_on.store(false, Ordering::Relaxed);
        });
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Returns the time until which a command has to wait; `writes`: it may write.
    fn held_until(pause: Pause, writes: bool) -> Option<Instant> {
        pause.filter(|(paused, _)| *paused == Paused::All || writes).map(|(_, until)| until)
    }

    /// Returns true if a command has to wait; `writes`: it may write.
    pub(crate) fn holds(&self, writes: bool) -> bool {
        Pauses::held_until(*self.pause.borrow(), writes).is_some()
    }

    /// Completes when such a command may run.
    pub(crate) async fn over(&self, writes: bool) {
        let mut changes = self.pause.subscribe();
        loop {
            let pause = *changes.borrow_and_update();
            let Some(until) = Pauses::held_until(pause, writes) else { return };
            if timeout_at(Timer::from_std(until), changes.changed()).await.is_err() {
                return self.expire(until);
            }
        }
    }

    /// Ends a pause whose time is over, unless another one replaced it.
    fn expire(&self, until: Instant) {
        self.pause.send_if_modified(|pause| {
            let is_it = pause.is_some_and(|(_, end)| end == until);
            if is_it {
                *pause = None;
                self.is_on.store(false, Ordering::Relaxed);
            }
            is_it
        });
    }
}
