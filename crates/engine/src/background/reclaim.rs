//! The reclaimer: does one piece of work to make room at a time. `rank` lists the reasons in the order in which they are
//! checked; `choose` selects the segments to relocate.
//!
//! Destaging empties the fast tier in the order of age. Collecting keeps slots of the output tier free: garbage stays until free
//! slots fall to the low-water mark, or until it exceeds its bound, if there is one. The fewer slots are free below the mark,
//! the less the reclaimer pauses.

mod choose;
mod damaged;
mod evict;
mod grouped;
mod rank;
mod sweep;
mod unverified;

pub(super) use self::choose::SURE_YIELD;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use esker_log::{EntryList, TYPICAL_ENTRY_BYTES, Tier as TierName};
use esker_seeded_bugs::{Bug, planted};

use crate::background::pause::Pauses;
use crate::background::reclaimer::{Choice, Reclaimer};
use crate::background::relocate::{AT_LAST, Outcome, Terms, may_free};
use crate::base::error::{Error, Result};
use crate::base::requests::Requests;
use crate::base::waiting::woken_or_after;
use crate::segments::contents::Expiry;
use crate::segments::kept_segments::LOOK_EVERY;
use crate::segments::slot::SlotState;
use crate::segments::space::Space;
use crate::write::Writer;
use crate::write::lane::Lane;

/// Number of failed reads after which a segment is not collected until the store is opened again.
const READ_ATTEMPTS: u32 = 3;

/// Destages and collects until the store closes.
pub(crate) async fn run(writer: Arc<Writer>, compactions: Arc<Requests>, pauses: Arc<Pauses>) {
    let (space, writer) = (&*writer.space, &*writer);
    let mut reclaimer = Reclaimer::new(writer, &compactions);
    loop {
        let woken = space.reclaim.notified();
        if space.health.check_writable().is_err() {
            if space.health.check_latch().is_ok()
                && let Err(error) = reclaimer.relocator.finish().await
            {
                space.latch(&error);
            }
            break;
        }
        if let Some(pause) = pauses.take() {
            pause.rest(reclaimer.relocator.output_ends(), space).await;
        }
        reclaimer.begin_compaction();
        reclaimer.relocator.set_limit(writer.changeable.background_bytes_per_s());
        reclaimer.relocator.set_lead();
        writer.pressure.requests.look();
        writer.pressure.sweeps.look();
        match reclaimer.step().await {
            Ok(true) => {}
            Ok(false) => {
                if !reclaimer.waits_for_reader {
                    writer.pressure.requests.done();
                }
                writer.pressure.sweeps.done();
                reclaimer.rest(woken).await;
            }
            // The store closes; leaves no output unsealed.
            Err(Error::Closed { .. }) if space.health.check_writable().is_err() => {}
            Err(Error::Closed { .. }) => break,
            Err(error) if survives(space, &error).await => reclaimer.relocator.abandon_lost(),
            Err(error) => {
                space.latch(&error);
                break;
            }
        }
    }
    let error = Error::Closed { reason: "it was closed while it was compacted".into() };
    compactions.fail(&error);
    pauses.end();
    writer.pressure.requests.fail(&error);
    writer.pressure.sweeps.fail(&error);
}

/// Returns true if the error is about a device that the store left out.
async fn survives(space: &Space, error: &Error) -> bool {
    for tier in space.tiers() {
        if space.survives(tier, error).await {
            return true;
        }
    }
    false
}

