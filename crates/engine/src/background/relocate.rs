//! Relocation of segments, one at a time or several short ones: the protocol of `esker_gc`'s `relocate` module, on the tiers of
//! this store.
//!
//! While a victim is being emptied, puts may displace its records and leave unverified overwrites of it; it is freed only when
//! none of its records is current and no unverified overwrite of it is left.

mod coalesced;
mod damaged;
mod evict;
mod freeing;
mod memtable_versions;
mod outputs;
mod victims;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use esker_gc::{Failed, Inputs, LowWater, Outputs, Relocated, Throttle, copy_needed};
use esker_log::{Entry, Kind, Tier as TierName};
use esker_seeded_bugs::{Bug, planted};
use parking_lot::Mutex;

pub(crate) use self::evict::Eviction;
use self::freeing::Emptied;
pub(crate) use self::freeing::{AT_LAST, SHORT, Victims};
pub(crate) use self::memtable_versions::Newest;
pub(crate) use self::victims::may_free;

use crate::background::copies::{CopyTarget, Pace, VictimReader, yield_device};
use crate::background::expire::Expirer;
use crate::base::error::Error;
use crate::catalog::Catalog;
use crate::segments::accounting::Origin;
use crate::segments::contents::NEVER_MS;
use crate::segments::damaged::Tombstone;
use crate::segments::limit::frame_bytes;
use crate::segments::slot::SlotState;
use crate::segments::space::Space;
use crate::segments::writer::Summary;
use crate::write::Writer;

/// Slots of the capacity tier that destaging leaves to collecting, which cannot work without.
pub(crate) const KEEP_FOR_COLLECTING: u32 = 2;

/// Result of relocating segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Number of segments that are freed; the others are not collected, or kept because they are damaged.
    Freed(usize),
    /// No room for the needed records.
    OutOfRoom,
}

/// Terms on which a segment is relocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Terms {
    /// Whatever that gains.
    Always,
    /// If the copies of its records take noticeably less room.
    IfItPays,
    /// If nothing of it is copied.
    IfNothingIsCopied,
}

