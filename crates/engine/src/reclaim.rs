//! Making room: which segment to relocate next, when, and how hard to work at it.
//!
//! Destaging empties the fast tier in the order of age. Collecting keeps the tier where records stay between two bounds:
//! garbage takes no more than the reserve allows beside what is live, and a few slots are always free. The nearer the
//! second bound, the less the reclaimer rests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_gc::{Candidate, cost_benefit, oldest};
use esker_log::Tier as TierName;
use futures_util::future::{Either, select};

use crate::compact::Compaction;
use crate::engine::{Engine, SEGMENT_STEP};
use crate::error::{Error, Result};
use crate::relocate::{KEEP_FOR_COLLECTING, LEAST_YIELD, Outcome, Relocator};
use crate::slot::{Expiry, SlotState};
use crate::tier::Tier;

/// Destaging begins when less than this share of the fast tier is free.
const DESTAGE_BELOW: f64 = 0.5;
/// Few sealed segments are let be while less than half of one is garbage.
const FEW_SEGMENTS: u64 = 4;
/// Of a segment that yields so much, the copies take less room however badly they fit.
const SURE_YIELD: f64 = 0.5;
/// It is given up if less than one in so many of the bytes that seemed to be gained were.
const LEAST_GAIN: u64 = 8;
/// So often what has to die is doubled before it is tried again: up to three segments' worth.
const LONGEST_WAIT: u32 = 6;
/// How urgent it is to collect what is beyond the bound while there is room.
pub(crate) const CALM: f64 = 0.25;
/// As long as it is less urgent to collect, old segments are rewritten for tombstones to go.
const RENEW_BELOW: f64 = 0.5;
/// Segments are relocated together up to so many bytes.
const BATCH_BYTES: u32 = 4 << 20;
/// After so many failed reads a segment is left alone until the store is opened again.
const READ_ATTEMPTS: u32 = 3;

/// Destages and collects until the store closes.
pub(crate) async fn run(engine: Arc<Engine>) {
    let mut reclaimer = Reclaimer {
        engine: &engine,
        relocator: Relocator::new(&engine),
        progress: Progress::default(),
        stuck: None,
        one_at_a_time: false,
        failures: BTreeMap::new(),
        compaction: None,
        compacted_last: false,
    };
    loop {
        let woken = engine.reclaim.notified();
        if engine.check_writable().is_err() {
            if engine.check_latch().is_ok()
                && let Err(error) = reclaimer.relocator.finish().await
            {
                engine.latch(&error);
            }
            break;
        }
        reclaimer.begin_compaction();
        engine.relief.requests.look();
        match reclaimer.step().await {
            Ok(true) => {}
            Ok(false) => {
                engine.relief.requests.done();
                reclaimer.rest(woken).await;
            }
            Err(Error::Closed { .. }) => break,
            Err(error) => {
                engine.latch(&error);
                break;
            }
        }
    }
    engine.compaction_ended();
}

/// What to relocate, and how urgent it is.
pub(crate) struct Choice {
    pub(crate) tier: TierName,
    pub(crate) slots: Vec<u32>,
    pub(crate) urgency: f64,
    /// What they seem to be worth.
    pub(crate) yield_bytes: u64,
}

/// Whether collecting gives slots back. Where records fill their write units and segments badly, copies can take as much
/// room as what they were copied from; then only what is sure to give some back is collected until there is new garbage.
#[derive(Default)]
struct Progress {
    /// Bytes that the victims seemed to be worth since it was last looked at.
    expected_bytes: u64,
    /// What had been gained then.
    gained_bytes: i64,
    /// It was given up until so many bytes will have died.
    given_up_until: Option<u64>,
    /// How often it was in vain since it last was not.
    in_vain: u32,
}

pub(crate) struct Reclaimer<'a> {
    pub(crate) engine: &'a Arc<Engine>,
    pub(crate) relocator: Relocator<'a>,
    progress: Progress,
    /// Destaging found no room for copies.
    stuck: Option<Stuck>,
    /// There was no room to relocate several segments together, and none was freed since.
    one_at_a_time: bool,
    /// How often reading a segment failed.
    failures: BTreeMap<u64, u32>,
    /// What was asked for and is not done yet.
    pub(crate) compaction: Option<Compaction>,
    /// The last step was for that.
    compacted_last: bool,
}

/// How things were when destaging found no room. Until something has changed, only collecting is tried.
struct Stuck {
    free_slots: u32,
    dead_bytes: u64,
}

impl Engine {
    /// Where records end up.
    pub(crate) fn output_tier(&self) -> &Tier {
        self.capacity.as_ref().or(self.fast.as_ref()).expect("a store has a tier")
    }