impl Reclaimer<'_> {
    /// Waits for work.
    async fn rest(&mut self, woken: impl Future<Output = ()>) {
        let sweep = self.sweep_due();
        let kept = self.space.kept.wanted().map(|_| LOOK_EVERY);
        let due = sweep
            .into_iter()
            .chain(kept)
            .chain(self.dead_due())
            .chain(self.unverified_due())
            .chain(self.catalog.clock_due())
            .min();
        woken_or_after(&*self.space.runtime, woken, due).await;
    }

    /// Does one piece of work that was requested or is needed. Returns false if there is none. The two alternate, so that
    /// neither waits for the end of the other, which may never come.
    async fn step(&mut self) -> Result<bool> {
        // Draining and compactions alternate with other work.
        self.compacted_last = !self.compacted_last && (self.compact().await? || self.drain().await?);
        Ok(self.compacted_last || self.keep_up().await? || self.compaction.is_some() || self.drain().await?)
    }

    /// Returns true if writers wait for room, or soon will.
    pub(crate) fn runs_short(&self) -> bool {
        self.writer.pressure.requests.is_wanted()
            || self.space.urgency() >= AT_LAST
            || self.writer.lanes().any(|lane| self.is_short(lane))
    }

    /// Returns true if no checkpoint has still to read any of these segments; see [`may_free`].
    pub(crate) fn may_free(&mut self, tier: TierName, slots: &[u32]) -> bool {
        let runs_short = self.runs_short();
        let mut segments = slots.iter().map(|&slot| self.space.tier(tier).slot(slot).segment());
        let may_free = segments.all(|segment| may_free(self.space, segment, runs_short));
        self.waits_for_reader |= !may_free;
        may_free
    }

    /// Relocates the chosen segments. Returns false if there was no room for that.
    pub(crate) async fn carry_out(&mut self, choice: Choice) -> Result<bool> {
        let Choice { tier, slots, urgency, yield_bytes, terms } = choice;
        match self.relocator.relocate(tier, &slots, urgency, terms).await {
            Ok(Outcome::Freed(segments)) => {
                if segments > 0 {
                    self.one_at_a_time = false;
                    self.note_progress(tier, yield_bytes);
                }
                if terms == Terms::IfNothingIsCopied {
                    self.note_hiding(tier, &slots);
                }
                Ok(true)
            }
            // Fewer segments need less room until the first of them is free.
            Ok(Outcome::OutOfRoom) if slots.len() > 1 => {
                self.one_at_a_time = true;
                Ok(true)
            }
            Ok(Outcome::OutOfRoom) => {
                if terms == Terms::Always {
                    // Collecting may still make room; if not, the next step finds no work.
                    self.stuck = Some(self.state_of_output());
                }
                Ok(false)
            }
            Err((slot, error)) if error.is_of_reading() => {
                self.put_aside(tier, slot, &error);
                Ok(true)
            }
            Err((_, error)) => Err(error),
        }
    }

    /// Called when nothing can be collected: evicts, if the store may and there is a segment to evict from; otherwise refuses
    /// the waiting writers, because the store is full. `seals`: number of sealed segments before the choice.
    async fn evict_or_declare_full(&mut self, seals: u64) -> Result<bool> {
        let is_short = self.writer.lanes().any(|lane| self.is_short(lane));
        // Slots that only wait for a memtable are no reason to refuse a put.
        if is_short && self.relocator.free_emptied(true).await? {
            return Ok(true);
        }
        if !self.writer.lanes().any(|lane| self.waits_in_vain(lane)) {
            return Ok(false);
        }
        // A segment sealed meanwhile may be worth collecting.
        if self.seals() != seals {
            return Ok(true);
        }
        if self.when_full().evicts() && self.evict().await? {
            return Ok(true);
        }
        self.declare_full();
        Ok(false)
    }

    /// Returns the number of lane segments that got their summaries.
    fn seals(&self) -> u64 {
        self.writer.lanes().map(|lane| lane.seals()).sum()
    }

    /// Returns true if writers of a lane wait, or soon will, and there is no slot for them; but not while a slot is being
    /// discarded, or a segment is being opened for the lane. The conditions are tested in this order so that a segment handed
    /// over in between is seen.
    fn is_short(&self, lane: &Lane) -> bool {
        let tier = self.space.tier(lane.shape.tier);
        let kept =
            self.space.kept_slots(tier) + self.space.coalescing_reserve() + self.space.log_reserve(tier);
        let is_full = tier.allocation(|slots| slots.free_slots_soon()) <= kept;
        is_full && !lane.is_being_provided() && lane.is_out_of_room()
    }

    /// Returns true if moreover no slot can be freed. A segment that is being sealed may be worth collecting or evicting, and
    /// emptied segments will be freed.
    fn waits_in_vain(&self, lane: &Lane) -> bool {
        // A checkpoint that has still to read a segment continues, or is cancelled soon.
        let will_be_free = self.relocator.has_emptied() || self.waits_for_reader;
        let is_short = self.is_short(lane) && !will_be_free;
        let is_sealing = || self.writer.lanes().any(|lane| lane.is_sealing());
        is_short && (!is_sealing() || planted(Bug::FullWhileSealing))
    }

    /// Refuses the writers that wait in vain.
    fn declare_full(&self) {
        for lane in self.writer.lanes().filter(|lane| self.waits_in_vain(lane)) {
            let was_full = self.space.full.swap(true, Ordering::AcqRel);
            let was_stuck = was_full && self.space.stuck.swap(true, Ordering::AcqRel);
            lane.refuse_waiting(self.space.full_error(self.writer.used_bytes()));
            if !was_stuck {
                // The preallocation may now lend a slot to deletes, or a second one if the first did not suffice.
                self.space.announce_free_slot();
            }
        }
    }

    /// Returns the sealed segment that expired first.
    pub(crate) fn expired(&self, expiry: Expiry) -> Option<(TierName, u32)> {
        let now = self.catalog.confirmed_ms();
        let due =
            self.space.tiers().filter_map(|tier| Some((tier.slots().expired(expiry, now)?, tier.name())));
        due.min_by_key(|&((at_ms, _), _)| at_ms).map(|((_, slot), tier)| (tier, slot))
    }

    /// Removes expired records of a sealed segment from the index. Returns the approximate number of bytes read for that.
    pub(crate) async fn expire(&mut self, tier: TierName, slot: u32) -> Result<u64> {
        let (expirer, mut bytes) = (self.expirer, 0);
        let entries = self.space.read_entries_or_scan(self.space.tier(tier), slot).await;
        self.with_entries(tier, slot, entries, async |entries| {
            bytes = entries.len() as u64 * TYPICAL_ENTRY_BYTES;
            expirer.expire_segment(tier, slot, entries).await
        })
        .await?;
        Ok(bytes)
    }

    /// Calls `work` with the entries of a segment's summary, if it could be read.
    async fn with_entries(
        &mut self,
        tier: TierName,
        slot: u32,
        entries: Result<Option<EntryList>>,
        work: impl AsyncFnOnce(&EntryList) -> Result<()>,
    ) -> Result<()> {
        let done = match entries {
            Ok(Some(entries)) => work(&entries).await,
            Ok(None) => {
                self.space.tier(tier).slots().set_state(slot, SlotState::Damaged);
                Ok(())
            }
            Err(error) => Err(error),
        };
        match done {
            Err(error) if error.is_of_reading() => {
                self.put_aside(tier, slot, &error);
                Ok(())
            }
            done => done,
        }
    }

    /// Handles a segment that could not be read: it is retried a few times, and then kept as it is. Its records can still be
    /// requested; their damage is an error of those calls, not of the store.
    ///
    /// The unreadable data may be in another segment. Then that one is put aside as well, and this one is retried, but not
    /// forever, because without the other it may never become empty.
    fn put_aside(&mut self, tier: TierName, slot: u32, error: &Error) {
        match self.space.place_of(error) {
            Some((other_tier, other)) if (other_tier, other) != (tier, slot) => {
                if self.space.tier(other_tier).slot(other).state() == SlotState::Sealed {
                    self.note_failure(other_tier, other, error, matches!(error, Error::Corrupt { .. }));
                }
                self.space.tier(tier).slots().do_not_collect(slot);
                self.note_failure(tier, slot, error, false);
            }
            _ => self.note_failure(tier, slot, error, matches!(error, Error::Corrupt { .. })),
        }
    }

    fn note_failure(&mut self, tier: TierName, slot: u32, error: &Error, for_good: bool) {
        let slots = self.space.tier(tier).slots();
        let segment = slots.slot(slot).segment();
        let failures = self.failures.entry(segment).or_default();
        *failures += 1;
        let give_up = *failures >= READ_ATTEMPTS || for_good;
        if give_up {
            tracing::error!(segment, %error, "a segment cannot be read; it is kept as it is");
        }
        slots.set_state(slot, if give_up { SlotState::Damaged } else { SlotState::Sealed });
    }
}
