//! Dropping records that are current, where a full store evicts. What is dropped is gone for good, and no older
//! version of it shows:
//!
//! 1. What stays is copied, as in any relocation.
//! 2. The keys of what is to be dropped are reserved, and what was appended before is published. So nobody writes them until
//!    they are dropped. What somebody else has reserved is in use and stays: it is copied as well.
//! 3. A record that may hide an older version of its key leaves a tombstone of its own number among the copies. At an
//!    opening that counts for more than the record.
//! 4. The copies are proven to be durable, and everything that was appended is flushed.
//! 5. The slot is marked free at its end, durably: from here on a crash takes what is to be dropped, all of it. Readers
//!    still find it.
//! 6. The records are taken out of the index. Must come after 5, or else a crash could bring back a key that somebody has
//!    found gone.
//! 7. The slot is marked free at its start, and used again.
//!
//! If the eviction ends before 5, because there is no room for more copies or something cannot be read, the records that left
//! a tombstone in 3 are dropped all the same, once the tombstones are proven to be durable: the next opening would drop them.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use esker_gc::{Moves, Victim};
use esker_log::{Entry, Kind, Tier as TierName};
use esker_seeded_bugs::{Bug, planted};

use super::{Outcome, Relocator, Victims};

use crate::base::error::{Error, Result};
use crate::catalog::observers::Cause;
use crate::write::reserve::Reservation;

/// Records of one segment that are to be dropped.
pub(crate) struct Eviction {
    segment: u64,
    /// Where they begin.
    offsets: BTreeSet<u32>,
    /// Their keys; `None` before 2.
    held: Option<Reservation>,
    /// The keys, by the same, while anybody observes: a summary has only their hashes.
    keys: BTreeMap<u32, Bytes>,
    /// Records of which a tombstone was written, see 3.
    buried: Vec<Entry>,
}

impl Eviction {
    /// Whether it is about a record.
    pub(crate) fn drops(&self, victim: &Victim, entry: &Entry) -> bool {
        victim.segment == self.segment && entry.kind == Kind::Put && self.offsets.contains(&entry.offset)
    }

    /// Whether nobody else writes the keys any more.
    pub(crate) fn is_held(&self) -> bool {
        self.held.is_some()
    }
}

impl Relocator<'_> {
    /// Empties a segment as [`relocate`](Self::relocate) does, and drops those of its records that begin at these offsets.
    ///
    /// # Errors
    /// With the slot at which it happened.
    pub(crate) async fn evict(
        &mut self,
        tier: TierName,
        slot: u32,
        urgency: f64,
        offsets: BTreeSet<u32>,
    ) -> std::result::Result<Outcome, (u32, Error)> {
        let segment = self.space.tier(tier).slot(slot).segment();
        let (keys, buried) = (BTreeMap::new(), Vec::new());
        self.eviction = Some(Eviction { segment, offsets, held: None, keys, buried });
        let done = self.relocate(tier, &[slot], urgency, true).await;
        self.eviction = None;
        done
    }

    /// 2. Those that cannot be reserved stay, and so do those of which it cannot be read who else has their places in the index.
    pub(super) async fn hold_evicted(&mut self, tier: TierName, victims: &Victims) -> Result<()> {
        let (Some(mut eviction), Some((victim, entries))) = (self.eviction.take(), victims.first()) else {
            return Ok(());
        };
        let stored = |entry: &Entry| self.catalog.index.stored_hash(&entry.key_hash);
        let dropped = || entries.iter().filter(|entry| eviction.drops(victim, entry));
        let (reservation, reserved) =
            self.writer.lane.reserve_free(dropped().map(|entry| stored(&entry)).collect());
        self.writer.lane.wait_for_earlier().await?;
        let (mut offsets, mut keys) = (BTreeSet::new(), BTreeMap::new());
        let is_ours = |entry: &Entry| {
            reserved.binary_search(&stored(entry)).is_ok() || planted(Bug::EvictedThoughReserved)
        };
        for entry in dropped().filter(is_ours) {
            match self.catalog.verify(&entry.key_hash).await {
                Ok(()) if self.catalog.is_current(tier, victim.slot, &entry) => {
                    offsets.insert(entry.offset);
                }
                Ok(()) => {}
                Err(error) if error.is_of_reading() => {}
                Err(error) => return Err(error),
            }
        }
        if self.catalog.observers.are_any() {
            for entry in dropped().filter(|entry| offsets.contains(&entry.offset)) {
                let key = self.expirer.key_of(tier, victim.slot, &entry).await;
                keys.extend(key.map(|key| (entry.offset, key)));
            }
        }
        (eviction.offsets, eviction.held, eviction.keys) = (offsets, Some(reservation), keys);
        self.eviction = Some(eviction);
        Ok(())
    }

    /// Notes the records that are to be dropped and of which tombstones were copied.
    pub(super) fn note_buried(&mut self, victims: &Victims, moves: &Moves) {
        let Some(eviction) = self.eviction.as_mut().filter(|eviction| eviction.is_held()) else { return };
        for m in moves.iter().filter(|m| m.kind == Kind::Tombstone) {
            if eviction.drops(&victims[m.victim].0, &m.entry) {
                eviction.buried.push(m.entry);
            }
        }
    }

    /// Drops the records of which tombstones were copied, of a victim that is not freed.
    pub(super) async fn drop_buried(&mut self, tier: TierName, victim: &Victim) -> Result<()> {
        let buried = self.eviction.as_mut().map(|eviction| std::mem::take(&mut eviction.buried));
        let buried = buried.filter(|buried| !buried.is_empty() && !planted(Bug::BuriedStaysCurrent));
        let Some(buried) = buried else { return Ok(()) };
        // Must come first, or else a crash could bring back a key that a client has seen absent.
        self.prove_outputs().await?;
        self.drop_evicted(tier, victim, buried);
        Ok(())
    }

    /// 6.
    pub(super) fn drop_evicted(
        &self,
        tier: TierName,
        victim: &Victim,
        entries: impl IntoIterator<Item = Entry>,
    ) {
        let Some(eviction) = &self.eviction else { return };
        let mut unnamed = BTreeSet::new();
        for entry in entries.into_iter().filter(|entry| eviction.drops(victim, entry)) {
            let location = self.space.location(tier, victim.slot, &entry);
            let key = eviction.keys.get(&entry.offset).map(|key| &key[..]);
            if self.catalog.take_out(&entry, location, key, Cause::Evicted) {
                self.space.counters.count_evicted();
                self.catalog.recency.note_evicted(&entry.key_hash, self.catalog.index.len());
                unnamed.extend(key.is_none().then(|| entry.key_hash.keyspace().number()));
            }
        }
        // Who came since their keys were to be read may have seen them.
        if !unnamed.is_empty() && !planted(Bug::EvictionNotReported) {
            let turn = self.catalog.observers.take_turn();
            unnamed.into_iter().for_each(|keyspace| turn.tell_missed(keyspace));
        }
    }
}
