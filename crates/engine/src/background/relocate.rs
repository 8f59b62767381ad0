//! Relocating segments, one at a time or several short ones: the order of `esker_gc`'s `relocate` module, on this
//! store's tiers.
//!
//! While a victim is being emptied, puts may displace its records and leave unverified overwrites of it; it is freed only when none
//! of its records is current and no unverified overwrite of it is left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use esker_gc::{Failed, Host, Need, Outputs, Relocated, Throttle, Victim, copied_bytes, copy_needed};
use esker_log::{Entry, Kind, Location, OpenSegment, Stream, Tier as TierName, class_of};
use parking_lot::Mutex;

use crate::background::copies::{CopyWriter, yield_device};
use crate::background::expire::{Due, Expirer};
use crate::base::error::{Error, Result};
use crate::catalog::Catalog;
use crate::segments::accounting::Origin;
use crate::segments::contents::NEVER_MS;
use crate::segments::limit::{LEAST_YIELD, frame_bytes};
use crate::segments::slot::SlotState;
use crate::segments::space::Space;
use crate::write::Writer;

/// Slots of the capacity tier that destaging leaves to collecting, which it needs to have any.
pub(crate) const KEEP_FOR_COLLECTING: u32 = 2;

/// A tombstone is taken to be so long where the length of its key is not at hand.
const TOMBSTONE_BYTES: u32 = 96;

/// How relocating a segment ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// So many are free; the others are not collected, or kept because they are damaged.
    Freed(usize),
    /// There is no room for what is needed of it.
    OutOfRoom,
}

/// Segments that are being emptied, with what their summaries say of records that may be needed.
type Victims = Vec<(Victim, Vec<Entry>)>;

/// Moves records from segment to segment.
pub(crate) struct Relocator<'a> {
    space: &'a Space,
    catalog: &'a Catalog,
    writer: &'a Writer,
    expirer: Expirer<'a>,
    /// Limit of what it reads and writes; 0: none.
    bytes_per_s: u64,
    outputs: Outputs,
    /// Offset below which an output is durable, by its number.
    durable: BTreeMap<u64, u32>,
    throttle: Mutex<Throttle>,
    /// Bytes of the output tier that collecting freed, less those that it filled.
    gained_bytes: AtomicI64,
    /// What of it writers are paced by already.
    told_bytes: AtomicI64,
    /// Time that went to other work since the last relocation.
    other_work: Duration,
    /// No record of the outputs that is to be taken out of the index when it expires does so before.
    expires_from: u64,
}

impl<'a> Relocator<'a> {
    pub(crate) fn new(expirer: Expirer<'a>) -> Relocator<'a> {
        let Expirer { space, catalog, writer } = expirer;
        Relocator {
            space,
            catalog,
            writer,
            expirer,
            bytes_per_s: 0,
            outputs: Outputs::new(),
            durable: BTreeMap::new(),
            throttle: Mutex::default(),
            gained_bytes: AtomicI64::new(0),
            told_bytes: AtomicI64::new(0),
            other_work: Duration::ZERO,
            expires_from: NEVER_MS,
        }
    }

    /// From now on it reads and writes no more than so many bytes a second; 0: no limit.
    pub(crate) fn set_limit(&mut self, bytes_per_s: u64) {
        self.bytes_per_s = bytes_per_s;
        self.throttle.get_mut().set_limit(bytes_per_s);
    }

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

    /// Bytes of the tier where records stay that collecting freed, less those that it filled.
    pub(crate) fn gained_bytes(&self) -> i64 {
        self.gained_bytes.load(Ordering::Relaxed)
    }

    /// Other work on so many bytes began at that time and is done: gives the device back for a while.
    pub(crate) async fn did_other_work(&mut self, bytes: u64, began: Duration, urgency: f64) {
        self.other_work += self.space.runtime.now() - began;
        yield_device(self.space, &self.throttle, bytes, began, urgency).await;
    }

    /// Free slots of the tier where records stay that an opening after a kill may need for what it finds staged.
    fn kept_for_staged(&self) -> u32 {
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
            output.entries().iter().for_each(|entry| due.take(self.catalog, entry));
            let (tier, slot) = (output.shape().tier, output.name().slot);
            let taken = self.expirer.expire_entries(tier, slot, &due.expired).await?;
            self.expires_from = self.expires_from.min(due.next_ms(taken.again));
        }
        Ok(())
    }

    /// Bytes that still fit in the outputs.
    pub(crate) fn room_bytes(&self) -> u64 {
        self.outputs.values().map(OpenSegment::room_bytes).max().unwrap_or(0)
    }

