//! Copies the survivors of memtable segments: a relocation whose victims are in memory only.

use esker_gc::{Inputs, Relocated, copy_needed};
use esker_seeded_bugs::{Bug, planted};

use super::memtable_versions::Newest;
use super::{Relocator, Victims, mean_record_bytes, slots_of};

use crate::background::copies::{CopyTarget, VictimReader};
use crate::base::error::Result;
use crate::segments::accounting::Origin;
use crate::segments::limit::frame_bytes;
use crate::segments::writer::SegmentWriter;

impl Relocator<'_> {
    /// Copies the needed records of memtable segments, durably, and swings the index. Returns the number of leading segments of
    /// which nothing is needed any more, and the number of records copied; the other segments are to be written as they are. No
    /// record of them is older than `opened_at`.
    pub(crate) async fn copy_coalesced(
        &mut self,
        victims: &mut Victims,
        opened_at: u64,
        memtable: &Newest,
    ) -> Result<(usize, usize)> {
        let (mut emptied, mut copied, mut first) = (victims.len(), vec![0; victims.len()], true);
        while victims[..emptied].iter().any(|(_, entries)| !entries.is_empty()) {
            let relocated = self.copy_round(victims, opened_at, memtable, first).await?;
            if !relocated.moves.is_empty() {
                self.note_expiries(&relocated);
                let tier = victims[0].0.shape.tier;
                if let Err(error) = self.flush_copies(&relocated).await {
                    self.note_left_copies(tier, victims, relocated.moves.iter().map(|copy| copy.slot));
                    return Err(error);
                }
                self.swing(tier, victims, &relocated);
            }
            let writer = SegmentWriter::new(self.space, self.space.output_tier(), Origin::User);
            for summary in self.filled.get_mut().drain(..) {
                writer.note_sealed(&summary, self.space.newest_segment());
            }
            let damaged = relocated.damaged.iter().map(|(number, ..)| *number);
            emptied = damaged.chain(relocated.out_of_room_at).fold(emptied, usize::min);
            relocated.moves.iter().for_each(|m| copied[m.victim] += 1);
            // A look-up misses a key while it moves between buckets of the index; `is_known` does not.
            for (victim, entries) in victims.iter_mut() {
                let tier = victim.shape.tier;
                entries.retain(|entry| self.catalog.is_known(tier, victim.slot, entry));
            }
            first = false;
        }
        self.prove_outputs().await?;
        Ok((emptied, copied[..emptied].iter().sum()))
    }

    async fn copy_round(
        &mut self,
        victims: &Victims,
        opened_at: u64,
        memtable: &Newest,
        first: bool,
    ) -> Result<Relocated> {
        let shape = self.space.output_tier().shape();
        let mut outputs = std::mem::take(&mut self.outputs);
        let source = VictimReader { memtable: Some(memtable), ..self.source(first, 1.0) };
        let mut target = CopyTarget { origin: Origin::User, filled: Some(&self.filled), ..self.target(1.0) };
        // A copied record may be superseded by one that a power failure takes back, so a tombstone between the two must be
        // kept.
        if !planted(Bug::CopiesNumberedAtOpening) {
            target.opened_at = opened_at;
        }
        target.record_bytes = mean_record_bytes(victims, |entry| entry.bytes.into());
        let inputs = Inputs { secret: &self.space.secret, victims, shape, frame_bytes: frame_bytes(shape) };
        let copied = copy_needed(inputs, &source, &target, &mut outputs).await;
        if let (Err(failed), Some((victim, _))) = (&copied, victims.first()) {
            let sealed = failed.done.sealed.iter().copied();
            self.note_left_copies(victim.shape.tier, victims, sealed.chain(slots_of(&outputs)));
        }
        self.outputs = outputs;
        copied.map_err(|failed| failed.error)
    }
}
