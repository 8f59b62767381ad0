//! Chooses the segments to relocate next, and decides whether relocating them pays.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_gc::{CALM, Candidate, cost_benefit, oldest};
use esker_log::{SEGMENT_STEP, Tier as TierName};

use super::grouped::{Asked, in_one_group};

use crate::background::reclaimer::{Choice, NoneDead, Reclaimer, Stuck};
use crate::background::relocate::{KEEP_FOR_COLLECTING, SHORT, Terms};
use crate::segments::kept_segments::KeptSegments;
use crate::segments::sets::LEAST_YIELD;
use crate::segments::slot::SlotState;
use crate::segments::tier::Tier;

/// Share of free slots in the fast tier below which destaging begins.
const DESTAGE_BELOW: f64 = 0.5;
/// Garbage, in segments, that is within any bound, however little is live; but at most the number of slots divided by
/// `GARBAGE_SLOTS_DIVISOR`. Such segments soon have no live record, and are freed without a copy.
const GARBAGE_SEGMENTS: u32 = 8;
const GARBAGE_SLOTS_DIVISOR: u32 = 32;
/// Time after which segments without a current record are looked for again, if any record has died since. They are looked for at
/// once if a segment's worth has died.
const LOOK_FOR_DEAD_AFTER: Duration = Duration::from_secs(1);
/// Number of sealed segments up to which a segment is collected only if at least half of it is garbage.
const FEW_SEGMENTS: u64 = 4;
/// Yield of a segment from which its copies surely take less room, however much padding they need.
pub(crate) const SURE_YIELD: f64 = 0.5;
/// Collecting is given up if less than the expected gain divided by this was gained.
const LEAST_GAIN: u64 = 8;
/// Maximum number of times the garbage required for the next attempt is doubled: up to three segments' worth.
const LONGEST_WAIT: u32 = 6;
/// Minimum number of candidates per 64th of live bytes: among the oldest of them, a slightly emptier one may be better.
const LEAST_CANDIDATES: usize = 4;
/// Number of segments that are visited from each end of a 64th of live bytes while a checkpoint keeps segments. The
/// segments that it has read are the oldest, and the ones sealed since it began are the youngest.
const VISITED_BESIDE_KEPT: usize = 64;
/// Maximum total length in bytes of segments that are relocated together.
const BATCH_BYTES: u32 = 4 << 20;

impl Choice {
    fn of(tier: TierName, victims: &[Candidate], urgency: f64, terms: Terms) -> Choice {
        let slots = victims.iter().map(|c| c.slot).collect();
        let yield_bytes = victims.iter().map(|c| c.used_bytes.saturating_sub(c.live_bytes)).sum();
        Choice { tier, slots, urgency, yield_bytes, terms }
    }
}

