//! Making room: destaging the fast tier and collecting the tier where records stay, one victim at a time.
//!
//! The order within a relocation is that of `esker_gc`'s `relocate` module. While a victim is being emptied, puts may displace its records and
//! leave claims against it; it is freed only when none of its records is current and no claim against it is left.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use esker_device::{Buffer, Source, WriteMode};
use esker_gc::{Candidate, Host, Victim, copied_bytes, copy_needed, cost_benefit, oldest};
use esker_index::KeyHash;
use esker_log::{
    ClosedFrame, Entry, FOOTER_BYTES, Footer, Kind, Location, OpenSegment, Stream, Tier as TierName, class_of,
};

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::ledger::{Content, Origin};
use crate::memory::{Backing, MemoryPool, Piece};
use crate::tier::{SlotState, Tier};

/// A segment that would give back less than this share is left alone.
const LEAST_YIELD: f64 = 0.05;
/// Destaging begins when less than this share of the fast tier is free.
const DESTAGE_BELOW: f64 = 0.5;
/// Segments that may hold garbage beyond the reserve before collecting begins.
const SLACK_SEGMENTS: u64 = 4;

/// Destages and collects until the store closes.
pub(crate) async fn run(engine: Arc<Engine>) {
    let tier = engine.output_tier();
    let pool = MemoryPool::new(Backing::Anonymous, tier.shape().segment_bytes as usize, 2);
    let mut reclaimer =
        Reclaimer { engine: &engine, pool, output: None, durable: (0, 0), failures: BTreeMap::new() };
    loop {
        let woken = engine.reclaim.notified();
        if engine.check_writable().is_err() {
            if let Err(error) = reclaimer.finish().await {
                engine.latch(&error);
            }
            return;
        }
        match reclaimer.step().await {
            Ok(true) => {}
            Ok(false) => woken.await,
            Err(Error::Closed { .. }) => return,
            Err(error) => return engine.latch(&error),
        }
    }
}

impl Engine {
    /// Where records end up.
    pub(crate) fn output_tier(&self) -> &Tier {
        self.capacity.as_ref().or(self.fast.as_ref()).expect("a store has a tier")
    }

    /// The summary's entries of a sealed segment.
    pub(crate) async fn read_entries(&self, tier: &Tier, slot: u32) -> Result<Option<Vec<Entry>>> {
        let segment_bytes = tier.shape().segment_bytes;
        let at = segment_bytes - FOOTER_BYTES as u32;
        let (buffer, from) = tier.read(slot, at, FOOTER_BYTES as u64).await?;
        let segment = tier.slot(slot).segment();
        let footer = Footer::parse(&buffer[from..], &self.secret, segment_bytes);
        let Some(footer) = footer.filter(|f| f.segment == segment) else { return Ok(None) };
        let (buffer, from) = tier.read(slot, footer.start, u64::from(footer.entry_bytes)).await?;
        Ok(footer.entries(&buffer[from..], &self.secret))
    }
}

/// After so many failed reads a segment is left alone until the store is opened again.
const READ_ATTEMPTS: u32 = 3;

struct Reclaimer<'a> {
    engine: &'a Arc<Engine>,
    pool: MemoryPool,
    output: Option<(OpenSegment, usize)>,
    /// The output's number, and the offset below which it is durable.
    durable: (u64, u32),
    /// How often reading a segment failed.
    failures: BTreeMap<u64, u32>,
}

