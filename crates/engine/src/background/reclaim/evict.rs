//! Makes room by evicting cold keys, in a full store that evicts.
//!
//! The policy is in [`esker_gc`]'s `evict`; `relocate/evict.rs` describes how a record is dropped. While live data is within
//! the user limit, nothing is evicted: then there is garbage, and collecting it makes room.

use std::collections::BTreeSet;
use std::time::Duration;

use esker_gc::{CALM, Look, ends_probation};
use esker_log::{Entry, EntryList, Kind, TYPICAL_ENTRY_BYTES, Tier as TierName};
use esker_seeded_bugs::{Bug, planted};

use crate::background::reclaimer::Reclaimer;
use crate::background::relocate::{Outcome, may_free};
use crate::base::error::Result;
use crate::base::when_full::WhenFull;
use crate::catalog::INDEX_BYTES_A_KEY;
use crate::segments::contents::Expiry;
use crate::segments::sets::LEAST_YIELD;
use crate::segments::slot::SlotState;
use crate::segments::slots::Probation;

/// Share of the index memory above which keys are evicted; unverified overwrites take up to an eighth.
const INDEX_SHARE: f64 = 0.8;

/// Time after which eviction is tried again if nothing could be evicted and the sealed segments are the same: other keys may be
/// referenced by then, or a summary may be readable.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A segment examined by the CLOCK hand, with its summary.
type Seen = (u32, EntryList);

