//! Expired records: removes them from the index and from the live bytes, without reading their values. If it is unknown whether
//! a key displaced records of other keys, the headers and keys of those records are read.
//!
//! `reclaim/sweep.rs` describes which segments are examined, and when. On the medium each record continues to hide older
//! versions of its key until it is relocated.

use bytes::Bytes;
use esker_log::{Entry, EntryList, Kind, SegmentName, Tier as TierName};
use futures_util::future::join_all;

use crate::base::error::Result;
use crate::catalog::Catalog;
use crate::catalog::feed::Cause;
use crate::segments::contents::{Contents, NEVER_MS};
use crate::segments::space::Space;
use crate::write::Writer;

/// Delay in milliseconds before records that could not be removed from the index are tried again.
const AGAIN_MS: u64 = 1000;
/// Number of keys read at a time when there are observers.
const KEYS_AT_ONCE: usize = 16;

/// Removes expired records from the index.
#[derive(Clone, Copy)]
pub(crate) struct Expirer<'a> {
    pub(crate) space: &'a Space,
    pub(crate) catalog: &'a Catalog,
    pub(crate) writer: &'a Writer,
}

impl Expirer<'_> {
    /// Removes expired records of a sealed segment from the index.
    pub(crate) async fn expire_segment(&self, tier: TierName, slot: u32, entries: &EntryList) -> Result<()> {
        let now_ms = self.catalog.confirmed_ms();
        let expired = entries.iter().filter(|e| self.catalog.is_to_expire(e, now_ms)).collect();
        let segment = self.space.tier(tier).slot(slot).segment();
        let taken = self.expire_entries(tier, slot, segment, &expired).await?;
        let contents = Contents::after(entries.iter(), now_ms);
        let contents = if taken.again { contents.again_at(now_ms + AGAIN_MS) } else { contents };
        self.space.tier(tier).slots().set_expires(slot, &contents);
        Ok(())
    }

    /// Removes expired records of the lanes' open segments from the index. Returns false if there were none.
    pub(crate) async fn expire_open(&self) -> Result<bool> {
        let now_ms = self.catalog.confirmed_ms();
        let mut any = false;
        for lane in self.writer.lanes() {
            lane.forget_expiries();
            // Unpublished records are not in the index yet, but will be.
            let published = self.writer.lane.published_through();
            let (mut due, mut again) = (Due::new(now_ms), false);
            let mut expired: Vec<(SegmentName, EntryList)> = Vec::new();
            let is_all = lane.each_open_entry(|name, entry| match due.is_expired(self.catalog, entry) {
                true if entry.sequence > published => again = true,
                true => {
                    if expired.last().is_none_or(|(last, _)| last.segment != name.segment) {
                        expired.push((*name, EntryList::new()));
                    }
                    let (_, list) = expired.last_mut().expect("it was added");
                    list.push(*entry);
                }
                false => {}
            });
            again |= !is_all;
            for (SegmentName { slot, segment, .. }, entries) in expired {
                let taken = self.expire_entries(lane.shape.tier, slot, segment, &entries).await?;
                any |= taken.any;
                again |= taken.again;
            }
            lane.expires_from_at_most(due.next_ms(again));
        }
        Ok(any)
    }

    /// Removes records of a segment whose expiry has passed from the index. The slot may hold another segment by now.
    pub(crate) async fn expire_entries(
        &self,
        tier: TierName,
        slot: u32,
        segment: u64,
        expired: &EntryList,
    ) -> Result<Taken> {
        let current = || expired.iter().filter(|entry| self.catalog.is_current(tier, slot, entry));
        let uncovered = current().filter(|entry| !self.catalog.has_expired_for_good(entry));
        if let Some(last_ms) = uncovered.filter_map(|entry| entry.expires_at_ms).max() {
            // First, because otherwise a key that a client has seen absent could return.
            if !self.catalog.expire_confirmed(last_ms, self.catalog.confirmed_ms()) {
                return Ok(Taken { any: false, again: true });
            }
        }
        let mut taken = Taken::default();
        let (mut left, mut some) = (current(), Vec::with_capacity(KEYS_AT_ONCE));
        loop {
            some.clear();
            some.extend(left.by_ref().take(KEYS_AT_ONCE));
            if some.is_empty() {
                return Ok(taken);
            }
            // Observers are notified of keys, and a summary has only their hashes.
            let keys = match self.catalog.feed.has_observers() {
                true => join_all(some.iter().map(|entry| self.key_of(tier, slot, entry))).await,
                false => vec![None; some.len()],
            };
            for (entry, key) in some.iter().zip(keys) {
                match self.expire_record(tier, slot, segment, entry, key.as_deref()).await? {
                    Some(removed) => taken.any |= removed,
                    None => taken.again = true,
                }
            }
        }
    }

    /// Returns the key of a record, for observers; `None` if it cannot be read.
    pub(crate) async fn key_of(&self, tier: TierName, slot: u32, entry: &Entry) -> Option<Bytes> {
        let location = self.space.location(tier, slot, entry);
        self.catalog.read_key(&self.catalog.unchecked_place(self.catalog.pointer(location))).await
    }

    /// Removes an expired record from the index. Returns false if it was not in it, and `None` if a writer has reserved the
    /// key: that writer has read the record and relies on finding it until its own record is published, because otherwise a
    /// delete could mistake another key of the same stored hash for it. The writer is not waited for, because it may wait for
    /// room.
    async fn expire_record(
        &self,
        tier: TierName,
        slot: u32,
        segment: u64,
        entry: &Entry,
        key: Option<&[u8]>,
    ) -> Result<Option<bool>> {
        if !self.catalog.is_current(tier, slot, entry) {
            return Ok(Some(false));
        }
        let hash = entry.key_hash;
        let Some(_reservation) = self.writer.lane.try_reserve(vec![self.catalog.index.stored_hash(&hash)])
        else {
            return Ok(None);
        };
        // First, because otherwise another key hidden by the slot would be lost with it.
        self.catalog.verify_to_remove(&hash).await?;
        // Otherwise a later record of the key at the same place of the slot's next segment would be removed. None is appended
        // meanwhile.
        if self.space.tier(tier).slot(slot).segment() != segment {
            return Ok(Some(false));
        }
        let location = self.space.location(tier, slot, entry);
        let removed = self.catalog.take_out(entry, location, key, Cause::Expired);
        if removed {
            self.space.counters.count_expired();
        }
        Ok(Some(removed))
    }
}

/// Result of removing records from the index.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taken {
    /// True if some were in the index.
    any: bool,
    /// True if some still are.
    pub(crate) again: bool,
}

/// Collects the expired entries of an open segment, and the time of the next expiry.
pub(crate) struct Due {
    now_ms: u64,
    /// Earliest expiry of the entries that have not expired.
    next_ms: u64,
}

impl Due {
    pub(crate) fn new(now_ms: u64) -> Due {
        Due { now_ms, next_ms: NEVER_MS }
    }

    /// Returns true if an entry has expired.
    pub(crate) fn is_expired(&mut self, catalog: &Catalog, entry: &Entry) -> bool {
        let Some(at_ms) = entry.expires_at_ms else { return false };
        let is_expired = catalog.is_to_expire(entry, self.now_ms);
        if !is_expired && entry.kind == Kind::Put {
            self.next_ms = self.next_ms.min(at_ms);
        }
        is_expired
    }

    /// Returns the time at which the segment is to be examined again.
    pub(crate) fn next_ms(&self, again: bool) -> u64 {
        if again { self.next_ms.min(self.now_ms + AGAIN_MS) } else { self.next_ms }
    }
}
