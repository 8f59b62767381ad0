//! Verifies unverified overwrites before the segments with the displaced records are relocated, so that they take little
//! memory.
//!
//! Verifying reads a segment's summary, whether it has many displaced records or few. It is therefore deferred while there is
//! memory for more unverified overwrites, and then begins with the segments that have most. Of a segment only those records are
//! examined that were displaced at the time of counting.

use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_gc::CALM;
use esker_index::Pointer;
use esker_log::{TYPICAL_ENTRY_BYTES, Tier as TierName};
use hashbrown::HashMap;

use crate::background::reclaimer::{Displaced, Reclaimer, Unverified};
use crate::background::relocate::SHORT;
use crate::base::error::Result;
use crate::base::fixed_hash::FixedState;
use crate::segments::slot::SlotState;

/// Number of segments whose overwrites are verified before any other work while the pressure is above 1. The pressure is the
/// memory that unverified overwrites take, divided by its limit.
const SEGMENTS_AT_A_TIME: usize = 8;
/// Pressure above which relocation waits until it is lower, unless slots run short.
const PRESSURE_BEFORE_RELOCATION: f64 = 1.2;
/// Pressure down to which overwrites are verified when idle, while there are writers.
const PRESSURE_WITH_WRITERS: f64 = 0.5;
/// Pressure down to which overwrites are verified when nothing was written for [`QUIET_AFTER`].
const PRESSURE_WHEN_QUIET: f64 = 1.0 / 16.0;
/// Time without writes after which the store counts as quiet.
const QUIET_AFTER: Duration = Duration::from_millis(500);
/// One count of unverified overwrites serves for the segments with most of them: the number of segments that have any, divided
/// by this. Then they are counted again.
const SEGMENTS_A_COUNT_DIVISOR: usize = 4;

impl Unverified {
    /// Begins a step of the reclaimer at this pressure.
    pub(super) fn begin_step(&mut self, pressure: f64) {
        self.at_leisure = false;
        if pressure <= 1.0 {
            self.verified = None;
        }
    }
}

