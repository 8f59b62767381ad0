//! Collecting damaged segments after none of their damaged records is needed any more.

use esker_log::Tier as TierName;

use crate::background::reclaimer::Reclaimer;
use crate::base::error::Result;
use crate::catalog::unidentified::UnreadableSegment;
use crate::segments::slot::SlotState;
use crate::segments::tier::Tier;

impl Reclaimer<'_> {
    /// Lists the damaged segments that are not listed yet, and turns those without any needed damaged record into sealed ones,
    /// so that they are collected. Returns true if there were any.
    pub(super) async fn look_at_damaged(&mut self) -> Result<bool> {
        let count = |tier: &Tier| tier.slots().count(SlotState::Damaged) as usize;
        if self.space.tiers().map(count).sum::<usize>() != self.space.damaged.len() {
            self.list_all_damaged().await;
        }
        let mut any = false;
        for (segment, tier, slot) in self.space.damaged.places() {
            if !self.holds_damage(segment, tier, slot).await? {
                self.space.unlist_damaged(segment);
                any = true;
            }
        }
        Ok(any)
    }

    async fn list_all_damaged(&self) {
        let listed: Vec<u64> = self.space.damaged.places().into_iter().map(|(segment, ..)| segment).collect();
        let mut unreadable = Vec::new();
        for tier in self.space.tiers() {
            let unsealed = tier.slots().unsealed().into_iter().map(|at| (at, tier.slot(at)));
            let damaged = unsealed.filter(|(_, slot)| slot.state() == SlotState::Damaged);
            for (at, slot) in damaged.filter(|(_, slot)| !listed.contains(&slot.segment())) {
                debug_assert!(slot.segment() > 0, "a free slot is not damaged");
                let segment = slot.segment();
                if !self.relocator.list_damaged(tier.name(), at, Vec::new()).await {
                    unreadable.push(UnreadableSegment { at: (tier.name(), at), segment, error: None });
                }
            }
        }
        self.catalog.report_unreadable(unreadable).await;
    }

    /// Returns true if a damaged record of a segment is needed: because it is current, or because it is a tombstone or has
    /// expired, and hides older versions of its key. Otherwise relocation would meet the same damage again, and again. For a
    /// segment that could not be read, returns true if any record of it is current.
    async fn holds_damage(&self, segment: u64, tier: TierName, slot: u32) -> Result<bool> {
        let Some((damaged, listed_bytes)) = self.space.damaged.damaged_records(segment) else {
            return Ok(true);
        };
        if damaged.is_empty() {
            // Live bytes may be estimates. After another failed read the segment is tried only when more of it is dead.
            let live_bytes = self.space.tier(tier).slot(slot).live_bytes();
            return Ok(live_bytes > 0 || live_bytes >= listed_bytes);
        }
        for entry in &damaged {
            let catalog = self.catalog;
            if !catalog.is_current(tier, slot, entry) && catalog.is_known(tier, slot, entry) {
                match catalog.verify(&entry.key_hash).await {
                    Err(error) if error.is_of_reading() => return Ok(true),
                    verified => verified?,
                }
            }
            if catalog.is_known(tier, slot, entry) || self.relocator.needs(tier, slot, entry) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
