//! Compacting when asked to. Nobody has to: garbage is collected by itself, as far as the reserve asks for it.
//!
//! A compaction has an end, however much is overwritten meanwhile: it is about the segments and the tombstones that there
//! were when it began. Copies go to segments that come later, so each is relocated at most once, but for outputs that were
//! open then, which are relocated once more. Whoever asks meanwhile waits for the next one, since what they made garbage of
//! may have come too late for this one.

use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::gate::{Gate, Waiter};
use crate::reclaim::Reclaimer;
use crate::relocate::LEAST_YIELD;

/// What a compaction is about.
#[derive(Clone, Copy)]
pub(crate) struct Compaction {
    /// Segments up to this number.
    segments_through: u64,
    /// Tombstones up to this sequence number.
    sequence_through: u64,
}

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
    since: Option<Gate>,
    /// They asked before.
    before: Vec<Gate>,
}

impl Requests {
    pub(crate) fn ask(&self) -> Waiter {
        self.asked.lock().since.get_or_insert_with(Gate::new).waiter()
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
        served.into_iter().for_each(|gate| gate.open(Ok(())));
    }

    /// Nobody will collect any more.
    pub(crate) fn fail(&self, error: &Error) {
        self.look();
        let refused = std::mem::take(&mut self.asked.lock().before);
        refused.into_iter().for_each(|gate| gate.open(Err(error.clone())));
    }
}

impl Engine {
    /// Has everything relocated that gives something back now.
    pub(crate) async fn compact(&self) -> Result<()> {
        self.check_writable()?;
        self.flush().await?;
        let gate = self.compaction.ask();
        if let Err(error) = self.check_writable() {
            // Whoever would open it may have looked before it was there.
            self.compaction.fail(&error);
        }
        self.reclaim.notify_one();
        gate.wait().await
    }

    /// The reclaimer ends.
    pub(crate) fn compaction_ended(&self) {
        let error = Error::Closed { reason: "it was closed while it was compacted".into() };
        self.compaction.fail(&error);
        self.relief.requests.fail(&error);
    }
}

impl Reclaimer<'_> {
    /// Looks whether a compaction is asked for, if none is under way.
    pub(crate) fn begin_compaction(&mut self) {
        if self.compaction.is_some() {
            return;
        }
        let engine = self.engine;
        engine.compaction.look();
        // Must be read after the look, or else it could miss what is garbage for whoever asked.
        self.compaction = engine.compaction.is_wanted().then(|| Compaction {
            segments_through: engine.segments.load(Ordering::Acquire),
            sequence_through: engine.lane.published_through(engine),
        });
    }

    /// Goes on with the compaction that is under way; false if there is none, or this was its end.
    pub(crate) async fn compact(&mut self) -> Result<bool> {
        let Some(Compaction { segments_through, sequence_through }) = self.compaction else {
            return Ok(false);
        };
        if let Some(choice) = self.choose_among(LEAST_YIELD, segments_through)
            && self.carry_out(choice, false).await?
        {
            return Ok(true);
        }
        if self.renew(self.tombstones_left(), sequence_through).await? {
            return Ok(true);
        }
        self.compaction = None;
        self.engine.compaction.done();
        Ok(false)
    }

    /// How many bytes of tombstones a compaction leaves.
    fn tombstones_left(&self) -> u64 {
        let noticeable = self.engine.live_bytes() as f64 * LEAST_YIELD;
        self.tombstones_tolerated(true).min(noticeable as u64)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn answer(gate: &Waiter) -> Option<Result<()>> {
        gate.wait().now_or_never()
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
        assert!([before, since].iter().all(|gate| answer(gate).is_some_and(|how| how.is_err())));
    }
}
