//! Compacting when asked to. Nobody has to: garbage is collected by itself, as far as the reserve asks for it.
//!
//! A compaction has an end, however much is overwritten meanwhile: it is about the segments and the tombstones that there
//! were when it began. Copies go to segments that come later, so each is relocated at most once, but for outputs that were
//! open then, which are relocated once more. Whoever asks meanwhile waits for the next one, since what they made garbage of
//! may have come too late for this one.

use crate::background::reclaimer::{Compaction, Reclaimer};
use crate::base::error::Result;
use crate::segments::limit::LEAST_YIELD;

impl Reclaimer<'_> {
    /// Looks whether a compaction is asked for, if none is under way.
    pub(crate) fn begin_compaction(&mut self) {
        if self.compaction.is_some() {
            return;
        }
        self.compactions.look();
        // Must be read after the look, or else it could miss what is garbage for whoever asked.
        self.compaction = self.compactions.is_wanted().then(|| Compaction {
            segments_through: self.space.newest_segment(),
            sequence_through: self.writer.lane.published_through(),
        });
    }

    /// Goes on with the compaction that is under way; false if there is none, or this was its end.
    pub(crate) async fn compact(&mut self) -> Result<bool> {
        let Some(Compaction { segments_through, sequence_through }) = self.compaction else {
            return Ok(false);
        };
        // Segments that a backup has still to read are left: it may take hours.
        self.leaves_kept = true;
        let choice = self.choose_among(LEAST_YIELD, segments_through);
        self.leaves_kept = false;
        if let Some(choice) = choice
            && self.carry_out(choice, false).await?
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

    /// How many bytes of tombstones a compaction leaves.
    fn tombstones_left(&self) -> u64 {
        let noticeable = self.space.live_bytes() as f64 * LEAST_YIELD;
        self.tombstones_tolerated(true).min(noticeable as u64)
    }
}