    /// Empties segments of a tier and frees them. `urgency`: how much of the device it may use, 0 to 1. `always`: even if
    /// that gives nothing back.
    ///
    /// # Errors
    /// With the slot at which it happened.
    pub(crate) async fn relocate(
        &mut self,
        tier_name: TierName,
        slots: &[u32],
        urgency: f64,
        always: bool,
    ) -> std::result::Result<Outcome, (u32, Error)> {
        let (began, paused) = (self.space.runtime.now(), self.throttle.lock().paused());
        let mut victims: Victims = Vec::with_capacity(slots.len());
        for &slot in slots {
            match self.make_victim(tier_name, slot, always).await {
                Ok(victim) => victims.extend(victim),
                Err(error) => {
                    self.give_up(tier_name, &victims);
                    return Err((slot, error));
                }
            }
        }
        match self.empty(tier_name, &mut victims, urgency).await {
            Ok(Outcome::Freed(_)) => {}
            Ok(Outcome::OutOfRoom) => {
                return Ok(Outcome::OutOfRoom);
            }
            Err(failed) => {
                let slot = victims[failed.victim].0.slot;
                self.give_up(tier_name, &victims);
                return Err((slot, failed.error));
            }
        }
        let took = (self.space.runtime.now() - began).saturating_sub(self.throttle.lock().paused() - paused);
        // What was done while nothing had to be freed held nothing up.
        let worked = took + std::mem::take(&mut self.other_work).min(took);
        if !victims.is_empty() {
            self.prove_outputs().await.map_err(|error| (slots[0], error))?;
        }
        self.free(tier_name, &victims, worked).await.map_err(|error| (slots[0], error))?;
        Ok(Outcome::Freed(victims.len()))
    }

    /// Makes a sealed segment a victim, if it is worth it, and reads its summary.
    async fn make_victim(
        &self,
        tier_name: TierName,
        slot: u32,
        always: bool,
    ) -> Result<Option<(Victim, Vec<Entry>)>> {
        let tier = self.space.tier(tier_name);
        let state = tier.slot(slot);
        if !tier.slots().advance(slot, SlotState::Sealed, SlotState::Victim) {
            return Ok(None);
        }
        let Some(entries) = self.space.read_entries(tier, slot).await? else {
            tracing::error!(segment = state.segment(), "a summary is damaged; its segment is kept as it is");
            tier.slots().set_state(slot, SlotState::Damaged);
            return Ok(None);
        };
        self.expirer.expire_segment(tier_name, slot, &entries).await?;
        let records = entries.len();
        let entries = self.catalog.verify_segment(tier_name, slot, &entries).await?;
        let (segment, stream) = (state.segment(), state.stream());
        let victim = Victim { segment, slot, shape: tier.shape(), stream, records };
        if !always && tier_name == self.space.output_tier().name() && !self.is_worth_it(&victim, &entries) {
            // It looked emptier than it is: records that do not fill their write units fill no others better. It is left
            // alone until more of it is dead.
            state.do_not_collect();
            tier.slots().set_state(slot, SlotState::Sealed);
            return Ok(None);
        }
        Ok(Some((victim, entries)))
    }

    /// Copies until nothing of the victims is needed. Those in which something is damaged are taken off the list.
    async fn empty(
        &mut self,
        tier_name: TierName,
        victims: &mut Victims,
        urgency: f64,
    ) -> std::result::Result<Outcome, Failed<Error>> {
        let mut first = true;
        while !victims.is_empty() {
            for (number, (victim, entries)) in victims.iter_mut().enumerate() {
                let needed = self.catalog.verify_segment(tier_name, victim.slot, entries).await;
                *entries = needed.map_err(|error| Failed { victim: number, error })?;
            }
            let relocated = self.copy(tier_name, victims, first, urgency).await?;
            let copies = relocated.moves.iter().filter(|m| m.kind == Kind::Put);
            let soonest_ms = copies.filter_map(|m| m.entry.expires_at_ms).min();
            self.expires_from = self.expires_from.min(soonest_ms.unwrap_or(NEVER_MS));
            if !relocated.moves.is_empty() {
                self.flush_outputs().await.map_err(|error| Failed { victim: 0, error })?;
                self.swing(tier_name, victims, &relocated);
                self.space.counters.count_moved(relocated.moves.len() as u64);
            }
            let emptied: BTreeSet<u32> = victims[..relocated.out_of_room_at.unwrap_or(victims.len())]
                .iter()
                .map(|(victim, _)| victim.slot)
                .collect();
            for (number, entry, damage) in &relocated.damaged {
                let victim = &victims[*number].0;
                let (segment, offset) = (victim.segment, entry.offset);
                tracing::error!(segment, offset, %damage, "a record cannot be relocated; its segment is kept");
                self.space.tier(tier_name).slots().set_state(victim.slot, SlotState::Damaged);
            }
            victims.retain(|(victim, _)| {
                self.space.tier(tier_name).slot(victim.slot).state() == SlotState::Victim
            });
            if relocated.out_of_room_at.is_some() {
                // Those that were emptied before can be freed all the same, and make room for the others.
                self.keep_emptied(tier_name, victims, &emptied).await?;
                return Ok(if victims.is_empty() {
                    Outcome::OutOfRoom
                } else {
                    Outcome::Freed(victims.len())
                });
            }
            first = false;
            if victims.iter().all(|(victim, entries)| self.is_empty(victim, entries)) {
                break;
            }
        }
        Ok(Outcome::Freed(victims.len()))
    }

