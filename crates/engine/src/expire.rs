//! Expired records: taken out of the index and no longer counted, without reading a value.
//!
//! A segment is looked at when noticeably many of its bytes have expired, and, where the store has no room for a put, when
//! any have. On the medium each record goes on to hide the older versions of its key, until it is relocated.

use std::sync::Arc;

use esker_device::{DeviceError, OperationKind};
use esker_log::{Entry, Kind, Tier as TierName};

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::relocate::hash_of;
use crate::slot::Contents;

impl Engine {
    /// Whether what a summary names is a record that has expired for good.
    pub(crate) fn has_expired_for_good(&self, entry: &Entry) -> bool {
        let at_ms = entry.expires_at_ms.filter(|_| entry.kind == Kind::Put);
        at_ms.is_some_and(|at_ms| self.clock.covers(entry.sequence, at_ms))
    }

    /// Takes expired records of a sealed segment out of the index.
    pub(crate) async fn expire_segment(&self, tier: TierName, slot: u32, entries: &[Entry]) -> Result<()> {
        let now = self.confirmed_ms();
        let expired: Vec<_> = entries.iter().filter(|entry| self.is_to_expire(entry, now)).copied().collect();
        self.expire_entries(tier, slot, &expired).await?;
        self.tier(tier).slots().set_expires(slot, &Contents::after(entries, now));
        Ok(())
    }

    /// The slot that could not be read, if the error is about one.
    pub(crate) fn place_of(&self, error: &Error) -> Option<(TierName, u32)> {
        self.tiers().find_map(|tier| {
            let slot = match error {
                Error::Corrupt { segment, .. } => {
                    tier.slots().all().iter().position(|slot| slot.segment() == *segment && *segment != 0)
                }
                Error::Io(DeviceError::Io { op: OperationKind::Read, offset, path, .. }) => {
                    (**path == *tier.device_name()).then(|| tier.slot_at(*offset)).flatten()
                }
                _ => None,
            };
            Some((tier.name(), u32::try_from(slot?).ok()?))
        })
    }

    /// Takes expired records of the lanes' open segments out of the index; false if there were none.
    pub(crate) async fn expire_open(self: &Arc<Engine>) -> Result<bool> {
        let now = self.confirmed_ms();
        let mut any = false;
        for lane in self.lanes() {
            for (tier, slot, entry) in lane.open_entries(|entry| self.is_to_expire(entry, now)) {
                any |= self.expire_entries(tier, slot, &[entry]).await?;
            }
        }
        Ok(any)
    }

    fn is_to_expire(&self, entry: &Entry, now_ms: u64) -> bool {
        let is_due = entry.kind == Kind::Put && entry.expires_at_ms.is_some_and(|at| at <= now_ms);
        is_due || self.has_expired_for_good(entry)
    }

    /// Takes records of a segment whose expiry has passed out of the index; false if none of them was in it.
    async fn expire_entries(&self, tier: TierName, slot: u32, expired: &[Entry]) -> Result<bool> {
        let current = expired.iter().filter(|entry| self.is_current(tier, slot, entry));
        let current: Vec<&Entry> = current.collect();
        let uncovered = current.iter().filter(|entry| !self.has_expired_for_good(entry));
        if let Some(last_ms) = uncovered.filter_map(|entry| entry.expires_at_ms).max() {
            // Must come first, or else a key of which somebody saw that it is gone could come back.
            self.expire_for_good(last_ms);
        }
        let mut any = false;
        for entry in current {
            match self.expire_record(tier, slot, entry).await {
                // What cannot be read lies elsewhere, and no reason to give this segment up. The record is relocated then.
                Err(error) if self.place_of(&error).is_some_and(|place| place != (tier, slot)) => {
                    tracing::warn!(%error, "an expired record cannot be taken out of the index yet");
                }
                expired => any |= expired?,
            }
        }
        Ok(any)
    }

    /// Takes an expired record out of the index; false if it was not in it, or if somebody has the key reserved: who has
    /// looked at it relies on it to be found until what they write is published, or else a delete could take another key of
    /// the same stored hash for it. It is not waited for, since they may wait for room; the record is relocated then.
    async fn expire_record(&self, tier: TierName, slot: u32, entry: &Entry) -> Result<bool> {
        if !self.is_current(tier, slot, entry) {
            return Ok(false);
        }
        let hash = hash_of(entry);
        let Some(_reservation) = self.lane.try_reserve(vec![self.index.stored_hash(&hash)]) else {
            return Ok(false);
        };
        // Must come first, or else another key that the slot hides would go with it.
        self.settle(&hash).await?;
        let location = self.location(tier, slot, entry);
        let removed = self.index.remove(&hash, self.pointer(location));
        if removed {
            self.counters.count_expired();
            self.add_live(location, -(self.tier(tier).shape().padded(entry.bytes as usize) as i64));
        }
        Ok(removed)
    }
}
