//! Verifying claims before the segments that they are against are relocated, so that they take little memory.
//!
//! It takes a segment's summary and a look at each of its records, whether there are many claims against it or few. So it is
//! put off as long as there is room for more of them, and then those segments come first that have most.

use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_log::Tier as TierName;
use hashbrown::HashMap;

use super::{CALM, ENTRY_BYTES, Reclaimer};

use crate::base::error::Result;
use crate::base::fixed_hash::FixedState;
use crate::segments::slot::SlotState;

/// Where claims take more memory than they should, so many segments' are verified before anything else is done.
const AT_A_TIME: usize = 8;
/// So much of what claims may take they have as long as there are writers, and so much at rest.
const AT_WORK: f64 = 0.5;
const AT_REST: f64 = 1.0 / 16.0;
/// It is quiet when nothing was written for so long.
const QUIET_AFTER: Duration = Duration::from_millis(500);
/// Claims are counted again after those with most of them, one in so many of the segments.
const COUNTED_FOR: usize = 4;

/// What is known of the claims that are left.
#[derive(Default)]
pub(super) struct Unverified {
    /// Segments with claims against them, those with most last, as they were counted.
    segments: Vec<(TierName, u32)>,
    /// The last write that was seen, and when.
    written: (u64, Duration),
    /// There was nothing else to do in the last step.
    at_leisure: bool,
    /// Segments that had been begun when none of the claims was against a sealed one.
    out_of_reach: Option<u64>,
}

impl Reclaimer<'_> {
    /// Verifies claims if they take more memory than they should, whatever else there is to do.
    pub(super) async fn settle_beyond_limit(&mut self) -> Result<()> {
        self.unverified.at_leisure = false;
        for _ in 0..AT_A_TIME {
            if self.catalog.index.claims_pressure() <= 1.0 || !self.settle_most(1.0).await? {
                break;
            }
        }
        Ok(())
    }

    /// Verifies the claims against a segment, where there is nothing else to do; false if not even that.
    pub(super) async fn settle_at_leisure(&mut self) -> Result<bool> {
        self.unverified.at_leisure = true;
        let allowed = if self.quiet_in().is_zero() { AT_REST } else { AT_WORK };
        Ok(self.catalog.index.claims_pressure() > allowed && self.settle_most(CALM).await?)
    }

    /// When there will be claims to verify, if nothing is written until then.
    pub(super) fn claims_due(&mut self) -> Option<Duration> {
        let waits = self.unverified.at_leisure && !self.are_out_of_reach();
        let due = waits && self.catalog.index.claims_pressure() > AT_REST;
        due.then(|| self.quiet_in().max(Duration::from_millis(1)))
    }

    /// How long until it is quiet, if nothing is written.
    fn quiet_in(&mut self) -> Duration {
        let (last, now) = (self.space.sequence.load(Ordering::Relaxed), self.space.runtime.now());
        let (known, at) = self.unverified.written;
        if known != last {
            self.unverified.written = (last, now);
            return QUIET_AFTER;
        }
        (at + QUIET_AFTER).saturating_sub(now)
    }

    /// Verifies the claims against the segment that had most of them when they were counted, of those that are left of that.
    async fn settle_most(&mut self, urgency: f64) -> Result<bool> {
        if self.are_out_of_reach() {
            return Ok(false);
        }
        if self.unverified.segments.is_empty() {
            self.count_claims();
        }
        while let Some((tier, slot)) = self.unverified.segments.pop() {
            if self.is_sealed(tier, slot) {
                let (began, mut bytes) = (self.space.runtime.now(), 0);
                let entries = self.space.read_entries(self.space.tier(tier), slot).await;
                self.with_entries(tier, slot, entries, async |entries| {
                    bytes = entries.len() as u64 * ENTRY_BYTES;
                    self.catalog.settle_segment(tier, slot, entries).await.map(drop)
                })
                .await?;
                self.relocator.did_other_work(bytes, began, urgency).await;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Looks at every claim that there is.
    fn count_claims(&mut self) {
        let mut counts: HashMap<(TierName, u32), u64, FixedState> = HashMap::default();
        self.catalog.index.displaced(|pointer| {
            let location = self.catalog.packing.unpack(pointer.get());
            *counts.entry((location.tier, location.slot)).or_default() += 1;
        });
        counts.retain(|&(tier, slot), _| self.is_sealed(tier, slot));
        let mut places: Vec<_> = counts.into_iter().map(|(place, count)| (count, place)).collect();
        places.sort_unstable();
        let others = places.len() - places.len().div_ceil(COUNTED_FOR);
        self.unverified.segments = places.into_iter().skip(others).map(|(_, place)| place).collect();
        self.unverified.out_of_reach = self.unverified.segments.is_empty().then(|| self.begun());
    }

    fn are_out_of_reach(&self) -> bool {
        self.unverified.out_of_reach == Some(self.begun())
    }

    fn begun(&self) -> u64 {
        self.space.newest_segment()
    }

    fn is_sealed(&self, tier: TierName, slot: u32) -> bool {
        self.space.tier(tier).slot(slot).state() == SlotState::Sealed
    }
}