    /// Slots of the tier where records stay that are kept free: enough to work in, few in comparison with the reserve.
    pub(crate) fn free_target(&self) -> u32 {
        let reserve = self.reserve_share * f64::from(self.output_tier().slots_total());
        ((reserve / 32.0) as u32).clamp(crate::provision::KEEP_FOR_RELOCATION + 1, 8)
    }

    /// How near that tier is to having no free slot: 0 at the target, 1 where nobody but relocation gets one.
    pub(crate) fn urgency(&self) -> f64 {
        let (free, target) = (self.output_tier().free_slots(), self.free_target());
        if free > target {
            return 0.0;
        }
        let least = crate::provision::KEEP_FOR_RELOCATION;
        f64::from(target + 1 - free) / f64::from(target + 1 - least)
    }
}

impl Choice {
    fn of(tier: TierName, victims: &[Candidate], urgency: f64) -> Choice {
        let slots = victims.iter().map(|c| c.slot).collect();
        let yield_bytes = victims.iter().map(|c| c.used_bytes.saturating_sub(c.live_bytes)).sum();
        Choice { tier, slots, urgency, yield_bytes }
    }
}

impl Reclaimer<'_> {
    /// Waits for something to do.
    async fn rest(&self, woken: impl Future<Output = ()>) {
        let until = |at_ms: u64| Duration::from_millis(at_ms.saturating_sub(self.engine.now_ms()).max(1));
        // A clock that is set forward is noticed within the minute.
        let expiry = self.next_expiry_ms().map(|at_ms| until(at_ms).min(Duration::from_secs(60)));
        let Some(left) = expiry.into_iter().chain(self.engine.clock_due()).min() else { return woken.await };
        let woken = std::pin::pin!(woken);
        match select(woken, self.engine.runtime.sleep(left)).await {
            Either::Left(_) | Either::Right(_) => {}
        }
    }

    /// Does one thing that was asked for, or that needs to be done; false if there is nothing. They take turns, so that
    /// neither waits for the end of the other, which may have none.
    async fn step(&mut self) -> Result<bool> {
        self.compacted_last = !self.compacted_last && self.compact().await?;
        Ok(self.compacted_last || self.keep_up().await? || self.compaction.is_some())
    }

    /// Does one thing that needs to be done; false if there is nothing.
    async fn keep_up(&mut self) -> Result<bool> {
        self.engine.save_clock().await?;
        if let Some((tier, slot)) = self.expired(Expiry::Noticeable) {
            self.expire(tier, slot).await?;
            return Ok(true);
        }
        self.write_off_tombstones();
        let relief = &self.engine.relief.requests;
        if relief.is_wanted() {
            if self.relieve().await? {
                return Ok(true);
            }
            // Where there are no slots, collecting has to come first.
            if !self.engine.full.load(Ordering::Acquire) {
                relief.done();
            }
        }
        if self.engine.urgency() < RENEW_BELOW
            && self.renew(self.tombstones_tolerated(false), u64::MAX).await?
        {
            return Ok(true);
        }
        if let Some(choice) = self.choose() {
            let always = choice.tier != self.engine.output_tier().name();
            let (may_be_full, done) = (!always, self.carry_out(choice, always).await?);
            if !done && may_be_full {
                self.declare_full();
            }
            return Ok(done || !may_be_full);
        }
        if self.renew(self.tombstones_tolerated(false), u64::MAX).await? {
            return Ok(true);
        }
        if self.engine.index.claims_pressure() > 0.5 && self.settle_most().await? {
            return Ok(true);
        }
        if self.engine.lanes().any(|lane| lane.is_out_of_room()) {
            if self.relieve().await? {
                return Ok(true);
            }
            self.declare_full();
        }
        Ok(false)
    }

    /// Relocates what was chosen; false if there was no room for that.
    pub(crate) async fn carry_out(&mut self, choice: Choice, always: bool) -> Result<bool> {
        let Choice { tier, slots, urgency, yield_bytes } = choice;
        match self.relocator.relocate(tier, &slots, urgency, always).await {
            Ok(Outcome::Freed(segments)) => {
                if segments > 0 {
                    self.one_at_a_time = false;
                    self.note_progress(tier, yield_bytes);
                }
                Ok(true)
            }
            // Fewer need less room before the first of them is free.
            Ok(Outcome::OutOfRoom) if slots.len() > 1 => {
                self.one_at_a_time = true;
                Ok(true)
            }
            Ok(Outcome::OutOfRoom) => {
                if always {
                    // Collecting may still make room, and if not, the next step finds nothing to do.
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

    /// Nothing can be freed and writers wait: tell them.
    fn declare_full(&self) {
        let engine = self.engine;
        let waiting = engine.lanes().filter(|lane| lane.is_out_of_room());
        let tier_is_full =
            |name: TierName| engine.tier(name).free_slots() <= crate::provision::KEEP_FOR_RELOCATION;
        for lane in waiting.filter(|lane| tier_is_full(lane.shape.tier)) {
            let was_full = engine.full.swap(true, Ordering::AcqRel);
            lane.refuse_waiting(engine.full_error());
            if !was_full {
                // The provisioner may now lend a slot to deletes.
                engine.announce_free_slot();
            }
        }
    }

    fn candidates<'t>(&self, tier: &'t Tier) -> impl Iterator<Item = Candidate> + use<'t> {
        tier.slots().sealed().map(|(slot, s)| {
            Candidate {
                slot,
                segment: s.segment(),
                sealed_at: s.sealed_at() / SEGMENT_STEP,
                // What the copies take, in whole write units.
                live_bytes: (s.live_bytes().max(0) as u64)
                    .next_multiple_of(u64::from(tier.shape().unit_bytes)),
                used_bytes: u64::from(s.used_bytes()).max(1),
            }
        })
    }

    /// What to do: whichever is more urgent, and otherwise the other.
    fn choose(&self) -> Option<Choice> {
        let (destage, collect) = (self.choose_to_destage(), self.choose_to_collect());
        match (destage, collect) {
            (Some(destage), Some(collect)) if destage.urgency < collect.urgency => Some(collect),
            (destage, collect) => destage.or(collect),
        }
    }

    fn state_of_output(&self) -> Stuck {
        let free_slots = self.engine.output_tier().free_slots();
        Stuck { free_slots, dead_bytes: self.engine.dead_bytes.load(Ordering::Relaxed) }
    }

    /// Whether destaging found no room, and none was made since.
    pub(crate) fn is_stuck(&self) -> bool {
        let now = self.state_of_output();
        let noticeable = (self.engine.output_tier().shape().segment_bytes as f64 * LEAST_YIELD) as u64;
        self.stuck.as_ref().is_some_and(|then| {
            now.free_slots <= then.free_slots && now.dead_bytes < then.dead_bytes + noticeable
        })
    }

    fn choose_to_destage(&self) -> Option<Choice> {
        let (Some(fast), Some(capacity)) = (&self.engine.fast, &self.engine.capacity) else { return None };
        let free = f64::from(fast.free_slots()) / f64::from(fast.slots_total());
        if free >= DESTAGE_BELOW || self.is_stuck() {
            return None;
        }
        // Without a slot for another output, only what fits in these can be moved.
        let may_open = capacity.free_slots() > KEEP_FOR_COLLECTING;
        let room = if may_open { u64::MAX } else { self.relocator.room_bytes() };
        let fitting = self.candidates(fast).filter(|c| c.live_bytes <= room);
        let count = if may_open { self.batch(fast, capacity.free_slots()) } else { 1 };
        let victims = oldest(fitting, count);
        let urgency = CALM + (1.0 - CALM) * (1.0 - free / DESTAGE_BELOW);
        (!victims.is_empty()).then(|| Choice::of(TierName::Fast, &victims, urgency))
    }

    fn choose_to_collect(&self) -> Option<Choice> {
        let urgency = self.engine.urgency();
        let calm = || self.calm_yield(self.engine.output_tier());
        let least_yield = if urgency > 0.0 { LEAST_YIELD } else { calm()? };
        self.choose_among(least_yield, u64::MAX)
    }

    /// Which segments to collect that yield so much, among those up to number `through`.
    pub(crate) fn choose_among(&self, mut least_yield: f64, through: u64) -> Option<Choice> {
        let engine = self.engine;
        let tier = engine.output_tier();
        if self.is_given_up() {
            least_yield = least_yield.max(SURE_YIELD);
        }
        let newest = engine.segments.load(Ordering::Relaxed) / SEGMENT_STEP;
        // Without a slot for another output, only what fits in these can be moved.
        let room = if self.relocator.may_open() { u64::MAX } else { self.relocator.room_bytes() };
        let left_alone = |c: &Candidate| {
            let noticeable = c.used_bytes as f64 * LEAST_YIELD;
            tier.slot(c.slot).is_left_alone(noticeable as i64)
        };
        let fits = |c: &Candidate| c.segment <= through && c.live_bytes <= room && !left_alone(c);
        let count = self.batch(tier, tier.free_slots());
        let victims = cost_benefit(self.candidates(tier).filter(fits), newest, least_yield, count);
        (!victims.is_empty()).then(|| Choice::of(tier.name(), &victims, engine.urgency().max(CALM)))
    }

    /// Whether collecting gave nothing back and too little died since for another try.
    fn is_given_up(&self) -> bool {
        let died = self.engine.dead_bytes.load(Ordering::Relaxed);
        self.progress.given_up_until.is_some_and(|until| died < until)
    }

    /// A segment was relocated that seemed to be worth so many bytes.
    fn note_progress(&mut self, tier: TierName, yield_bytes: u64) {
        let output = self.engine.output_tier();
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
            // Each time in vain it takes more garbage to try again, or else a store with many records that fill their write
            // units badly would go on copying for every few of them that die.
            let wait = (f64::from(output.shape().segment_bytes) * LEAST_YIELD) as u64;
            let died = self.engine.dead_bytes.load(Ordering::Relaxed);
            progress.given_up_until = Some(died + (wait << progress.in_vain.min(LONGEST_WAIT)));
            progress.in_vain += 1;
        } else {
            progress.in_vain = 0;
        }
        (progress.expected_bytes, progress.gained_bytes) = (0, gained_bytes);
    }

    /// How many segments to relocate together: enough that frames which are closed at the end before they are full do not
    /// matter, and no more than there is room for copies of, since none is free before all are empty.
    fn batch(&self, tier: &Tier, free_slots: u32) -> usize {
        if self.one_at_a_time {
            return 1;
        }
        let by_length = BATCH_BYTES / tier.shape().segment_bytes;
        by_length.clamp(1, free_slots.saturating_sub(2).max(1)) as usize
    }

    /// What a segment has to yield while there is room; `None` while garbage takes no more than the reserve allows.
    fn calm_yield(&self, tier: &Tier) -> Option<f64> {
        let segment_bytes = u64::from(tier.shape().segment_bytes);
        let sealed = u64::from(tier.slots().count(SlotState::Sealed));
        let allowed = tier.live_bytes() as f64 / (1.0 - self.engine.reserve_share);
        if sealed * segment_bytes <= allowed as u64 {
            return None;
        }
        Some(if sealed <= FEW_SEGMENTS { SURE_YIELD } else { LEAST_YIELD })
    }

    /// The sealed segment that expired first.
    pub(crate) fn expired(&self, expiry: Expiry) -> Option<(TierName, u32)> {
        let now = self.engine.now_ms();
        let due =
            self.engine.tiers().filter_map(|tier| Some((tier.slots().expired(expiry, now)?, tier.name())));
        due.min_by_key(|&((at_ms, _), _)| at_ms).map(|((_, slot), tier)| (tier, slot))
    }

    fn next_expiry_ms(&self) -> Option<u64> {
        self.engine.tiers().filter_map(|tier| tier.slots().expires_from(Expiry::Noticeable)).min()
    }

    pub(crate) async fn expire(&mut self, tier: TierName, slot: u32) -> Result<()> {
        let engine = self.engine;
        let entries = engine.read_entries(engine.tier(tier), slot).await;
        self.with_entries(tier, slot, entries, async |entries| {
            engine.expire_segment(tier, slot, entries).await
        })
        .await
    }

    /// Verifies the claims against the segment that has most of them.
    async fn settle_most(&mut self) -> Result<bool> {
        let engine = self.engine;
        let mut counts = BTreeMap::new();
        engine.index.claims_where(|pointer| {
            let location = engine.packing.unpack(pointer.get());
            *counts.entry((location.tier, location.slot)).or_insert(0u64) += 1;
            false
        });
        let sealed =
            |&(tier, slot): &(TierName, u32)| engine.tier(tier).slot(slot).state() == SlotState::Sealed;
        let most = counts.into_iter().filter(|(place, _)| sealed(place)).max_by_key(|(_, count)| *count);
        let Some(((tier, slot), _)) = most else { return Ok(false) };
        let entries = engine.read_entries(engine.tier(tier), slot).await;
        self.with_entries(tier, slot, entries, async |entries| {
            engine.settle_segment(tier, slot, entries).await
        })
        .await?;
        Ok(true)
    }

    /// Does something with the entries of a segment's summary, if it could be read.
    async fn with_entries(
        &mut self,
        tier: TierName,
        slot: u32,
        entries: Result<Option<Vec<esker_log::Entry>>>,
        work: impl AsyncFnOnce(&[esker_log::Entry]) -> Result<()>,
    ) -> Result<()> {
        let done = match entries {
            Ok(Some(entries)) => work(&entries).await,
            Ok(None) => {
                self.engine.tier(tier).slots().set_state(slot, SlotState::Damaged);
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

    /// A segment could not be read: it is tried again, a few times, and then kept as it is. Its records can still be asked
    /// for, and what is wrong with them is an error of those calls, not of the store.
    fn put_aside(&mut self, tier: TierName, slot: u32, error: &Error) {
        let slots = self.engine.tier(tier).slots();
        let segment = slots.all()[slot as usize].segment();
        let failures = self.failures.entry(segment).or_default();
        *failures += 1;
        let give_up = *failures >= READ_ATTEMPTS || matches!(error, Error::Corrupt { .. });
        if give_up {
            tracing::error!(segment, %error, "a segment cannot be read; it is kept as it is");
        }
        slots.set_state(slot, if give_up { SlotState::Damaged } else { SlotState::Sealed });
    }
}
