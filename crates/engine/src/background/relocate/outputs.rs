//! The outputs of relocation: opened when needed, durable before a victim is freed, sealed when full.

use std::sync::atomic::Ordering;

use esker_gc::{Output, Relocated, Target};
use esker_log::{SegmentName, Stream, Tier as TierName};
use esker_seeded_bugs::{Bug, planted};

use super::Relocator;

use crate::background::expire::Due;
use crate::background::pause::OutputEnds;
use crate::base::error::Result;
use crate::segments::contents::NEVER_MS;
use crate::segments::slot::SlotState;
use crate::segments::space::Space;

impl Relocator<'_> {
    /// Seals all outputs, so that rot in them can be distinguished from a torn tail. Drops those on a device that was left out.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        let tier = self.space.output_tier();
        self.drop_lost_outputs();
        while let Some((_, mut output)) = self.outputs.pop_first() {
            let slot = output.segment.name().slot;
            let sealed = async {
                self.close_left_open(&mut output).await?;
                self.target(0.0).seal(output.segment).await
            };
            match sealed.await {
                Err(error) if self.space.survives(tier, &error).await && Space::is_lost(tier, slot) => {
                    tier.slots().set_state(slot, SlotState::Damaged);
                    self.drop_lost_outputs();
                }
                sealed => sealed?,
            }
        }
        Ok(())
    }

    /// Seals all outputs if one is in a slot of this kind. Returns false if none is.
    pub(crate) async fn seal_outputs_at(&mut self, is_there: impl Fn(u32) -> bool) -> Result<bool> {
        let is_one = self.outputs.values().any(|output| is_there(output.segment.name().slot));
        if is_one {
            self.finish().await?;
        }
        Ok(is_one)
    }

    /// Drops the outputs on devices that were left out.
    pub(crate) fn drop_lost_outputs(&mut self) {
        let tier = self.space.output_tier();
        self.outputs.retain(|_, output| {
            let slot = output.segment.name().slot;
            let is_lost = Space::is_lost(tier, slot);
            if is_lost {
                tier.slots().set_state(slot, SlotState::Damaged);
            }
            !is_lost
        });
    }

    /// Called after the store left out a device that failed: drops the outputs on it, and returns the victims that were being
    /// emptied to their earlier state.
    pub(crate) fn abandon_lost(&mut self) {
        self.drop_lost_outputs();
        let waits = |tier: TierName, slot: u32| {
            let of_tier = self.emptied.iter().filter(|emptied| emptied.tier == tier);
            of_tier.flat_map(|emptied| &emptied.victims).any(|(victim, _)| victim.slot == slot)
        };
        for tier in self.space.tiers() {
            let slots = tier.slots().in_use().filter(|(_, slot)| slot.state() == SlotState::Victim);
            let victims: Vec<u32> = slots.map(|(slot, _)| slot).collect();
            for slot in victims.into_iter().filter(|&slot| !waits(tier.name(), slot)) {
                let is_lost = Space::is_lost(tier, slot);
                tier.slots().set_state(slot, if is_lost { SlotState::Damaged } else { SlotState::Sealed });
            }
        }
    }

    /// Writes the frame that a failed relocation may have left open.
    async fn close_left_open(&self, Output { segment, durable_through }: &mut Output) -> Result<()> {
        let Some(frame) = segment.close_frame(*durable_through) else { return Ok(()) };
        self.target(0.0).write_frame(segment.name(), segment.memory().buffer(), frame).await
    }

    /// Returns the number of free slots of the output tier that an opening after a kill may need for staged records.
    pub(super) fn kept_for_staged(&self) -> u32 {
        let lane = &self.writer.lane;
        let may_be_staged = self.space.outlives_process && lane.has_begun.load(Ordering::Acquire);
        u32::from(may_be_staged && lane.shape.tier == self.space.output_tier().name())
    }

    /// Returns true if another output can be opened.
    pub(crate) fn may_open(&self) -> bool {
        self.space.output_tier().free_slots() > self.kept_for_staged()
    }

    /// Returns true if an open segment is one of its outputs.
    pub(crate) fn writes_to(&self, segment: u64) -> bool {
        self.outputs.values().any(|output| output.segment.name().segment == segment)
    }

    /// Returns a lower bound of the expiry times of records in the outputs that are still to be removed from the index.
    pub(crate) fn expires_from(&self) -> Option<u64> {
        Some(self.expires_from).filter(|&at_ms| at_ms != NEVER_MS)
    }

    /// Removes expired records of the outputs from the index.
    pub(crate) async fn expire_outputs(&mut self) -> Result<()> {
        let now_ms = self.catalog.confirmed_ms();
        self.expires_from = NEVER_MS;
        for Output { segment: output, .. } in self.outputs.values() {
            let mut due = Due::new(now_ms);
            let expired =
                output.entries().iter().filter(|entry| due.is_expired(self.catalog, entry)).collect();
            let (tier, SegmentName { slot, segment, .. }) = (output.shape().tier, output.name());
            let taken = self.expirer.expire_entries(tier, slot, segment, &expired).await?;
            self.expires_from = self.expires_from.min(due.next_ms(taken.again));
        }
        Ok(())
    }

    /// Returns the outputs, each with the end of its durable part.
    pub(crate) fn output_ends(&self) -> OutputEnds {
        self.outputs.values().map(|output| (output.segment.name().segment, output.durable_through)).collect()
    }

    /// Returns the bytes that still fit in the output with most room.
    pub(crate) fn room_bytes(&self) -> u64 {
        self.outputs.values().map(|output| output.segment.room_bytes()).max().unwrap_or(0)
    }

    /// Makes copies durable. Returns an error also if a device that holds some of them was left out, because otherwise the index
    /// would lead to lost copies of records that are still in their victims.
    pub(super) async fn flush_copies(&mut self, copied: &Relocated) -> Result<()> {
        self.flush_outputs().await?;
        self.space.output_tier().check_not_lost(copied.moves.iter().map(|copy| copy.slot))
    }

    async fn flush_outputs(&mut self) -> Result<()> {
        if !planted(Bug::FreedBeforeCopiesDurable) {
            self.space.flush_tier(self.space.output_tier()).await?;
        }
        self.outputs.values_mut().for_each(|output| output.durable_through = output.segment.tail());
        Ok(())
    }

    /// Writes a proof of durability behind the copies, which are durable already. This comes before their victims are freed:
    /// from then on they are the only copies, and damage to them must not look like a frame torn by a power failure.
    pub(super) async fn prove_outputs(&mut self) -> Result<()> {
        let unproven = self.outputs.iter().filter(|(_, output)| output.segment.is_unproven());
        let unproven: Vec<Stream> = unproven.map(|(&stream, _)| stream).collect();
        for stream in &unproven {
            let mut output = self.outputs.remove(stream).expect("it is open");
            let closed = self.close_left_open(&mut output).await;
            self.outputs.insert(*stream, output);
            closed?;
        }
        let is_durable = |output: &Output| output.durable_through == output.segment.tail();
        if !unproven.iter().all(|stream| is_durable(&self.outputs[stream])) {
            self.flush_outputs().await?;
        }
        for stream in unproven {
            let mut output = self.outputs.remove(&stream).expect("it is open");
            let target = self.target(0.0);
            if output.segment.has_room(0, 0) {
                let proved = target.write_proof(&mut output.segment).await;
                if proved.is_ok() {
                    output.durable_through = output.segment.tail();
                }
                self.outputs.insert(stream, output);
                proved?;
            } else {
                // The summary is as good a proof.
                target.seal(output.segment).await?;
            }
        }
        Ok(())
    }
}