impl Reclaimer<'_> {
    /// Verifies unverified overwrites if they take more memory than their limit, before any other work.
    pub(super) async fn verify_beyond_limit(&mut self) -> Result<()> {
        let so_far = |reclaimer: &Self| {
            let verified = reclaimer.space.counters.overwrites_verified();
            (verified, reclaimer.space.runtime.now())
        };
        // Includes the time of other work, because otherwise writers would be admitted at a rate that verification cannot
        // sustain.
        let (known, since) = self.unverified.verified.take().unwrap_or_else(|| so_far(self));
        for number in 0.. {
            let pressure = self.catalog.index.unverified_pressure();
            let others_wait = pressure < PRESSURE_BEFORE_RELOCATION || self.space.urgency() >= SHORT;
            if pressure <= 1.0 || (number >= SEGMENTS_AT_A_TIME && others_wait) {
                break;
            }
            if !self.verify_most(1.0).await? {
                self.writer.admission.cannot_verify();
                return Ok(());
            }
        }
        let (verified, now) = so_far(self);
        self.writer.admission.verified(verified - known, now - since);
        self.unverified.verified = Some((verified, now));
        Ok(())
    }

    /// Verifies the unverified overwrites of a segment when there is no other work. Returns false if there are none to verify.
    pub(super) async fn verify_when_idle(&mut self) -> Result<bool> {
        self.unverified.at_leisure = true;
        let allowed = if self.quiet_in().is_zero() { PRESSURE_WHEN_QUIET } else { PRESSURE_WITH_WRITERS };
        Ok(self.catalog.index.unverified_pressure() > allowed && self.verify_most(CALM).await?)
    }

    /// Returns the time until unverified overwrites are to be verified, if nothing is written until then.
    pub(super) fn unverified_due(&mut self) -> Option<Duration> {
        let waits = self.unverified.at_leisure && !self.are_out_of_reach();
        let due = waits && self.catalog.index.unverified_pressure() > PRESSURE_WHEN_QUIET;
        due.then(|| self.quiet_in().max(Duration::from_millis(1)))
    }

    /// Returns the time until the store is quiet, if nothing is written.
    fn quiet_in(&mut self) -> Duration {
        let (last, now) = (self.space.sequence.load(Ordering::Relaxed), self.space.runtime.now());
        let (known, at) = self.unverified.written;
        if known != last {
            self.unverified.written = (last, now);
            return QUIET_AFTER;
        }
        (at + QUIET_AFTER).saturating_sub(now)
    }

    /// Verifies the unverified overwrites of that segment which had most of them at the last count, among those left of it.
    /// Returns false if no displaced record is in a sealed segment.
    async fn verify_most(&mut self, urgency: f64) -> Result<bool> {
        let Some(Displaced { tier, slot, offsets }) = self.next_displaced() else { return Ok(false) };
        let (began, mut bytes) = (self.space.runtime.now(), 0);
        let mut entries = self.space.read_entries_or_scan(self.space.tier(tier), slot).await;
        if let Ok(Some(entries)) = &mut entries {
            bytes = entries.len() as u64 * TYPICAL_ENTRY_BYTES;
            entries.retain(|entry| offsets.binary_search(&entry.offset).is_ok());
        }
        self.with_entries(tier, slot, entries, async |entries| {
            self.catalog.verify_segment(tier, slot, entries).await.map(drop)
        })
        .await?;
        self.relocator.did_other_work(bytes, began, urgency).await;
        Ok(true)
    }

    /// Returns the next displaced records to verify, those of the segment with most first. Counts again when the last count is
    /// used up.
    fn next_displaced(&mut self) -> Option<Displaced> {
        while !self.are_out_of_reach() {
            while let Some(displaced) = self.unverified.segments.pop() {
                if self.is_sealed(displaced.tier, displaced.slot) {
                    return Some(displaced);
                }
            }
            self.count_unverified();
        }
        None
    }

    /// Reads all unverified overwrites twice: first to count them per segment, then to collect those of the segments with most.
    fn count_unverified(&mut self) {
        let place_of = |pointer: Pointer| {
            let location = self.catalog.packing.unpack(pointer.get());
            ((location.tier, location.slot), location.offset)
        };
        let mut counts: HashMap<(TierName, u32), usize, FixedState> = HashMap::default();
        self.catalog.index.displaced(|pointer| *counts.entry(place_of(pointer).0).or_default() += 1);
        counts.retain(|&(tier, slot), _| self.is_sealed(tier, slot));
        let mut most: Vec<_> = counts.into_iter().map(|(place, count)| (count, place)).collect();
        most.sort_unstable();
        most.drain(..most.len() - most.len().div_ceil(SEGMENTS_A_COUNT_DIVISOR));

        let mut offsets: HashMap<(TierName, u32), Vec<u32>, FixedState> = HashMap::default();
        offsets.extend(most.iter().map(|&(count, place)| (place, Vec::with_capacity(count))));
        self.catalog.index.displaced(|pointer| {
            let (place, offset) = place_of(pointer);
            if let Some(offsets) = offsets.get_mut(&place) {
                offsets.push(offset);
            }
        });
        let displaced = |(_, (tier, slot)): (usize, (TierName, u32))| {
            let mut offsets = offsets.remove(&(tier, slot)).unwrap_or_default();
            offsets.sort_unstable();
            Displaced { tier, slot, offsets }
        };
        self.unverified.segments = most.into_iter().map(displaced).collect();
        self.unverified.out_of_reach = self.unverified.segments.is_empty().then(|| self.begun());
    }

    fn are_out_of_reach(&self) -> bool {
        self.unverified.out_of_reach == Some(self.begun())
    }

    fn begun(&self) -> u64 {
        self.space.newest_segment()
    }

    fn is_sealed(&self, tier: TierName, slot: u32) -> bool {
        self.space.tier(tier).slot(slot).state() == SlotState::Sealed
    }
}
