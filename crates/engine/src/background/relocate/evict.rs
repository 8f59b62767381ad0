//! Evicts current records of a full store. An evicted record is gone for good, and no older version of its key reappears:
//!
//! 1. Records that stay are copied, as in any relocation.
//! 2. The keys of the records to be dropped are reserved, and all records appended before are published, so that the keys are
//!    not written until they are dropped. Keys that another writer has reserved are in use: their records are copied as well.
//! 3. A record that may hide an older version of its key leaves a tombstone with its own sequence number among the copies. At
//!    an opening the tombstone takes precedence over the record.
//! 4. The copies are proven durable, and all appended records are flushed.
//! 5. The slot is marked free at its end, durably: from here on a crash drops all the records to be dropped. Readers still find
//!    them.
//! 6. The records are removed from the index. This comes after step 5, because otherwise a crash could bring back a key that a
//!    client has seen absent.
//! 7. The slot is marked free at its start, and can be reused.
//!
//! If the eviction ends before step 5, because there is no room for more copies or a record cannot be read, the records that
//! left a tombstone in step 3 are dropped nevertheless, once the tombstones are proven durable, because the next opening would
//! drop them.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use esker_gc::{Moves, Victim};
use esker_log::{Entry, Kind, Tier as TierName};
use esker_seeded_bugs::{Bug, planted};

use super::{Outcome, Relocator, Victims};

use crate::base::error::{Error, Result};
use crate::catalog::feed::Cause;
use crate::write::reserve::Reservation;

/// Records of one segment that are to be dropped.
pub(crate) struct Eviction {
    segment: u64,
    /// Offsets of the records.
    offsets: BTreeSet<u32>,
    /// Reservation of their keys; `None` before step 2.
    held: Option<Reservation>,
    /// Keys by offset, while there are observers, because a summary has only their hashes.
    keys: BTreeMap<u32, Bytes>,
    /// Records of which a tombstone was written in step 3.
    buried: Vec<Entry>,
}

impl Eviction {
    /// Returns true if a record is to be dropped.
    pub(crate) fn drops(&self, victim: &Victim, entry: &Entry) -> bool {
        victim.segment == self.segment && entry.kind == Kind::Put && self.offsets.contains(&entry.offset)
    }

    /// Returns true if the keys are reserved, so that no other writer changes them.
    pub(crate) fn is_held(&self) -> bool {
        self.held.is_some()
    }
}

impl Relocator<'_> {
    /// Empties a segment like [`relocate`](Self::relocate), and drops its records at these offsets.
    ///
    /// # Errors
    /// Returns the slot at which the error happened.
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

    /// Step 2. Records whose keys cannot be reserved stay, as do those whose overwrites in the index cannot be verified.
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
        if self.catalog.feed.has_observers() {
            for entry in dropped().filter(|entry| offsets.contains(&entry.offset)) {
                let key = self.expirer.key_of(tier, victim.slot, &entry).await;
                keys.extend(key.map(|key| (entry.offset, key)));
            }
        }
        (eviction.offsets, eviction.held, eviction.keys) = (offsets, Some(reservation), keys);
        self.eviction = Some(eviction);
        Ok(())
    }

    /// Notes the records to be dropped of which tombstones were copied.
    pub(super) fn note_buried(&mut self, victims: &Victims, moves: &Moves) {
        let Some(eviction) = self.eviction.as_mut().filter(|eviction| eviction.is_held()) else { return };
        for m in moves.iter().filter(|m| m.kind == Kind::Tombstone) {
            if eviction.drops(&victims[m.victim].0, &m.entry) {
                eviction.buried.push(m.entry);
            }
        }
    }

    /// Drops the records of which tombstones were copied, from a victim that is not freed.
    pub(super) async fn drop_buried(&mut self, tier: TierName, victim: &Victim) -> Result<()> {
        let buried = self.eviction.as_mut().map(|eviction| std::mem::take(&mut eviction.buried));
        let buried = buried.filter(|buried| !buried.is_empty() && !planted(Bug::BuriedStaysCurrent));
        let Some(buried) = buried else { return Ok(()) };
        // First, because otherwise a crash could bring back a key that a client has seen absent.
        self.prove_outputs().await?;
        self.drop_evicted(tier, victim, buried);
        Ok(())
    }

    /// Step 6.
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
        // An observer that registered after step 2 may know these keys, and so may any observer if a key could not be read:
        // they are notified of the keyspaces only.
        if !unnamed.is_empty() && !planted(Bug::EvictionNotReported) {
            let feed = &self.catalog.feed;
            feed.notify(&feed.take_turn(), |observer| {
                unnamed.iter().for_each(|keyspace| observer.missed(*keyspace));
            });
        }
    }
}
