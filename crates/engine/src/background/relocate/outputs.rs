//! The segments that copies go to: opened when one is needed, durable before a victim is freed, sealed when they are full.

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
    /// Seals all outputs, so that rot in them is told from a torn tail.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        for (_, mut output) in std::mem::take(&mut self.outputs) {
            self.close_left_open(&mut output).await?;
            self.copies(false, 0.0).seal_output(output).await?;
        }
        Ok(())
    }

    /// Writes the frame that a relocation which failed may have left open.
    async fn close_left_open(&self, output: &mut OpenSegment) -> Result<()> {
        let durable = self.durable.get(&output.name().segment).copied().unwrap_or(0);
        let Some(frame) = output.close_frame(durable) else { return Ok(()) };
        self.copies(false, 0.0).write_frame(output.name(), output.memory().buffer(), frame).await
    }

    /// Free slots of the tier where records stay that an opening after a kill may need for what it finds staged.
    pub(super) fn kept_for_staged(&self) -> u32 {
        let lane = &self.writer.lane;
        let may_be_staged = self.space.outlives_process && lane.has_begun.load(Ordering::Acquire);
        u32::from(may_be_staged && lane.shape.tier == self.space.output_tier().name())
    }

    /// Whether another output could be opened.
    pub(crate) fn may_open(&self) -> bool {
        self.space.output_tier().free_slots() > self.kept_for_staged()
    }

    /// Whether an open segment is one of its outputs.
    pub(crate) fn writes_to(&self, segment: u64) -> bool {
        self.outputs.values().any(|output| output.name().segment == segment)
    }

    /// When a record of the outputs expires that is still to be taken out of the index.
    pub(crate) fn expires_from(&self) -> Option<u64> {
        Some(self.expires_from).filter(|&at_ms| at_ms != NEVER_MS)
    }

    /// Takes expired records of the outputs out of the index.
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

    /// Where the durable part of each output ends.
    pub(crate) fn output_ends(&self) -> OutputEnds {
        let numbers = self.outputs.values().map(|output| output.name().segment);
        numbers.map(|segment| (segment, self.durable.get(&segment).copied().unwrap_or(0))).collect()
    }

    /// Bytes that still fit in the outputs.
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

    /// Writes behind the copies, which are durable, that they are. Must come before their victims are freed: then they are
    /// all there is, and damage to them must not look like a frame that a power cut tore.
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