    /// Only those victims stay victims of which everything needed was copied and to which nothing leads any more.
    async fn keep_emptied(
        &self,
        tier_name: TierName,
        victims: &mut Victims,
        copied: &BTreeSet<u32>,
    ) -> std::result::Result<(), Failed<Error>> {
        for (number, (victim, entries)) in victims.iter().enumerate() {
            if copied.contains(&victim.slot) {
                let verified = self.catalog.verify_segment(tier_name, victim.slot, entries).await;
                verified.map_err(|error| Failed { victim: number, error })?;
            }
        }
        let is_emptied = |(victim, entries): &(Victim, Vec<Entry>)| {
            copied.contains(&victim.slot) && self.is_empty(victim, entries)
        };
        let (emptied, others) = std::mem::take(victims).into_iter().partition(is_emptied);
        *victims = emptied;
        self.give_up(tier_name, &others);
        Ok(())
    }

    /// Whether nothing leads to a victim any more.
    fn is_empty(&self, victim: &Victim, entries: &[Entry]) -> bool {
        let tier = victim.shape.tier;
        let is_empty = !entries.iter().any(|entry| self.catalog.is_known(tier, victim.slot, entry));
        if cfg!(debug_assertions) && is_empty {
            self.catalog.index.displaced(|pointer| {
                let Location { tier: of, slot, .. } = self.catalog.packing.unpack(pointer.get());
                assert!(of != tier || slot != victim.slot, "there are unverified against records only");
            });
        }
        is_empty
    }

    async fn flush_outputs(&mut self) -> Result<()> {
        self.space.output_tier().device()?.flush().await.map_err(Error::from)?;
        self.durable = self.outputs.values().map(|o| (o.name().segment, o.tail())).collect();
        Ok(())
    }

