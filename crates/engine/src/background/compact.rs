//! Compaction on request. It is never required: garbage is collected automatically, as far as the reserve demands it.
//!
//! A compaction ends however much is overwritten meanwhile: it covers the segments and tombstones that existed when it began.
//! Copies go to later segments, so each segment is relocated at most once, except outputs that were open at the start, which
//! are relocated once more. A request during a compaction waits for the next one, because garbage made by the requester may
//! have come too late for the current one.

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
        let choice = self.choose_among(LEAST_YIELD, segments_through);
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
