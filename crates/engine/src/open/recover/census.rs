//! Checks that a closed store still has the segments that it was closed with.

use esker_log::Census;
use esker_seeded_bugs::{Bug, planted};

use super::context::{Content, RecoveryContext, Segment};

use crate::base::error::{Error, Result};

impl RecoveryContext<'_> {
    /// Compares the segments found with the census of each tier that was closed. Damage that hides a segment or its
    /// end, or revives a freed segment, shows as a difference here if it was not detected before.
    pub(super) fn check_census(&self, segments: &[Segment]) -> Result<()> {
        for (tier, superblock) in &self.tiers {
            let Some(expected) = superblock.census else { continue };
            let mut found = Census::default();
            for s in segments.iter().filter(|s| s.tier == tier.name()) {
                let tail = match &s.content {
                    Content::Sealed(footer) => footer.tail,
                    Content::Scanned(scan, _) => scan.tail,
                };
                found.count(&self.secret, s.segment, s.slot, tail);
            }
            if found == expected || planted(Bug::CensusNotChecked) {
                continue;
            }
            let what = format!(
                "the {} tier was closed with {} segments, and those that are found now, {} of them, are not the same",
                tier.name().name(),
                expected.segments,
                found.segments
            );
            if !self.accept_loss {
                let what = format!(
                    "{what}; open with accept_loss (esker serve --accept-loss) to go on with what there is"
                );
                return Err(Error::Corrupt { key: None, segment: 0, offset: 0, what });
            }
            tracing::error!("{what}; accepted");
        }
        Ok(())
    }
}
