//! Verifying everything at once, for whoever wants to know now.

use crate::base::error::{Error, Result};
use crate::read::verification::SegmentVerification;
use crate::segments::slot::SlotState;
use crate::store::handle::Store;

/// So much of the damage is told one by one.
const TOLD: usize = 1000;

/// What a verification of a store found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Verification {
    /// Segments that were looked at.
    pub segments: u64,
    /// Records that were read, damaged or not.
    pub records: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// How much is damaged: records, summaries, copies of superblocks.
    pub damages: u64,
    /// What is damaged, each with the key where it is known; of more than a thousand, the first thousand.
    pub damaged: Vec<Error>,
}

impl Verification {
    /// Whether nothing is damaged.
    pub fn is_sound(&self) -> bool {
        self.damages == 0
    }

    fn add(&mut self, damaged: Vec<Error>) {
        self.damages += damaged.len() as u64;
        let room = TOLD - self.damaged.len();
        self.damaged.extend(damaged.into_iter().take(room));
    }
}

impl Store {
    /// Reads everything that keys lead to from the devices and compares it with its checksums: sealed segments with their
    /// summaries, and the copies of the superblocks. The store is used meanwhile as always; what is written meanwhile, and
    /// what is in segments that are still being filled, is not looked at. It reads as fast as the devices let it, behind what
    /// others wait for.
    ///
    /// The scrub does the same in the background: see [`Options::scrub_bytes_per_s`](crate::Options::scrub_bytes_per_s).
    ///
    /// # Errors
    /// `Closed` after a close. Damage and failed reads are no errors of this call.
    pub async fn verify(&self) -> Result<Verification> {
        self.space.health.check_open()?;
        let mut all = Verification::default();
        for tier in self.space.tiers() {
            for slot in 0..tier.slots_total() {
                if !matches!(tier.slot(slot).state(), SlotState::Sealed | SlotState::Damaged) {
                    continue;
                }
                let mut segment =
                    SegmentVerification::begin(&self.space, &self.catalog, tier.name(), slot).await?;
                while segment.read_next().await?.is_some() {}
                let verdict = segment.verdict;
                all.segments += 1;
                all.records += verdict.records;
                all.bytes += verdict.bytes;
                all.add(verdict.damaged);
            }
        }
        all.add(self.space.superblocks.damaged_copies(self.space.tiers()).await?);
        Ok(all)
    }
}