    /// Writes behind the copies, which are durable, that they are. Must come before their victims are freed: then they are
    /// all there is, and damage to them must not look like a frame that a power cut tore.
    async fn prove_outputs(&mut self) -> Result<()> {
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

    /// The victims stay, with what is left in them.
    fn give_up(&self, tier: TierName, victims: &Victims) {
        for (victim, _) in victims {
            self.space.tier(tier).slots().advance(victim.slot, SlotState::Victim, SlotState::Sealed);
        }
    }

    /// Frees emptied victims.
    async fn free(&self, tier_name: TierName, victims: &Victims, worked: Duration) -> Result<()> {
        if victims.is_empty() {
            return Ok(());
        }
        let tier = self.space.tier(tier_name);
        // What superseded the victims' records must be durable before they are gone, or else a power cut could take both.
        self.writer.flush().await?;
        for (victim, _) in victims {
            let state = tier.slot(victim.slot);
            self.note_life(victim, state.lived(self.space.sequence.load(Ordering::Relaxed)));
            tier.free_slot(victim.slot, &self.space.secret, self.space.runtime.now()).await?;
            if tier_name == self.space.output_tier().name() {
                self.gained_bytes.fetch_add(i64::from(tier.shape().segment_bytes), Ordering::Relaxed);
            }
            self.space.counters.count_freed(victim.records as u64);
            self.space.is_no_longer_full();
            self.space.announce_free_slot();
        }
        self.writer.admission.drained(self.drained_bytes(tier_name, victims.len()), worked);
        Ok(())
    }

    /// Bytes that so many freed segments mean for the tier that writers write to, since it was last asked.
    fn drained_bytes(&self, tier_name: TierName, victims: usize) -> i64 {
        if tier_name != self.writer.lane.shape.tier {
            return 0;
        }
        if tier_name != self.space.output_tier().name() {
            return victims as i64 * i64::from(self.space.tier(tier_name).shape().segment_bytes);
        }
        let gained = self.gained_bytes();
        gained - self.told_bytes.swap(gained, Ordering::Relaxed)
    }

    /// Placement learns from how long segments of short-lived records last.
    fn note_life(&self, victim: &Victim, lived: Option<u64>) {
        let collected = victim.shape.tier == self.space.output_tier().name();
        if let Some(lived) = lived
            && collected
            && victim.stream.is_short_lived()
        {
            self.catalog.placement.note_collected(lived, self.catalog.index.len());
        }
    }

    /// Whether the copies would take noticeably less room than the victim.
    fn is_worth_it(&self, victim: &Victim, entries: &[Entry]) -> bool {
        let copies = self.copies(true, 1.0);
        let copies: Vec<Entry> = entries
            .iter()
            .filter_map(|entry| match copies.need(victim, entry) {
                Need::Nothing => None,
                Need::Record => Some(*entry),
                // It takes its key, not its value.
                Need::Tombstone => Some(Entry { bytes: entry.bytes.min(TOMBSTONE_BYTES), ..*entry }),
            })
            .collect();
        let shape = self.space.output_tier().shape();
        // And the frame that says that they are durable.
        let bytes = copied_bytes(&copies, shape, frame_bytes(shape)) + u64::from(shape.unit_bytes);
        let used = u64::from(self.space.tier(victim.shape.tier).slot(victim.slot).used_bytes());
        bytes + (used as f64 * LEAST_YIELD) as u64 <= used
    }

    async fn copy(
        &mut self,
        tier_name: TierName,
        victims: &Victims,
        first: bool,
        urgency: f64,
    ) -> std::result::Result<Relocated, Failed<Error>> {
        let (free, for_staged) = (self.space.output_tier().free_slots(), self.kept_for_staged());
        let mut outputs = std::mem::take(&mut self.outputs);
        let mut copies = self.copies(first, urgency);
        // Beside that, the last one is for a relocation that finds no other when it begins.
        copies.keep = (for_staged + 1).min(free.saturating_sub(1)).max(for_staged);
        copies.open = AtomicUsize::new(outputs.keys().filter(|s| Stream::RELOCATED.contains(s)).count());
        let output_shape = self.space.output_tier().shape();
        let entries = || victims.iter().flat_map(|(_, entries)| entries);
        let bytes: u64 = entries().map(|e| output_shape.padded(e.bytes as usize)).sum();
        copies.record_bytes = (bytes / entries().count().max(1) as u64) as u32;
        if tier_name != output_shape.tier {
            copies.origin = Origin::Destaged;
        }
        let frame_bytes = frame_bytes(output_shape);
        let copied = copy_needed(&copies, &self.space.secret, victims, &mut outputs, frame_bytes).await;
        self.outputs = outputs;
        copied
    }

    fn copies(&self, first: bool, urgency: f64) -> CopyWriter<'_> {
        CopyWriter {
            space: self.space,
            catalog: self.catalog,
            writer: self.writer,
            bytes_per_s: self.bytes_per_s,
            first,
            opened_at: self.writer.lane.published_through(),
            oldest: self.space.oldest_segments(),
            durable: &self.durable,
            throttle: &self.throttle,
            gained_bytes: &self.gained_bytes,
            urgency,
            keep: 0,
            open: AtomicUsize::new(0),
            record_bytes: 0,
            origin: Origin::Collected,
        }
    }

    /// The copies are durable: the index goes from the old places to the new ones, except where a newer put was there
    /// first. Tombstones count where they were if not everything was copied: then they will be copied again.
    fn swing(&self, tier: TierName, victims: &Victims, relocated: &Relocated) {
        let output = self.space.output_tier();
        for m in &relocated.moves {
            let (victim, entry) = (&victims[m.victim].0, &m.entry);
            let class = class_of(u64::from(m.bytes));
            let new = Location { tier: output.name(), slot: m.slot, offset: m.offset, class };
            let old = self.space.location(tier, victim.slot, entry);
            let old_bytes = victim.shape.padded(entry.bytes as usize) as i64;
            let is_live = match (entry.kind, m.kind) {
                (Kind::Put, Kind::Put) => self.catalog.index.replace(
                    &entry.key_hash,
                    self.catalog.pointer(old),
                    self.catalog.pointer(new),
                ),
                _ => relocated.out_of_room_at.is_none_or(|at| m.victim < at),
            };
            let new_bytes = output.shape().padded(m.bytes as usize) as i64;
            match m.kind {
                _ if !is_live => {}
                Kind::Put => output.add_live(m.slot, new_bytes),
                Kind::Tombstone => output.add_tombstones(m.slot, new_bytes),
            }
            // An expired record ceased to count when it was taken out of the index.
            match entry.kind {
                kind if !is_live || kind != m.kind => {}
                Kind::Put => self.space.tier(tier).add_live(victim.slot, -old_bytes),
                Kind::Tombstone => self.space.tier(tier).add_tombstones(victim.slot, -old_bytes),
            }
        }
    }
}

#[cfg(test)]
#[path = "relocate_tests.rs"]
mod tests;