impl Reclaimer<'_> {
    /// Returns true if keys must be evicted: the user limit is exceeded and free slots run low, or there are more keys than the
    /// index memory is meant for.
    pub(crate) fn must_evict(&self) -> bool {
        let exceeds_limit = || self.space.runs_low() && self.writer.is_beyond_limit(0);
        self.when_full() == WhenFull::Evict && (self.has_too_many_keys() || exceeds_limit())
    }

    /// Returns true if keys must be evicted before a put is refused, or waits any longer.
    pub(crate) fn must_evict_under_pressure(&self) -> bool {
        let segment_bytes = self.space.output_tier().shape().segment_bytes;
        match self.when_full() {
            WhenFull::Refuse => false,
            WhenFull::Evict => self.must_evict(),
            WhenFull::EvictExpiring => self.writer.is_beyond_limit(segment_bytes.into()),
        }
    }

    pub(crate) fn when_full(&self) -> WhenFull {
        self.catalog.recency.when_full()
    }

    fn has_too_many_keys(&self) -> bool {
        let index_bytes = self.catalog.index.len() * INDEX_BYTES_A_KEY;
        index_bytes as f64 > self.catalog.memory_for_index() as f64 * INDEX_SHARE
    }

    /// Evicts the coldest sealed segment of the output tier. Keys reserved by a pending writer are kept, because that writer
    /// may be waiting for the space; if a segment yields nothing for that reason, others are tried. Returns false if no segment
    /// qualifies.
    pub(crate) async fn evict(&mut self) -> Result<bool> {
        let tier = self.space.output_tier();
        let (state, now) = ((self.when_full(), tier.slots().sealed_sum()), self.space.runtime.now());
        if self.nothing_to_evict.is_some_and(|(known, at)| known == state && now < at + LOOK_AGAIN) {
            return Ok(false);
        }
        let gained = || (self.space.counters.activity().records_evicted, tier.free_slots());
        let (evicted, free_slots) = gained();
        // Segments that a checkpoint has still to read come last, but a reader that stops does not prevent eviction for long.
        let kept: BTreeSet<u32> = match self.space.kept.len() {
            0 => BTreeSet::new(),
            _ => {
                let sealed = tier.slots().sealed();
                sealed.filter(|(_, slot)| self.space.kept.has(slot.segment())).map(|(at, _)| at).collect()
            }
        };
        if self.want_kept(&kept) {
            // It was read, or the checkpoint was cancelled.
            return Ok(true);
        }
        let mut left_alone = kept;
        for _ in 0..=tier.slots().count(SlotState::Sealed) {
            let Some((slot, entries)) = self.coldest(&left_alone).await? else {
                if left_alone.is_empty() {
                    // All summaries were read in vain. They are not read again for a while, unless there are new segments.
                    self.nothing_to_evict = Some((state, self.space.runtime.now()));
                }
                return Ok(false);
            };
            if !self.can_gain(slot, &entries) {
                left_alone.insert(slot);
                continue;
            }
            if !self.evict_segment(slot, &entries).await? {
                return Ok(false);
            }
            let now = gained();
            if now.0 > evicted || now.1 > free_slots {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Requests the oldest of the segments that a checkpoint has still to read. Returns true if it may be freed by now. Slots
    /// count as short, because eviction is needed.
    fn want_kept(&mut self, kept: &BTreeSet<u32>) -> bool {
        let tier = self.space.output_tier();
        let age = |slot: &&u32| (tier.slot(**slot).kept_at(), tier.slot(**slot).segment());
        let Some(&oldest) = kept.iter().min_by_key(age) else { return false };
        let may_free = may_free(self.space, tier.slot(oldest).segment(), true);
        self.waits_for_reader |= !may_free;
        may_free
    }

    /// Returns true if any put of a segment is dead, or its key is not reserved by a writer. Copying all records would gain
    /// nothing, and look like progress to waiting writers.
    fn can_gain(&self, slot: u32, entries: &EntryList) -> bool {
        let (tier, lane) = (self.space.output_tier().name(), &self.writer.lane);
        let stored = |entry: &Entry| self.catalog.index.stored_hash(&entry.key_hash);
        let is_reserved = |entry: &Entry| lane.reserve_free(vec![stored(entry)]).1.is_empty();
        let mut puts = entries.iter().filter(|entry| entry.kind == Kind::Put);
        puts.any(|entry| !self.catalog.is_current(tier, slot, &entry) || !is_reserved(&entry))
    }

    /// Evicts the cold records of one segment of the output tier, and frees it. Returns false if there was no room for that.
    pub(crate) async fn evict_from_slot(&mut self, slot: u32) -> Result<bool> {
        match self.read_for_eviction(slot).await? {
            Some(entries) => self.evict_segment(slot, &entries).await,
            // The segment was put aside.
            None => Ok(true),
        }
    }

    /// Returns the segment whose probation ends; if there is none, advances the CLOCK hand to a segment worth freeing, and
    /// clears the reference bits of those it passes. `left_alone`: slots that are skipped.
    async fn coldest(&mut self, left_alone: &BTreeSet<u32>) -> Result<Option<Seen>> {
        let most_kept = match self.when_full() {
            WhenFull::EvictExpiring => 1.0 - LEAST_YIELD,
            // Even if all keys were referenced, one segment is evicted.
            WhenFull::Evict | WhenFull::Refuse => 1.0,
        };
        if self.when_full() == WhenFull::Evict {
            let Probation { sealed, on_probation, oldest, last_back } =
                self.space.output_tier().slots().probation(|at| left_alone.contains(&at));
            let ends = |&(segment, _): &(u64, u32)| ends_probation(sealed, on_probation, segment, last_back);
            if let Some((_, at)) = oldest.filter(ends)
                && let Some(entries) = self.read_for_eviction(at).await?
            {
                return Ok(Some((at, entries)));
            }
        }
        // In the second round reference bits are ignored.
        for counts_asked in [true, false] {
            let slots = self.space.output_tier().slots();
            let all_may_go = self.when_full() != WhenFull::EvictExpiring;
            let may_hold = |slot: u32| all_may_go || slots.slot(slot).expires_ms(Expiry::First).is_some();
            let (mut look, mut hand, mut seen) = (Look::default(), None, BTreeSet::new());
            while let Some(next) = slots.next_by_clock(hand) {
                hand = Some(next);
                let slot = next.2;
                // A segment that was passed comes again at the end of the order.
                if left_alone.contains(&slot) || !may_hold(slot) || !seen.insert(slot) {
                    continue;
                }
                let Some(entries) = self.read_for_eviction(slot).await? else { continue };
                let kept_share = self.kept_share(slot, &entries, counts_asked);
                if let Some(warmer) = look.see(kept_share, (slot, entries)) {
                    self.pass(&warmer);
                }
                if look.is_over(most_kept) {
                    break;
                }
            }
            match look.coldest() {
                Some((kept_share, seen)) if kept_share <= most_kept => return Ok(Some(seen)),
                Some((_, seen)) => self.pass(&seen),
                None => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Reads the summary of a sealed segment; `None` if it cannot be read and the segment was put aside.
    async fn read_for_eviction(&mut self, slot: u32) -> Result<Option<EntryList>> {
        let (tier, began) = (self.space.output_tier(), self.space.runtime.now());
        let read = self.space.read_entries_or_scan(tier, slot).await;
        let mut seen = None;
        self.with_entries(tier.name(), slot, read, async |entries| {
            seen = Some(entries.clone());
            Ok(())
        })
        .await?;
        let bytes = seen.as_ref().map_or(0, |entries| entries.len() as u64 * TYPICAL_ENTRY_BYTES);
        self.relocator.did_other_work(bytes, began, self.space.urgency().max(CALM)).await;
        Ok(seen)
    }

    /// Returns true if a record is kept: current, and referenced or not evictable.
    fn is_kept(&self, slot: u32, entry: &Entry, counts_asked: bool) -> bool {
        let counts_asked = counts_asked && !planted(Bug::AskedKeysEvicted);
        let was_asked = || counts_asked && self.catalog.recency.was_asked(&entry.key_hash);
        let stays = self.must_stay(entry) || was_asked();
        stays && self.catalog.is_current(self.space.output_tier().name(), slot, entry)
    }

    fn must_stay(&self, entry: &Entry) -> bool {
        match self.when_full() {
            WhenFull::Evict => false,
            WhenFull::EvictExpiring => entry.expires_at_ms.is_none() && !planted(Bug::LastingKeysEvicted),
            // The policy was changed to `Refuse` meanwhile.
            WhenFull::Refuse => true,
        }
    }

    /// Returns the share of a segment's bytes that eviction would keep. If only some keys may be evicted, garbage counts as
    /// kept: freeing it makes no more room for puts, and eviction must end when nothing is left to evict.
    fn kept_share(&self, slot: u32, entries: &EntryList, counts_asked: bool) -> f64 {
        let tier = self.space.output_tier();
        let bytes = |counts: &dyn Fn(&Entry) -> bool| -> u64 {
            let counted = entries.iter().filter(|entry| counts(entry));
            counted.map(|entry| tier.shape().padded(entry.bytes as usize)).sum()
        };
        let all_bytes = tier.slots().gives_back_bytes(slot).max(1);
        let kept_bytes = match self.when_full() {
            WhenFull::EvictExpiring => all_bytes.saturating_sub(bytes(&|entry| {
                let is_current = self.catalog.is_current(tier.name(), slot, entry);
                is_current && !self.is_kept(slot, entry, counts_asked)
            })),
            WhenFull::Evict | WhenFull::Refuse => bytes(&|entry| self.is_kept(slot, entry, counts_asked)),
        };
        kept_bytes as f64 / all_bytes as f64
    }

    /// Clears the reference bits of a segment that the CLOCK hand passes, and notes the time.
    fn pass(&self, (slot, entries): &Seen) {
        let tier = self.space.output_tier();
        for entry in entries.iter().filter(|entry| self.catalog.is_current(tier.name(), *slot, entry)) {
            self.catalog.recency.forget_asked(&entry.key_hash);
        }
        tier.slots().pass(*slot, self.space.newest_segment(), self.space.runtime.now());
    }

    /// Evicts the cold records of a segment and frees it. Returns false if there was no room for the others.
    async fn evict_segment(&mut self, slot: u32, entries: &EntryList) -> Result<bool> {
        let tier = self.space.output_tier();
        let shape = tier.shape();
        let written = tier.accounting().written();
        let put_bytes = written.user_bytes + written.destaged_bytes;
        let mut left_bytes = self.copies.left_bytes(put_bytes, shape.segment_bytes.into());
        let (mut copied_bytes, mut cold) = (0, BTreeSet::new());
        for entry in entries.iter().filter(|entry| self.catalog.is_current(tier.name(), slot, entry)) {
            let bytes = shape.padded(entry.bytes as usize);
            if self.must_stay(&entry) {
                continue;
            }
            if self.is_kept(slot, &entry, true) && bytes <= left_bytes {
                (left_bytes, copied_bytes) = (left_bytes - bytes, copied_bytes + bytes);
                self.catalog.recency.forget_asked(&entry.key_hash);
            } else {
                cold.insert(entry.offset);
            }
        }
        let done = self.carry_out_eviction(tier.name(), slot, cold).await?;
        if done {
            self.copies.spend(copied_bytes);
            return Ok(true);
        }
        // Without a slot for copies, every evictable record is dropped.
        let all = entries.iter().filter(|entry| entry.kind == Kind::Put && !self.must_stay(entry));
        let all = all.map(|entry| entry.offset).collect();
        Ok(copied_bytes > 0 && self.carry_out_eviction(tier.name(), slot, all).await?)
    }

    async fn carry_out_eviction(&mut self, tier: TierName, slot: u32, cold: BTreeSet<u32>) -> Result<bool> {
        let urgency = self.space.urgency().max(CALM);
        match self.relocator.evict(tier, slot, urgency, cold).await {
            Ok(Outcome::Freed(_)) => Ok(true),
            Ok(Outcome::OutOfRoom) => Ok(false),
            Err((slot, error)) if error.is_of_reading() => {
                self.put_aside(tier, slot, &error);
                Ok(true)
            }
            Err((_, error)) => Err(error),
        }
    }
}
