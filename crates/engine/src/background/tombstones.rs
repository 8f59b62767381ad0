//! Relief of space pressure: records that need not count are written off before a put is refused.
//!
//! * Expired records of segments that did not have enough of them to be swept.
//! * Tombstones. A tombstone is needed while a segment that was opened before it was written may hold an older version of its
//!   key. Cold segments that are never worth collecting would keep tombstones forever, so when these become too many, the
//!   segments opened first are rewritten, one after the other, whatever they yield. Each is rewritten at most once for the
//!   existing tombstones. A segment that a lane fills slowly is sealed for that.

use std::sync::atomic::Ordering;

use esker_gc::CALM;
use esker_log::Tier as TierName;

use crate::background::reclaimer::{Choice, Reclaimer};
use crate::background::relocate::Terms;
use crate::base::error::Result;
use crate::segments::slot::{Slot, SlotState};
use crate::segments::table::SlotRef;

/// The user limit divided by this is the amount of tombstones that is always tolerated.
const TOMBSTONES_LIMIT_DIVISOR: u64 = 64;
/// So is the segment length divided by this, if that is more.
const TOMBSTONES_SEGMENT_DIVISOR: u64 = 4;

/// The action that makes tombstones superfluous.
enum Renewal {
    None,
    /// Rewrite the segment in this slot, which was opened first.
    Rewrite(TierName, u32),
    /// Seal this segment, which a lane has been filling for so long that it keeps too many tombstones.
    Seal(u64),
}

impl Reclaimer<'_> {
    /// Takes one step to reduce the bytes that count: removes expired records, evicts a segment, or drops tombstones. Returns
    /// false if there is nothing to do.
    pub(crate) async fn relieve(&mut self) -> Result<bool> {
        let presses = self.writer.pressure.requests.is_wanted() || self.space.full.load(Ordering::Acquire);
        if self.expire_one(presses).await? {
            return Ok(true);
        }
        if self.must_evict_under_pressure() && self.evict().await? {
            return Ok(true);
        }
        self.renew(self.tombstones_tolerated(true), u64::MAX).await
    }

    /// Writes off tombstones that hide nothing any more.
    pub(crate) fn write_off_tombstones(&self) {
        if self.space.tombstone_bytes() == 0 {
            return;
        }
        let oldest = self.space.oldest_segments();
        for tier in self.space.tiers() {
            for slot in oldest.with_unneeded_tombstones(tier) {
                let bytes = tier.write_off_tombstones(slot);
                self.space.note_dead(tier, bytes.unsigned_abs());
            }
        }
    }

    /// Returns the tolerated bytes of tombstones: half of the room that puts leave or, if the store is at its limit
    /// (`presses`), a minimum.
    pub(crate) fn tombstones_tolerated(&self, presses: bool) -> u64 {
        let segment_bytes = u64::from(self.space.output_tier().shape().segment_bytes);
        let least = (self.space.user_limit_bytes() / TOMBSTONES_LIMIT_DIVISOR)
            .max(segment_bytes / TOMBSTONES_SEGMENT_DIVISOR);
        let puts = self.space.live_bytes().saturating_sub(self.space.tombstone_bytes());
        if presses { least } else { least.max(self.space.user_limit_bytes().saturating_sub(puts) / 2) }
    }

    /// Rewrites the segment that was opened first, if more than `tolerated_bytes` of tombstones can go once all older ones are
    /// rewritten, or seals it. Returns false if there is nothing to do, or no room to do it. Ignores segments with tombstones
    /// later than `through`.
    pub(crate) async fn renew(&mut self, tolerated_bytes: u64, through: u64) -> Result<bool> {
        if self.space.tombstone_bytes() <= tolerated_bytes || self.is_stuck() {
            return Ok(false);
        }
        let (tier, slot) = match self.to_renew(tolerated_bytes, through) {
            Renewal::Rewrite(tier, slot) => (tier, slot),
            Renewal::Seal(segment) => return Ok(self.writer.lanes().any(|lane| lane.seal_early(segment))),
            Renewal::None => return Ok(false),
        };
        if self.space.tier(tier).slot(slot).state() == SlotState::Open {
            // An output of its own: once sealed, it can be rewritten as well.
            self.relocator.finish().await?;
            return Ok(true);
        }
        if !self.may_free(tier, &[slot]) {
            return Ok(false);
        }
        // While there is room, a cache store copies records like any other store.
        if self.must_evict() && tier == self.space.output_tier().name() {
            return self.evict_from_slot(slot).await;
        }
        let urgency = self.space.urgency().max(CALM);
        let choice = Choice { tier, slots: vec![slot], urgency, yield_bytes: 0, terms: Terms::Always };
        self.carry_out(choice).await
    }

    fn to_renew(&self, tolerated_bytes: u64, asked_through: u64) -> Renewal {
        let space = self.space;
        let stays =
            |slot: &Slot| slot.state() != SlotState::Sealed && !self.relocator.writes_to(slot.segment());
        // A segment that a lane still writes to, or that is damaged, cannot be rewritten, and the tombstones it needs cannot
        // go.
        let unsealed: Vec<_> = space
            .tiers()
            .flat_map(|tier| tier.slots().unsealed().into_iter().map(|at| tier.slot(at)))
            .filter(|slot| slot.segment() != 0)
            .collect();
        let pin = unsealed.iter().filter(|slot| stays(slot)).min_by_key(|slot| slot.opened_at());
        let limit = pin.map_or(u64::MAX, |pin| pin.opened_at());
        let (mut bytes, mut pinned_bytes, mut through) = (0, 0, 0);
        let with_tombstones =
            space.tiers().flat_map(|tier| tier.slots().with_tombstones().into_iter().map(|at| tier.slot(at)));
        for slot in with_tombstones.filter(|s| s.state() == SlotState::Sealed && s.tombstone_bytes() > 0) {
            let slot_bytes = slot.tombstone_bytes() as u64;
            if slot.tombstones_through() > asked_through {
                continue;
            }
            if slot.tombstones_through() < limit {
                bytes += slot_bytes;
                through = through.max(slot.tombstones_through());
            } else {
                pinned_bytes += slot_bytes;
            }
        }
        if bytes <= tolerated_bytes {
            // A segment that is filled as fast as others is full before many tombstones follow it.
            let is_slow =
                |pin: &&SlotRef<'_>| pin.state() == SlotState::Open && pinned_bytes > tolerated_bytes;
            return pin.filter(is_slow).map_or(Renewal::None, |pin| Renewal::Seal(pin.segment()));
        }
        // Among the first are all that stay.
        let count = unsealed.len() + 1;
        let first = space.tiers().flat_map(|tier| {
            let first = tier.slots().opened_first(count).into_iter();
            first.map(|(opened_at, at)| (opened_at, tier.name(), at, tier.slot(at)))
        });
        let oldest = first.filter(|(opened_at, .., s)| !stays(s) && *opened_at <= through);
        let oldest = oldest.min_by_key(|&(opened_at, ..)| opened_at);
        oldest.map_or(Renewal::None, |(_, tier, slot, _)| Renewal::Rewrite(tier, slot))
    }
}