impl Reclaimer<'_> {
    /// The store closes: seals the output, so that rot in it is told from a torn tail.
    async fn finish(&mut self) -> Result<()> {
        match self.output.take() {
            Some((open, piece)) if self.engine.check_latch().is_ok() && !open.entries().is_empty() => {
                self.outlet(false, piece).seal_output(open).await
            }
            _ => Ok(()),
        }
    }

    /// Does one thing that needs to be done; false if there is nothing.
    async fn step(&mut self) -> Result<bool> {
        if let Some((tier, slot)) = self.choose() {
            return match self.relocate(tier, slot).await {
                Err(error) if error.is_of_reading() => {
                    self.put_aside(tier, slot, &error);
                    Ok(true)
                }
                relocated => relocated,
            };
        }
        if self.engine.index.claims_pressure() > 0.5 && self.settle_most().await? {
            return Ok(true);
        }
        if self.engine.lanes().any(|lane| lane.is_out_of_room()) {
            self.declare_full();
        }
        Ok(false)
    }

    /// Nothing can be freed and writers wait: tell them.
    fn declare_full(&self) {
        let engine = self.engine;
        let waiting = engine.lanes().filter(|lane| lane.is_out_of_room());
        let tier_is_full = |name: TierName| engine.tier(name).free_slots() <= 2;
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
        tier.slots().iter().enumerate().filter(|(_, s)| s.state() == SlotState::Sealed).map(|(at, s)| {
            Candidate {
                slot: at as u32,
                segment: s.segment(),
                // What the copies take, in whole write units.
                live_bytes: (s.live_bytes().max(0) as u64)
                    .next_multiple_of(u64::from(tier.shape().unit_bytes)),
                used_bytes: u64::from(s.used_bytes()).max(1),
            }
        })
    }

    fn choose(&self) -> Option<(TierName, u32)> {
        let engine = self.engine;
        if let (Some(fast), Some(capacity)) = (&engine.fast, &engine.capacity) {
            let free = f64::from(fast.free_slots()) / fast.slots().len() as f64;
            if free < DESTAGE_BELOW
                && capacity.free_slots() > 0
                && let Some(victim) = oldest(self.candidates(fast))
            {
                return Some((TierName::Fast, victim.slot));
            }
        }
        let tier = engine.output_tier();
        let segment_bytes = u64::from(tier.shape().segment_bytes);
        let occupied = u64::from(tier.slots().len() as u32 - tier.free_slots()) * segment_bytes;
        let reserve = engine.reserve_share;
        let allowed = (tier.live_bytes() as f64 / (1.0 - reserve)) as u64 + SLACK_SEGMENTS * segment_bytes;
        if occupied <= allowed && tier.free_slots() > 3 {
            return None;
        }
        let newest = engine.segments.load(Ordering::Relaxed);
        // Without a slot for another output, only what fits in this one can be moved.
        let room = if tier.free_slots() > 0 { u64::MAX } else { self.output_room() };
        let left_alone = |c: &Candidate| {
            let noticeable = c.used_bytes as f64 * LEAST_YIELD;
            tier.slot(c.slot).is_left_alone(noticeable as i64)
        };
        let fitting = self.candidates(tier).filter(|c| c.live_bytes <= room && !left_alone(c));
        let victim = cost_benefit(fitting, newest, LEAST_YIELD)?;
        Some((tier.name(), victim.slot))
    }

    /// Bytes that still fit in the output.
    fn output_room(&self) -> u64 {
        let Some((open, _)) = &self.output else { return 0 };
        let shape = open.shape();
        let summary =
            esker_log::summary_space_bytes(open.entries().len() * 2, shape.unit_bytes as usize) as u64;
        u64::from(shape.segment_bytes - open.tail()).saturating_sub(summary + u64::from(shape.unit_bytes))
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
        let settled = match engine.read_entries(engine.tier(tier), slot).await {
            Ok(Some(entries)) => engine.settle_segment(tier, slot, &entries).await,
            Ok(None) => {
                engine.tier(tier).slot(slot).set_state(SlotState::Damaged);
                Ok(())
            }
            Err(error) => Err(error),
        };
        match settled {
            Err(error) if error.is_of_reading() => self.put_aside(tier, slot, &error),
            settled => settled?,
        }
        Ok(true)
    }

    /// A segment could not be read: it is tried again, a few times, and then kept as it is. Its records can still be asked
    /// for, and what is wrong with them is an error of those calls, not of the store.
    fn put_aside(&mut self, tier: TierName, slot: u32, error: &Error) {
        let slot = self.engine.tier(tier).slot(slot);
        let failures = self.failures.entry(slot.segment()).or_default();
        *failures += 1;
        let give_up = *failures >= READ_ATTEMPTS || matches!(error, Error::Corrupt { .. });
        if give_up {
            tracing::error!(segment = slot.segment(), %error, "a segment cannot be read; it is kept as it is");
        }
        slot.set_state(if give_up { SlotState::Damaged } else { SlotState::Sealed });
    }

    async fn relocate(&mut self, tier_name: TierName, slot: u32) -> Result<bool> {
        let engine = self.engine;
        let began = engine.runtime.now();
        let tier = engine.tier(tier_name);
        let state = tier.slot(slot);
        if !state.advance(SlotState::Sealed, SlotState::Victim) {
            return Ok(false);
        }
        let Some(entries) = engine.read_entries(tier, slot).await? else {
            tracing::error!(segment = state.segment(), "a summary is damaged; its segment is kept as it is");
            state.set_state(SlotState::Damaged);
            return Ok(true);
        };
        let victim = Victim { segment: state.segment(), slot, shape: tier.shape() };
        if tier_name == engine.output_tier().name() && !self.is_worth_it(&victim, &entries) {
            // It looked emptier than it is: records that do not fill their write units fill no others better. It is left
            // alone until more of it is dead.
            state.leave_alone();
            state.set_state(SlotState::Sealed);
            return Ok(true);
        }
        let mut moved = 0;
        let mut first = true;
        loop {
            engine.settle_segment(tier_name, slot, &entries).await?;
            let (relocated, copied) = self.copy(&victim, &entries, first).await;
            // After any other failure nobody knows which copies were written, and the victim still has the records.
            let is_written = matches!(copied, Ok(()) | Err(Error::Full { .. }));
            if is_written && !relocated.moves.is_empty() {
                engine.output_tier().device()?.flush().await.map_err(Error::from)?;
                self.durable =
                    self.output.as_ref().map_or((0, 0), |(open, _)| (open.name().segment, open.tail()));
                self.swing(tier_name, &victim, &relocated.moves, copied.is_ok());
                moved += relocated.moves.len() as u64;
            }
            match copied {
                Ok(()) => {}
                Err(Error::Full { .. }) => {
                    // No room for more copies: the victim stays, with what is left in it.
                    state.set_state(SlotState::Sealed);
                    self.declare_full();
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
            if let Some((entry, damage)) = relocated.damaged.first() {
                tracing::error!(segment = victim.segment, offset = entry.offset, %damage, "a record cannot be relocated; its segment is kept");
                state.set_state(SlotState::Damaged);
                return Ok(true);
            }
            first = false;
            let here = |pointer: esker_index::Pointer| {
                let location = engine.packing.unpack(pointer.get());
                location.tier == tier_name && location.slot == slot
            };
            if engine.index.claims_where(here).is_empty()
                && !entries.iter().any(|e| is_current(engine, &victim, e))
            {
                break;
            }
        }
        // What superseded the victim's records must be durable before they are gone, or else a power cut could take both.
        engine.flush().await?;
        tier.free_slot(slot, &engine.secret, engine.runtime.now()).await?;
        engine.counters.count_freed(moved, entries.len() as u64 - moved.min(entries.len() as u64));
        engine.admission.drained(u64::from(tier.shape().segment_bytes), engine.runtime.now() - began);
        engine.full.store(false, Ordering::Release);
        engine.announce_free_slot();
        Ok(true)
    }

    /// Whether the copies would take noticeably less room than the victim.
    fn is_worth_it(&self, victim: &Victim, entries: &[Entry]) -> bool {
        let outlet = self.outlet(true, 0);
        let needed = entries.iter().filter(|e| outlet.is_needed(victim, e));
        let bytes = copied_bytes(needed, self.engine.output_tier().shape(), self.frame_bytes());
        let used = u64::from(self.engine.tier(victim.shape.tier).slot(victim.slot).used_bytes());
        bytes + (used as f64 * LEAST_YIELD) as u64 <= used
    }

    fn frame_bytes(&self) -> u32 {
        let shape = self.engine.output_tier().shape();
        (shape.segment_bytes / 4).clamp(shape.unit_bytes, 1 << 20)
    }

    async fn copy(
        &mut self,
        victim: &Victim,
        entries: &[Entry],
        first: bool,
    ) -> (esker_gc::Relocated, Result<()>) {
        let engine = self.engine;
        let frame_bytes = self.frame_bytes();
        let (mut output, index) = match self.output.take() {
            Some((open, index)) => (Some(open), index),
            None => (None, 0),
        };
        let mut outlet = self.outlet(first, index);
        if victim.shape.tier != engine.output_tier().name() {
            outlet.origin = Origin::Destaged;
        }
        let copied = copy_needed(&outlet, &engine.secret, victim, entries, &mut output, frame_bytes).await;
        let index = outlet.piece.load(Ordering::Relaxed);
        self.output = output.map(|open| (open, index));
        copied
    }

    fn outlet(&self, first: bool, piece: usize) -> Outlet<'_> {
        Outlet {
            engine: self.engine,
            pool: &self.pool,
            first,
            opened_at: self.engine.lane.published_through(self.engine),
            durable: self.durable,
            piece: std::sync::atomic::AtomicUsize::new(piece),
            origin: Origin::Collected,
        }
    }

    /// The copies are durable: the index goes from the old places to the new ones, except where a newer put was there
    /// first. Tombstones count where they were only if not `all` were copied: then they will be copied again.
    fn swing(&self, tier: TierName, victim: &Victim, moves: &[esker_gc::Move], all: bool) {
        let engine = self.engine;
        let output = engine.output_tier();
        for m in moves {
            let bytes = victim.shape.padded(m.entry.bytes as usize) as i64;
            let hash = hash_of(&m.entry);
            let class = class_of(u64::from(m.entry.bytes));
            let old = Location { tier, slot: victim.slot, offset: m.entry.offset, class };
            let new = Location { tier: output.name(), slot: m.slot, offset: m.offset, class };
            output.add_live(m.slot, bytes);
            match m.entry.kind {
                Kind::Put if engine.index.replace(&hash, engine.pointer(old), engine.pointer(new)) => {
                    engine.tier(tier).add_live(victim.slot, -bytes);
                }
                Kind::Put => output.add_live(m.slot, -bytes),
                Kind::Tombstone if all => engine.tier(tier).add_live(victim.slot, -bytes),
                Kind::Tombstone => output.add_live(m.slot, -bytes),
            }
        }
    }
}

