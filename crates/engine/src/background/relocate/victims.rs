//! The victims of relocation: accepted if copying them gives room back, and freed when no entry leads to them any more.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_gc::{Failed, Need, Source, Victim, copied_bytes};
use esker_log::{Entry, EntryList, Location, Tier as TierName};
use esker_seeded_bugs::{Bug, planted};

use super::freeing::Emptied;
use super::{Eviction, Relocator, Terms, Victims};

use crate::base::completion::Waiter;
use crate::base::error::{Error, Result};
use crate::segments::limit::frame_bytes;
use crate::segments::sets::LEAST_YIELD;
use crate::segments::slot::SlotState;
use crate::segments::space::Space;

/// Returns true if no checkpoint has still to read a segment. If one has, it reads that segment next, and is cancelled if it is
/// overdue and slots run short.
pub(crate) fn may_free(space: &Space, segment: u64, runs_short: bool) -> bool {
    space.kept.want(segment, space.runtime.now(), runs_short, |reason| {
        space.counters.count_checkpoint_cancelled();
        tracing::error!("a backup was cancelled: {reason}");
    })
}

impl Relocator<'_> {
    /// Makes a sealed segment a victim if the terms of relocating it are met, and reads its summary.
    pub(super) async fn make_victim(
        &self,
        tier_name: TierName,
        slot: u32,
        terms: Terms,
    ) -> Result<Option<(Victim, EntryList)>> {
        let tier = self.space.tier(tier_name);
        let state = tier.slot(slot);
        if !tier.slots().advance(slot, SlotState::Sealed, SlotState::Victim) {
            return Ok(None);
        }
        let Some(entries) = self.space.read_entries_or_scan(tier, slot).await? else {
            tracing::error!(segment = state.segment(), "a summary is damaged; its segment is kept as it is");
            tier.slots().set_state(slot, SlotState::Damaged);
            return Ok(None);
        };
        self.expirer.expire_segment(tier_name, slot, &entries).await?;
        let records = entries.len();
        let entries = self.catalog.verify_segment(tier_name, slot, &entries).await?;
        let (segment, stream) = (state.segment(), state.stream());
        let victim = Victim { segment, slot, shape: tier.shape(), stream, records };
        if !self.meets(terms, &victim, &entries) {
            if terms == Terms::IfItPays {
                // The segment looked emptier than it is: records that fill their write units badly here do so elsewhere too.
                // It is left alone until more of it is dead.
                tier.slots().do_not_collect(slot);
            }
            tier.slots().set_state(slot, SlotState::Sealed);
            return Ok(None);
        }
        Ok(Some((victim, entries)))
    }

    /// Keeps only those victims in the list of which all needed records were copied and to which no entry leads any more.
    pub(super) async fn keep_emptied(
        &self,
        tier_name: TierName,
        victims: &mut Victims,
        copied: &BTreeSet<u32>,
    ) -> std::result::Result<(), Failed<Error>> {
        for (number, (victim, entries)) in victims.iter().enumerate() {
            if copied.contains(&victim.slot) {
                let verified = self.catalog.verify_segment(tier_name, victim.slot, entries).await;
                verified.map_err(|error| Failed::at(number, error))?;
            }
        }
        let is_emptied = |(victim, entries): &(Victim, EntryList)| {
            copied.contains(&victim.slot) && self.is_empty(victim, entries)
        };
        let (emptied, others) = std::mem::take(victims).into_iter().partition(is_emptied);
        *victims = emptied;
        self.give_up(tier_name, &others);
        Ok(())
    }

    /// Returns true if no entry leads to a victim any more, except for records to be dropped.
    pub(super) fn is_empty(&self, victim: &Victim, entries: &EntryList) -> bool {
        let tier = victim.shape.tier;
        let drops = |entry: &Entry| self.eviction.as_ref().is_some_and(|f| f.drops(victim, entry));
        let is_left = |entry: Entry| self.catalog.is_known(tier, victim.slot, &entry) && !drops(&entry);
        let is_empty = !entries.iter().any(is_left);
        let is_all = self.eviction.as_ref().is_none_or(Eviction::is_held);
        if cfg!(debug_assertions) && is_empty && is_all {
            self.catalog.index.displaced(|pointer| {
                let Location { tier: of, slot, .. } = self.catalog.packing.unpack(pointer.get());
                assert!(of != tier || slot != victim.slot, "an unverified overwrite still names this victim");
            });
        }
        is_empty
    }

    /// Leaves victims in place, with their remaining records.
    pub(super) fn give_up(&self, tier: TierName, victims: &[(Victim, EntryList)]) {
        for (victim, _) in victims {
            self.space.tier(tier).slots().advance(victim.slot, SlotState::Victim, SlotState::Sealed);
        }
    }

    /// Frees emptied victims, now or later.
    pub(super) async fn free(
        &mut self,
        tier_name: TierName,
        victims: Victims,
        worked: Duration,
    ) -> Result<()> {
        if victims.is_empty() {
            return Ok(());
        }
        if tier_name == self.space.output_tier().name() {
            let freed = victims.len() as i64 * i64::from(self.space.tier(tier_name).shape().segment_bytes);
            self.gained_bytes.fetch_add(freed, Ordering::Relaxed);
        }
        // Records that superseded theirs may be in a memtable, which is not written out early for that unless it is urgent.
        let superseded_by = self.writer.lane.coalescing_memtable();
        let emptied = Emptied { tier: tier_name, victims, worked, superseded_by };
        let is_kept = emptied.victims.iter().any(|(victim, _)| self.space.kept.has(victim.segment));
        if self.eviction.is_none() && (emptied.superseded_by.is_some() || is_kept) {
            self.emptied.push(emptied);
            return Ok(());
        }
        // Records that superseded the victims' must be durable first, because otherwise a power failure could lose both.
        if !planted(Bug::FreedBeforeNewerDurable) {
            self.writer.flush().await?;
        }
        self.free_now(emptied).await
    }

    /// Frees emptied victims of which all superseding records are durable by now and that no checkpoint keeps. If there are
    /// none and others are `wanted`, writes the memtable out for them, or waits for the one being written out, after which
    /// the caller tries again. Returns false if no victim was freed and no memtable waited for.
    pub(crate) async fn free_emptied(&mut self, wanted: bool) -> Result<bool> {
        let space = self.space;
        let is_released = |emptied: &mut Emptied| {
            let mut victims = emptied.victims.iter();
            victims.all(|(victim, _)| may_free(space, victim.segment, wanted))
        };
        let is_ready = |emptied: &mut Emptied| {
            emptied.superseded_by.as_ref().is_none_or(Waiter::is_open) && is_released(emptied)
        };
        let mut ready: Vec<Emptied> = self.emptied.extract_if(.., is_ready).collect();
        let is_held_by_memtable = |emptied: &Emptied| emptied.superseded_by.is_some();
        if ready.is_empty() && wanted && self.emptied.iter().any(is_held_by_memtable) {
            // The memtable being written out returns slots, and may be all that they wait for.
            if let Some(leaving) = self.writer.lane.leaving_memtable() {
                leaving.wait().await?;
                return Ok(true);
            }
            self.writer.flush().await?;
            ready.extend(self.emptied.extract_if(.., is_released));
        }
        if ready.is_empty() {
            return Ok(false);
        }
        if !planted(Bug::FreedBeforeNewerDurable) {
            self.writer.flush_lanes().await?;
        }
        for emptied in ready {
            self.free_now(emptied).await?;
        }
        Ok(true)
    }

    /// Returns true if there are emptied victims that are not free yet.
    pub(crate) fn has_emptied(&self) -> bool {
        !self.emptied.is_empty()
    }

    async fn free_now(&self, emptied: Emptied) -> Result<()> {
        let Emptied { tier: tier_name, victims, worked, .. } = emptied;
        let tier = self.space.tier(tier_name);
        let [first, last] = tier.ends_to_mark();
        for (victim, entries) in &victims {
            debug_assert!(!self.space.kept.has(victim.segment), "a checkpoint has still to read it");
            let state = tier.slot(victim.slot);
            self.note_life(victim, state.lived(self.space.sequence.load(Ordering::Relaxed)));
            if planted(Bug::EvictedBeforeMarked) {
                self.drop_evicted(tier_name, victim, entries);
            }
            tier.mark_free(victim.slot, &self.space.secret, first).await?;
            self.drop_evicted(tier_name, victim, entries);
            tier.mark_free(victim.slot, &self.space.secret, last).await?;
            tier.leave_slot(victim.slot, self.space.runtime.now());
            self.space.counters.count_freed(victim.records as u64);
            self.space.is_no_longer_full();
            self.space.announce_free_slot();
        }
        self.note_drained(tier_name, victims.len(), worked);
        Ok(())
    }

    /// Reports the bytes that `victims` freed segments of a tier gained since the last call, within `worked`.
    fn note_drained(&self, tier_name: TierName, victims: usize, worked: Duration) {
        let mut gained = victims as i64 * i64::from(self.space.tier(tier_name).shape().segment_bytes);
        if tier_name == self.space.output_tier().name() {
            let total = self.gained_bytes();
            gained = total - self.told_bytes.swap(total, Ordering::Relaxed);
            self.low_water.lock().note_gained(gained, worked);
        }
        let is_of_writers = tier_name == self.writer.lane.shape.tier;
        self.writer.admission.drained(if is_of_writers { gained } else { 0 }, worked);
    }

    /// Tells placement how long a segment of short-lived records lasted.
    fn note_life(&self, victim: &Victim, lived: Option<u64>) {
        let collected = victim.shape.tier == self.space.output_tier().name();
        if let Some(lived) = lived
            && collected
            && victim.stream.is_short_lived()
        {
            self.catalog.placement.note_collected(lived, self.catalog.index.len());
        }
    }

    /// Returns true if a victim of the output tier meets the terms of relocating it. Whether it pays depends on its records alone:
    /// tombstones for expired ones are copied even if they take as much room, because tombstones count, and are dropped when they
    /// become too many (`tombstones`), while expired records would stay as long as the segment.
    fn meets(&self, terms: Terms, victim: &Victim, entries: &EntryList) -> bool {
        if terms == Terms::Always {
            return true;
        }
        let source = self.source(true, 1.0);
        let is_copied = |entry: &Entry| match source.need(victim, entry) {
            Need::Nothing => false,
            Need::Record => true,
            Need::Tombstone => terms == Terms::IfNothingIsCopied || planted(Bug::TombstonesMustPay),
        };
        let copies = entries.iter().filter(is_copied);
        let shape = self.space.output_tier().shape();
        let bytes = copied_bytes(copies, shape, frame_bytes(shape));
        let gives_back = self.space.tier(victim.shape.tier).slots().gives_back_bytes(victim.slot);
        // Includes the frame that proves the copies durable.
        let proof_bytes = u64::from(shape.unit_bytes);
        let pays = bytes + proof_bytes + (gives_back as f64 * LEAST_YIELD) as u64 <= gives_back;
        bytes == 0 || terms == Terms::IfItPays && pays
    }
}
