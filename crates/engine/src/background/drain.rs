//! Drains devices: moves the records of a device to the others of its tier, and removes the device when it is empty.
//!
//! No new segment goes to a device that is drained. On the tier where records stay, its sealed segments are relocated one by
//! one; a fast tier in front of another is emptied by destaging, in the order of age as always. A segment that a lane still fills
//! leaves the device after it is sealed; it is sealed as soon as no other is left there.

use crate::background::reclaimer::{Choice, Reclaimer};
use crate::background::relocate::Terms;
use crate::base::error::Result;
use crate::segments::tier::Tier;

/// Share of the device that draining may use.
const DRAIN_URGENCY: f64 = 0.5;

impl Reclaimer<'_> {
    /// Relocates one segment of a device that is drained, or removes a device that is empty. Returns false if there is nothing to
    /// do, or no room for it.
    pub(crate) async fn drain(&mut self) -> Result<bool> {
        let space = self.space;
        for tier in space.tiers() {
            let Some(members) = tier.members() else { continue };
            for position in members.draining() {
                if tier.allocation(|slots| slots.in_use(position)) == 0 {
                    space.remove_device(tier, position).await?;
                    return Ok(true);
                }
                if self.drain_one(tier, position).await? {
                    return Ok(true);
                }
                let is_there = |slot: u32| members.place(slot).is_some_and(|place| place.member == position);
                let lanes = self.writer.lanes().filter(|lane| lane.shape.tier == tier.name());
                lanes.for_each(|lane| lane.leave_slots(is_there));
            }
        }
        Ok(false)
    }

    async fn drain_one(&mut self, tier: &Tier, position: usize) -> Result<bool> {
        if tier.name() != self.space.output_tier().name() {
            return Ok(false);
        }
        let Some(members) = tier.members() else { return Ok(false) };
        let is_there = |slot: u32| members.place(slot).is_some_and(|place| place.member == position);
        let sealed = tier.slots().sealed().map(|(slot, _)| slot).find(|&slot| is_there(slot));
        let Some(slot) = sealed else { return self.relocator.seal_outputs_at(is_there).await };
        if !self.may_free(tier.name(), &[slot]) {
            return Ok(false);
        }
        let choice = Choice {
            tier: tier.name(),
            slots: vec![slot],
            urgency: DRAIN_URGENCY,
            yield_bytes: 0,
            terms: Terms::Always,
        };
        self.carry_out(choice).await
    }
}