fn hash_of(entry: &Entry) -> KeyHash {
    KeyHash { slot: entry.digest.slot, check: entry.digest.check }
}

fn is_current(engine: &Engine, victim: &Victim, entry: &Entry) -> bool {
    let class = class_of(u64::from(entry.bytes));
    let location = Location { tier: victim.shape.tier, slot: victim.slot, offset: entry.offset, class };
    entry.kind == Kind::Put && engine.index.is_current(&hash_of(entry), engine.pointer(location))
}

/// The store as relocation sees it.
struct Outlet<'a> {
    engine: &'a Arc<Engine>,
    pool: &'a MemoryPool,
    /// Tombstones are copied in the first round only.
    first: bool,
    /// Of the outputs that are opened. Must be taken before it is asked what is current, and without what is not yet
    /// published, or else a copy could lie in a segment that seems to be newer than the tombstone of its key.
    opened_at: u64,
    durable: (u64, u32),
    piece: std::sync::atomic::AtomicUsize,
    /// Of the records that are copied.
    origin: Origin,
}

impl Outlet<'_> {
    /// Whether a segment other than the victim may hold an older version of the tombstone's key: one that was opened before
    /// the tombstone was written. Later ones got only records that were current, so none that it deletes.
    fn tombstone_is_needed(&self, victim: &Victim, entry: &Entry) -> bool {
        let older = |tier: &Tier| {
            tier.slots().iter().any(|slot| {
                let segment = slot.segment();
                segment != 0 && segment != victim.segment && slot.opened_at() <= entry.sequence
            })
        };
        entry.sequence > self.engine.cleared_through.load(Ordering::Acquire) && self.engine.tiers().any(older)
    }
}