/// Moves records between segments.
pub(crate) struct Relocator<'a> {
    space: &'a Space,
    catalog: &'a Catalog,
    writer: &'a Writer,
    expirer: Expirer<'a>,
    /// Limit of reads and writes in bytes per second; 0 means none.
    bytes_per_s: u64,
    outputs: Outputs,
    throttle: Mutex<Throttle>,
    /// Bytes of the output tier that collecting freed, minus the bytes of outputs that it used up.
    gained_bytes: AtomicI64,
    /// Value of `gained_bytes` last reported to admission, which gets the differences.
    told_bytes: AtomicI64,
    /// Rates of writing and collecting in the output tier.
    low_water: Mutex<LowWater>,
    /// Time spent on other work since the last relocation.
    other_work: Duration,
    /// Emptied victims, to be freed when the records that superseded theirs are durable.
    emptied: Vec<Emptied>,
    /// Full outputs that must not be collected yet; see [`CopyTarget::filled`].
    filled: Mutex<Vec<Summary>>,
    /// Records to be dropped from the segment being emptied.
    eviction: Option<Eviction>,
    /// Lower bound of the expiry times of records in the outputs that are still to be removed from the index on expiry.
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
            throttle: Mutex::default(),
            gained_bytes: AtomicI64::new(0),
            told_bytes: AtomicI64::new(0),
            low_water: Mutex::default(),
            other_work: Duration::ZERO,
            emptied: Vec::new(),
            filled: Mutex::default(),
            eviction: None,
            expires_from: NEVER_MS,
        }
    }

    /// Limits its reads and writes to `bytes_per_s` from now on; 0 means no limit.
    pub(crate) fn set_limit(&mut self, bytes_per_s: u64) {
        self.bytes_per_s = bytes_per_s;
        self.throttle.get_mut().set_limit(bytes_per_s);
    }

    /// Returns the bytes of the output tier that collecting freed, minus the bytes of outputs that it used up.
    pub(crate) fn gained_bytes(&self) -> i64 {
        self.gained_bytes.load(Ordering::Relaxed)
    }

    /// Sets the distance of the low-water mark from the number of free slots at which writers are paced, by the rates of
    /// writing and collecting.
    pub(crate) fn set_lead(&mut self) {
        let written = self.space.output_tier().accounting().written();
        let by_writers =
            written.user_bytes + written.destaged_bytes + written.recovered_bytes + written.padding_bytes;
        let low_water = self.low_water.get_mut();
        low_water.note_written(self.space.runtime.now(), by_writers);
        self.space.set_lead(low_water.lead_slots(self.space.spare_slots()));
    }

    /// Accounts for other work on `bytes` that began at `began`, and pauses to leave the device to others.
    pub(crate) async fn did_other_work(&mut self, bytes: u64, began: Duration, urgency: f64) {
        self.other_work += self.space.runtime.now() - began;
        yield_device(self.space, &self.throttle, bytes, began, urgency).await;
    }

    /// Empties segments of a tier and frees them. `urgency`: share of the device that it may use, 0 to 1.
    ///
    /// # Errors
    /// Returns the slot at which the error happened.
    pub(crate) async fn relocate(
        &mut self,
        tier_name: TierName,
        slots: &[u32],
        urgency: f64,
        terms: Terms,
    ) -> std::result::Result<Outcome, (u32, Error)> {
        let (began, paused) = (self.space.runtime.now(), self.throttle.lock().paused());
        let mut victims: Victims = Vec::with_capacity(slots.len());
        for &slot in slots {
            match self.make_victim(tier_name, slot, terms).await {
                Ok(victim) => victims.extend(victim),
                Err(error) => {
                    self.give_up(tier_name, &victims);
                    return Err((slot, error));
                }
            }
        }
        match self.empty_all(tier_name, &mut victims, urgency).await {
            Ok(Outcome::Freed(_)) => {}
            Ok(Outcome::OutOfRoom) => {
                return Ok(Outcome::OutOfRoom);
            }
            Err(failed) => {
                // A victim that turned out to be damaged is no longer in the list.
                let slot = victims.get(failed.victim).map_or(slots[0], |(victim, _)| victim.slot);
                self.give_up(tier_name, &victims);
                return Err((slot, failed.error));
            }
        }
        let took = (self.space.runtime.now() - began).saturating_sub(self.throttle.lock().paused() - paused);
        // Other work done while no segment had to be freed delayed nothing.
        let worked = took + std::mem::take(&mut self.other_work).min(took);
        if !victims.is_empty() && !planted(Bug::CopiesNotProven) {
            self.prove_outputs().await.map_err(|error| (slots[0], error))?;
        }
        let count = victims.len();
        self.free(tier_name, victims, worked).await.map_err(|error| (slots[0], error))?;
        Ok(Outcome::Freed(count))
    }

    /// Copies the needed records. Records to be dropped stay in place, and no other writer can change their keys.
    async fn empty_all(
        &mut self,
        tier_name: TierName,
        victims: &mut Victims,
        urgency: f64,
    ) -> std::result::Result<Outcome, Failed<Error>> {
        let emptied = self.empty(tier_name, victims, urgency).await?;
        if self.eviction.is_none() || emptied == Outcome::OutOfRoom {
            return Ok(emptied);
        }
        let held = self.hold_evicted(tier_name, victims).await;
        held.map_err(|error| Failed::at(0, error))?;
        let victim = victims.first().map(|(victim, _)| *victim);
        // Writers may wait for these keys, so there are no pauses.
        let emptied = self.empty(tier_name, victims, 1.0).await;
        if let Some(victim) = victim.filter(|_| victims.is_empty() || emptied.is_err()) {
            self.drop_buried(tier_name, &victim).await.map_err(|error| Failed::at(0, error))?;
        }
        emptied
    }

    /// Copies until no record of the victims is needed. Victims with damage are removed from the list.
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
                *entries = needed.map_err(|error| Failed::at(number, error))?;
            }
            let relocated = match self.copy(tier_name, victims, first, urgency).await {
                Ok(relocated) => relocated,
                Err(failed) => {
                    self.note_buried(victims, &failed.done.moves);
                    return Err(failed);
                }
            };
            self.note_expiries(&relocated);
            self.note_buried(victims, &relocated.moves);
            if !relocated.moves.is_empty() {
                if let Err(error) = self.flush_copies(&relocated).await {
                    let copies = relocated.moves.iter().map(|copy| copy.slot);
                    self.note_left_copies(tier_name, victims, copies);
                    return Err(Failed::at(0, error));
                }
                self.swing(tier_name, victims, &relocated);
                self.space.counters.count_moved(relocated.moves.len() as u64);
            }
            let emptied: BTreeSet<u32> = victims[..relocated.out_of_room_at.unwrap_or(victims.len())]
                .iter()
                .map(|(victim, _)| victim.slot)
                .collect();
            self.keep_damaged(tier_name, victims, &relocated.damaged).await;
            victims.retain(|(victim, _)| {
                self.space.tier(tier_name).slot(victim.slot).state() == SlotState::Victim
            });
            if relocated.out_of_room_at.is_some() {
                // Victims that were emptied before can be freed nevertheless, and make room for the others.
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

    /// Includes the expiry times of copied records in the outputs' next expiry.
    fn note_expiries(&mut self, relocated: &Relocated) {
        let copies = relocated.moves.iter().filter(|m| m.kind == Kind::Put);
        let soonest_ms = copies.filter_map(|m| m.entry.expires_at_ms).min();
        self.expires_from = self.expires_from.min(soonest_ms.unwrap_or(NEVER_MS));
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
        let shape = self.space.output_tier().shape();
        let source = self.source(first, urgency);
        let target = CopyTarget {
            origin: if tier_name == shape.tier { Origin::Collected } else { Origin::Destaged },
            // In addition, the last slot is left for a relocation that finds no other when it begins.
            keep: (for_staged + 1).min(free.saturating_sub(1)).max(for_staged),
            record_bytes: mean_record_bytes(victims, |entry| shape.padded(entry.bytes as usize)),
            ..self.target(urgency)
        };
        let inputs = Inputs { secret: &self.space.secret, victims, shape, frame_bytes: frame_bytes(shape) };
        let copied = copy_needed(inputs, &source, &target, &mut outputs).await;
        if let Err(failed) = &copied
            && !planted(Bug::LeftCopiesForgotten)
        {
            let sealed = failed.done.sealed.iter().copied();
            self.note_left_copies(tier_name, victims, sealed.chain(slots_of(&outputs)));
        }
        self.outputs = outputs;
        copied
    }

    /// Handles a failed copy, after which the index still points at the victims: some of their versions are also in these
    /// outputs.
    fn note_left_copies(&self, tier: TierName, victims: &Victims, outputs: impl Iterator<Item = u32>) {
        outputs.for_each(|slot| self.space.output_tier().slots().hold_copies(slot));
        victims.iter().for_each(|(victim, _)| self.space.tier(tier).slot(victim.slot).note_hides());
    }

    /// Returns the records of victims. `first`: in the first round.
    fn source(&self, first: bool, urgency: f64) -> VictimReader<'_> {
        VictimReader {
            space: self.space,
            catalog: self.catalog,
            pace: self.pace(urgency),
            first,
            eviction: self.eviction.as_ref(),
            oldest: self.space.oldest_segments(),
            memtable: None,
        }
    }

    /// Returns the segments that receive copies.
    fn target(&self, urgency: f64) -> CopyTarget<'_> {
        CopyTarget {
            space: self.space,
            pace: self.pace(urgency),
            origin: Origin::Collected,
            opened_at: match planted(Bug::OutputOpenedAtNewest) {
                false => self.writer.lane.published_through(),
                true => self.space.sequence.load(Ordering::Acquire),
            },
            keep: 0,
            record_bytes: 0,
            gained_bytes: &self.gained_bytes,
            filled: None,
        }
    }

    fn pace(&self, urgency: f64) -> Pace<'_> {
        Pace { writer: self.writer, throttle: &self.throttle, bytes_per_s: self.bytes_per_s, urgency }
    }

    /// Swings the index from the old locations to the durable copies, except where a newer put has replaced the record. Victims
    /// may stay, if there is no room for their other records. Tombstones of a victim that was not copied completely still count
    /// there, because they will be copied again.
    fn swing(&self, tier: TierName, victims: &Victims, relocated: &Relocated) {
        let output = self.space.output_tier();
        for m in relocated.moves.iter() {
            let (victim, entry) = (&victims[m.victim].0, &m.entry);
            let old = self.space.location(tier, victim.slot, entry);
            // Put records are copied unchanged, and the content of a tombstone is never read.
            let copy = Entry { offset: m.offset, bytes: m.bytes, ..*entry };
            self.catalog.expansions.note(&copy);
            let new = self.space.location(output.name(), m.slot, &copy);
            let old_bytes = i64::from(entry.bytes);
            if m.kind == Kind::Put {
                self.space.tier(tier).slots().hold_copies(victim.slot);
            }
            let is_live = match (entry.kind, m.kind) {
                (Kind::Put, Kind::Put) => {
                    self.catalog.swing(&entry.key_hash, (victim.segment, old), (new, m.bytes))
                        || planted(Bug::LiveBytesMovedBeforeSwing)
                }
                _ => {
                    let is_evicted = self.eviction.as_ref().is_some_and(|f| f.drops(victim, entry));
                    is_evicted || relocated.out_of_room_at.is_none_or(|at| m.victim < at)
                }
            };
            let new_bytes = i64::from(m.bytes);
            match m.kind {
                _ if !is_live => {}
                Kind::Put => output.add_live(m.slot, new_bytes),
                Kind::Tombstone => output.add_tombstones(m.slot, new_bytes),
                // Segments of the log are never relocated.
                Kind::Log => {}
            }
            // An expired record ceased to count when it was removed from the index.
            match entry.kind {
                kind if !is_live || kind != m.kind => {}
                Kind::Put => self.space.tier(tier).add_live(victim.slot, -old_bytes),
                Kind::Tombstone => self.space.tier(tier).add_tombstones(victim.slot, -old_bytes),
                Kind::Log => {}
            }
            if is_live && m.kind == Kind::Tombstone {
                let (tier, slot, bytes) = (output.name(), m.slot, m.bytes);
                let (sequence, segment) = (entry.sequence, output.slot(slot).segment());
                let tombstone = Tombstone { sequence, tier, slot, segment, bytes };
                self.space.note_tombstone(&entry.key_hash, tombstone);
            }
        }
    }
}

/// Returns the slots of open outputs.
fn slots_of(outputs: &Outputs) -> impl Iterator<Item = u32> {
    outputs.values().map(|output| output.segment.name().slot)
}

/// Returns the mean length of the victims' records that may be needed.
fn mean_record_bytes(victims: &Victims, bytes: impl Fn(&Entry) -> u64) -> u32 {
    let entries = || victims.iter().flat_map(|(_, entries)| entries.iter());
    let total: u64 = entries().map(|entry| bytes(&entry)).sum();
    (total / entries().count().max(1) as u64) as u32
}

#[cfg(test)]
#[path = "relocate_tests.rs"]
mod tests;
