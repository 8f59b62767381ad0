//! The outputs of relocation: opened when needed, durable before a victim is freed, sealed when full.

use std::sync::atomic::Ordering;

use esker_gc::Host;
use esker_log::{OpenSegment, SegmentName, Stream};
use esker_seeded_bugs::{Bug, planted};

use super::Relocator;

use crate::background::expire::Due;
use crate::background::pause::OutputEnds;
use crate::base::error::{Error, Result};
use crate::segments::contents::NEVER_MS;

impl Relocator<'_> {
    /// Seals all outputs, so that rot in them can be distinguished from a torn tail.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        for (_, mut output) in std::mem::take(&mut self.outputs) {
            self.close_left_open(&mut output).await?;
            self.copies(false, 0.0).seal_output(output).await?;
        }
        Ok(())
    }

    /// Writes the frame that a failed relocation may have left open.
    async fn close_left_open(&self, output: &mut OpenSegment) -> Result<()> {
        let durable = self.durable.get(&output.name().segment).copied().unwrap_or(0);
        let Some(frame) = output.close_frame(durable) else { return Ok(()) };
        self.copies(false, 0.0).write_frame(output.name(), output.memory().buffer(), frame).await
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
        self.outputs.values().any(|output| output.name().segment == segment)
    }

    /// Returns a lower bound of the expiry times of records in the outputs that are still to be removed from the index.
    pub(crate) fn expires_from(&self) -> Option<u64> {
        Some(self.expires_from).filter(|&at_ms| at_ms != NEVER_MS)
    }

    /// Removes expired records of the outputs from the index.
    pub(crate) async fn expire_outputs(&mut self) -> Result<()> {
        let now_ms = self.catalog.confirmed_ms();
        self.expires_from = NEVER_MS;
        for output in self.outputs.values() {
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
        let numbers = self.outputs.values().map(|output| output.name().segment);
        numbers.map(|segment| (segment, self.durable.get(&segment).copied().unwrap_or(0))).collect()
    }

    /// Returns the bytes that still fit in the output with most room.
    pub(crate) fn room_bytes(&self) -> u64 {
        self.outputs.values().map(OpenSegment::room_bytes).max().unwrap_or(0)
    }

    pub(super) async fn flush_outputs(&mut self) -> Result<()> {
        if !planted(Bug::FreedBeforeCopiesDurable) {
            self.space.output_tier().device()?.flush().await.map_err(Error::from)?;
        }
        self.durable = self.outputs.values().map(|o| (o.name().segment, o.tail())).collect();
        Ok(())
    }

    /// Writes a proof of durability behind the copies, which are durable already. This comes before their victims are freed:
    /// from then on they are the only copies, and damage to them must not look like a frame torn by a power failure.
    pub(super) async fn prove_outputs(&mut self) -> Result<()> {
        let unproven = self.outputs.iter().filter(|(_, output)| output.is_unproven());
        let unproven: Vec<Stream> = unproven.map(|(&stream, _)| stream).collect();
        for stream in &unproven {
            let mut output = self.outputs.remove(stream).expect("it is open");
            self.close_left_open(&mut output).await?;
            self.outputs.insert(*stream, output);
        }
        let is_durable = |o: &OpenSegment| self.durable.get(&o.name().segment) == Some(&o.tail());
        if !unproven.iter().all(|stream| is_durable(&self.outputs[stream])) {
            self.flush_outputs().await?;
        }
        for stream in unproven {
            let mut output = self.outputs.remove(&stream).expect("it is open");
            let copies = self.copies(false, 0.0);
            if output.has_room(0, 0) {
                copies.write_proof(&mut output).await?;
                self.durable.insert(output.name().segment, output.tail());
                self.outputs.insert(stream, output);
            } else {
                // The summary is as good a proof.
                copies.seal_output(output).await?;
            }
        }
        Ok(())
    }
}