impl Host for Outlet<'_> {
    type Error = Error;

    fn is_needed(&self, victim: &Victim, entry: &Entry) -> bool {
        match entry.kind {
            Kind::Put => is_current(self.engine, victim, entry),
            Kind::Tombstone => self.first && self.tombstone_is_needed(victim, entry),
        }
    }

    async fn read(&self, victim: &Victim, offset: u32, bytes: u32) -> Result<(Buffer, usize)> {
        let (tier, at) = (victim.shape.tier, offset as usize);
        if let Some(resident) = self.engine.residents.find(tier, victim.slot, victim.segment) {
            return Ok((Buffer::copy_from(resident.buffer.slice(at..at + bytes as usize)), 0));
        }
        self.engine.tier(tier).read(victim.slot, offset, u64::from(bytes)).await
    }

    fn durable_through(&self, output: &OpenSegment) -> u32 {
        if self.durable.0 == output.name().segment { self.durable.1 } else { 0 }
    }

    async fn open_output(&self) -> Result<OpenSegment> {
        let tier = self.engine.output_tier().name();
        match self.engine.open_segment(tier, Stream::RELOCATED, self.pool, 0, self.opened_at).await {
            Ok(Some((open, index))) => {
                self.piece.store(index, Ordering::Relaxed);
                Ok(open)
            }
            // No slot, or a file system without room for one: nothing was harmed.
            Ok(None) | Err(Error::Io(esker_device::DeviceError::Full { .. })) => {
                Err(self.engine.full_error())
            }
            Err(error) => Err(error),
        }
    }

    async fn write_frame(&self, output: &OpenSegment, frame: ClosedFrame) -> Result<()> {
        let tier = self.engine.output_tier();
        let name = output.name();
        let bytes = frame.memory.len() as u64;
        let payload = u64::from(frame.payload_bytes);
        self.engine.counters.count_frame(name.stream, payload, bytes - payload);
        let source = Source::Shared { buffer: output.memory().buffer(), range: frame.memory };
        let content = Content::Frame { origin: self.origin, payload_bytes: frame.payload_bytes };
        tier.write(&tier.device()?, name.slot, frame.offset, source, WriteMode::Plain, content).await
    }

    async fn seal_output(&self, output: OpenSegment) -> Result<()> {
        let tier = self.engine.output_tier();
        let name = output.name();
        let (start, bytes) = output.summary();
        let used = output.tail();
        self.engine.counters.count_summary(bytes.len() as u64);
        let source = Source::Owned(Buffer::copy_from(&bytes));
        // Must come before the summary, or else it could name copies that a power cut took.
        tier.device()?.flush().await.map_err(Error::from)?;
        tier.write(&tier.device()?, name.slot, start, source, WriteMode::Durable, Content::Summary).await?;
        tier.slot(name.slot).set_used(used);
        tier.slot(name.slot).set_state(SlotState::Sealed);
        let (memory, _) = output.into_parts();
        self.pool.park(name.segment, Piece { memory, index: self.piece.load(Ordering::Relaxed) });
        Ok(())
    }
}