impl Reclaimer<'_> {
    /// Returns sealed segments of a tier as input to the choice: of each 64th of live bytes up to `most_bytes` the oldest, at
    /// least `count` that `fits` accepts. Those excluded from collection are among them only if `with_excluded`.
    fn candidates(
        &self,
        tier: &Tier,
        (most_bytes, count, with_excluded): (u64, usize, bool),
        fits: impl Fn(&Candidate) -> bool,
    ) -> Vec<Candidate> {
        let kept: Option<&KeptSegments> = self.leaves_kept.then_some(&self.space.kept);
        let candidate = |slot: u32| {
            let s = tier.slot(slot);
            Candidate {
                slot,
                segment: s.segment(),
                sealed_at: s.sealed_at() / SEGMENT_STEP,
                // Bytes of the copies, in whole write units.
                live_bytes: (s.live_bytes().max(0) as u64)
                    .next_multiple_of(u64::from(tier.shape().unit_bytes)),
                used_bytes: tier.slots().gives_back_bytes(slot),
            }
        };
        let count = count.max(LEAST_CANDIDATES);
        let is_any_kept = kept.is_some_and(|kept| kept.len() > 0);
        let visits = if is_any_kept { count.max(VISITED_BESIDE_KEPT) } else { usize::MAX };
        let slots = tier.slots().least_live(most_bytes, (count, visits), with_excluded, |slot, s| {
            kept.is_none_or(|kept| !kept.has(s.segment())) && fits(&candidate(slot))
        });
        slots.into_iter().map(candidate).collect()
    }

    /// Chooses the next relocation among segments that no checkpoint has still to read. The first kept segment that would have
    /// been chosen is reported to the checkpoint, which reads it next.
    pub(super) fn choose(&mut self) -> Option<Choice> {
        let choice = self.choose_any()?;
        if self.may_free(choice.tier, &choice.slots) {
            return Some(choice);
        }
        self.leaves_kept = true;
        let other = self.choose_any();
        self.leaves_kept = false;
        other
    }

    /// Chooses the more urgent of destaging and collecting, or whichever is possible.
    fn choose_any(&mut self) -> Option<Choice> {
        let (destage, collect) = (self.choose_to_destage(), self.choose_to_collect());
        match (destage, collect) {
            (Some(destage), Some(collect)) if destage.urgency < collect.urgency => Some(collect),
            (destage, collect) => destage.or(collect),
        }
    }

    /// Returns the state of the output tier, for [`is_stuck`](Self::is_stuck).
    pub(super) fn state_of_output(&self) -> Stuck {
        let free_slots = self.space.output_tier().free_slots();
        Stuck { free_slots, dead_bytes: self.space.dead_bytes.load(Ordering::Relaxed) }
    }

    /// Returns true if destaging found no room, and none was made since.
    pub(crate) fn is_stuck(&self) -> bool {
        let now = self.state_of_output();
        let noticeable = (self.space.output_tier().shape().segment_bytes as f64 * LEAST_YIELD) as u64;
        self.stuck.as_ref().is_some_and(|then| {
            now.free_slots <= then.free_slots && now.dead_bytes < then.dead_bytes + noticeable
        })
    }

    fn choose_to_destage(&self) -> Option<Choice> {
        let (fast, capacity) = self.space.both_tiers()?;
        let free = f64::from(fast.free_slots()) / f64::from(fast.slots_in_reach());
        if free >= DESTAGE_BELOW || self.is_stuck() {
            return None;
        }
        // Without a slot for another output, only records that fit in the open ones can be moved.
        let may_open = capacity.free_slots() > KEEP_FOR_COLLECTING;
        let room = if may_open { u64::MAX } else { self.relocator.room_bytes() };
        let count = if may_open { self.batch(fast, capacity.free_slots()) } else { 1 };
        let fitting = self.candidates(fast, (room, count, true), |c| c.live_bytes <= room);
        let victims = oldest(fitting, count);
        let urgency = CALM + (1.0 - CALM) * (1.0 - free / DESTAGE_BELOW);
        (!victims.is_empty()).then(|| Choice::of(TierName::Fast, &victims, urgency, Terms::Always))
    }

    fn choose_to_collect(&mut self) -> Option<Choice> {
        let needed = if self.space.runs_low() { Some(LEAST_YIELD) } else { self.yield_beyond_bound() };
        let given_up = if self.is_given_up() { SURE_YIELD } else { 0.0 };
        let choice = needed.and_then(|least_yield| self.choose_among(least_yield.max(given_up), u64::MAX));
        choice.or_else(|| self.choose_dead())
    }

    /// Chooses segments of the output tier that can be freed without a copy. They are freed at once, because that costs no more
    /// now than later, and their space can be discarded.
    pub(super) fn choose_dead(&mut self) -> Option<Choice> {
        let tier = self.space.output_tier();
        let (died, now) = (self.space.dead_bytes.load(Ordering::Relaxed), self.space.runtime.now());
        let is_due = |known: &NoneDead| {
            let noticed = known.dead_bytes + u64::from(tier.shape().segment_bytes);
            died >= noticed || (died > known.dead_bytes && now >= known.at + LOOK_FOR_DEAD_AFTER)
        };
        if !self.none_dead.as_ref().is_none_or(is_due) {
            return None;
        }
        let is_left = |c: &Candidate| self.hiding.contains(&c.segment) || self.space.kept.has(c.segment);
        let count = self.batch(tier, tier.free_slots());
        let dead =
            oldest(self.candidates(tier, (0, count, false), |c| c.live_bytes == 0 && !is_left(c)), count);
        self.none_dead = dead.is_empty().then_some(NoneDead { dead_bytes: died, at: now });
        (!dead.is_empty()).then(|| Choice::of(tier.name(), &dead, SHORT, Terms::IfNothingIsCopied))
    }

    /// Returns the time until dead segments are to be looked for, if records have died since the last look. If free slots run
    /// low, they are found by any choice. If the look is overdue, the step that just ended had no occasion for it.
    pub(super) fn dead_due(&self) -> Option<Duration> {
        let died = self.space.dead_bytes.load(Ordering::Relaxed);
        let known = self.none_dead.as_ref().filter(|known| died > known.dead_bytes)?;
        let due = (known.at + LOOK_FOR_DEAD_AFTER).saturating_sub(self.space.runtime.now());
        (!self.space.runs_low()).then(|| if due.is_zero() { LOOK_FOR_DEAD_AFTER } else { due })
    }

    /// Notes those of the segments, chosen as dead, that were not freed because something of them must be copied.
    pub(super) fn note_hiding(&mut self, tier: TierName, slots: &[u32]) {
        let tier = self.space.tier(tier);
        if self.hiding.len() > 2 * tier.slots().count(SlotState::Sealed) as usize + LEAST_CANDIDATES {
            let sealed: BTreeSet<u64> = tier.slots().sealed().map(|(_, slot)| slot.segment()).collect();
            self.hiding.retain(|segment| sealed.contains(segment));
        }
        let left = slots.iter().map(|&slot| tier.slot(slot)).filter(|s| s.state() == SlotState::Sealed);
        self.hiding.extend(left.map(|slot| slot.segment()));
    }

    /// Chooses segments with at least this yield to collect, among those up to number `through`.
    pub(crate) fn choose_among(&mut self, least_yield: f64, through: u64) -> Option<Choice> {
        let space = self.space;
        let tier = space.output_tier();
        let newest = self.space.newest_segment() / SEGMENT_STEP;
        // Without a slot for another output, only records that fit in the open ones can be moved.
        let room = if self.relocator.may_open() { u64::MAX } else { self.relocator.room_bytes() };
        let fits = |c: &Candidate| c.segment <= through && c.live_bytes <= room;
        let count = self.batch(tier, tier.free_slots());
        let most_bytes = (f64::from(tier.shape().segment_bytes) * (1.0 - least_yield)) as u64;
        let victims = if tier.slots().groups().are_single() {
            cost_benefit(
                self.candidates(tier, (most_bytes.min(room), count, false), fits),
                newest,
                least_yield,
                count,
            )
        } else {
            // A group is scored by all its segments.
            let slots = tier.slots();
            let all = self.candidates(tier, (u64::MAX, usize::MAX, false), fits);
            let grouped = all.into_iter().map(|c| (slots.slot(c.slot).group(), c));
            let asked = Asked { newest, least_yield, count };
            let (group, victims) = in_one_group(slots.groups(), grouped, self.progress.group, asked);
            self.progress.group = group;
            victims
        };
        let urgency = self.space.urgency().max(CALM);
        (!victims.is_empty()).then(|| Choice::of(tier.name(), &victims, urgency, Terms::IfItPays))
    }

    /// Returns true if collecting gained nothing, and too little has died since for another attempt.
    pub(crate) fn is_given_up(&self) -> bool {
        let died = self.space.dead_bytes.load(Ordering::Relaxed);
        self.progress.given_up_until.is_some_and(|until| died < until)
    }

    /// Notes that a segment with an expected gain of `yield_bytes` was relocated.
    pub(super) fn note_progress(&mut self, tier: TierName, yield_bytes: u64) {
        let output = self.space.output_tier();
        if tier != output.name() {
            return;
        }
        let progress = &mut self.progress;
        progress.given_up_until = None;
        progress.expected_bytes += yield_bytes;
        if progress.expected_bytes < 2 * u64::from(output.shape().segment_bytes) {
            return;
        }
        let gained_bytes = self.relocator.gained_bytes();
        if gained_bytes - progress.gained_bytes < (progress.expected_bytes / LEAST_GAIN) as i64 {
            // Each attempt without progress raises the garbage required for the next, because otherwise a store with many
            // records that fill their write units badly would be copied again for every few records that die.
            let wait = (f64::from(output.shape().segment_bytes) * LEAST_YIELD) as u64;
            let died = self.space.dead_bytes.load(Ordering::Relaxed);
            progress.given_up_until = Some(died + (wait << progress.without_progress.min(LONGEST_WAIT)));
            progress.without_progress += 1;
        } else {
            progress.without_progress = 0;
        }
        (progress.expected_bytes, progress.gained_bytes) = (0, gained_bytes);
    }

    /// Returns the number of segments to relocate together: enough that the partly filled frames at the end do not matter, and
    /// no more than there is room for copies, because none is freed before all are empty.
    fn batch(&self, tier: &Tier, free_slots: u32) -> usize {
        if self.one_at_a_time {
            return 1;
        }
        let by_length = BATCH_BYTES / tier.shape().segment_bytes;
        by_length.clamp(1, free_slots.saturating_sub(2).max(1)) as usize
    }

    /// Returns the required yield of a segment if garbage exceeds its bound (`MaxGarbage`); `None` if it does not, or if there is
    /// no bound.
    fn yield_beyond_bound(&self) -> Option<f64> {
        let tier = self.space.output_tier();
        let share = self.space.max_garbage_share?;
        let segment_bytes = u64::from(tier.shape().segment_bytes);
        let sealed = u64::from(tier.slots().count(SlotState::Sealed));
        let live_bytes = tier.live_bytes();
        let beside_live = live_bytes as f64 * share;
        let tolerated =
            u64::from((tier.slots_in_reach() / GARBAGE_SLOTS_DIVISOR).min(GARBAGE_SEGMENTS)) * segment_bytes;
        if sealed * segment_bytes <= live_bytes + tolerated.max(beside_live as u64) {
            return None;
        }
        Some(if sealed <= FEW_SEGMENTS { SURE_YIELD } else { LEAST_YIELD })
    }
}

#[cfg(test)]
#[path = "choose_tests.rs"]
mod tests;
