//! Compaction on request. It is never required: garbage is collected automatically when free slots run low or
//! garbage exceeds its bound.
//!
//! A compaction ends however much is overwritten meanwhile: it covers the segments and tombstones that existed when it began.
//! Copies go to later segments, so each segment is relocated at most once, except outputs that were open at the start, which
//! are relocated once more. A request during a compaction waits for the next one, because garbage made by the requester may
//! have come too late for the current one.
//!
//! Because it ends, it also collects while automatic collection is given up for lack of gain.

use esker_seeded_bugs::{Bug, planted};

use crate::background::reclaim::SURE_YIELD;
use crate::background::reclaimer::{Compaction, Reclaimer};
use crate::base::error::Result;
use crate::segments::sets::LEAST_YIELD;

impl Reclaimer<'_> {
    /// Starts a compaction if one is requested and none is in progress.
    pub(crate) fn begin_compaction(&mut self) {
        if self.compaction.is_some() {
            return;
        }
        self.compactions.look();
        // Read after the requests are taken, because otherwise it could miss garbage that a requester had made.
        self.compaction = self.compactions.is_wanted().then(|| Compaction {
            segments_through: self.space.newest_segment(),
            sequence_through: self.writer.lane.published_through(),
        });
    }

    /// Continues the compaction in progress. Returns false if there is none, or if it has ended.
    pub(crate) async fn compact(&mut self) -> Result<bool> {
        let Some(Compaction { segments_through, sequence_through }) = self.compaction else {
            return Ok(false);
        };
        // Skips segments that a backup has still to read, which may take hours.
        self.leaves_kept = true;
        let gives_up = self.is_given_up() && planted(Bug::CompactionGivesUp);
        let least_yield = if gives_up { SURE_YIELD } else { LEAST_YIELD };
        let choice = self.choose_among(least_yield, segments_through);
        self.leaves_kept = false;
        if let Some(choice) = choice
            && self.carry_out(choice).await?
        {
            return Ok(true);
        }
        if self.renew(self.tombstones_left(), sequence_through).await? {
            return Ok(true);
        }
        self.compaction = None;
        self.compactions.done();
        Ok(false)
    }

    /// Returns the bytes of tombstones that a compaction leaves.
    fn tombstones_left(&self) -> u64 {
        let noticeable = self.space.live_bytes() as f64 * LEAST_YIELD;
        self.tombstones_tolerated(true).min(noticeable as u64)
    }
}

#[cfg(test)]
mod tests {
    use crate::background::reclaimer::Reclaimer;
    use crate::base::durability::Durability;
    use crate::base::requests::Requests;
    use crate::testing::{Bench, Plan};

    fn put(bench: &Bench, keys: impl Iterator<Item = usize>, byte: u8) {
        for key in keys {
            let (key, value) = (format!("key {key}"), [byte; 4000]);
            bench.run(bench.put(&key, &value, Durability::Sync)).expect("there is room");
        }
    }

    #[test]
    fn compaction_collects_though_collecting_gained_nothing_before() {
        let bench = Plan::new(44).build();
        bench.start();
        put(&bench, 0..60, 1);
        put(&bench, (0..60).step_by(3), 2);
        let requests = Requests::default();
        let mut reclaimer = Reclaimer::new(&bench.writer, &requests);
        reclaimer.progress.given_up_until = Some(u64::MAX);
        let _request = requests.ask();
        reclaimer.begin_compaction();
        while bench.run(reclaimer.compact()).expect("nothing fails") {}
        let activity = bench.space.counters.activity();
        assert!(activity.segments_freed >= 3, "a third of each segment is garbage: {activity:?}");
    }
}
