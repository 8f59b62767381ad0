//! Expired records of a replicated store. Clocks of nodes differ, so nothing expires by a clock alone: the leader of a group
//! proposes to delete records whose time has passed by its clock. Nodes that lead no group do nothing.
//!
//! A task of its own, because it waits for proposals. It keeps the next time of each segment to itself: the bounds of the
//! slots are those of the sweep, which finds nothing in a replicated store.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use esker_log::{Entry, Keyspace, Kind, TYPICAL_ENTRY_BYTES, Tier as TierName};
use futures_util::future::{Either, join_all, select};
use hashbrown::HashMap;

use crate::base::error::Result;
use crate::base::fixed_hash::FixedState;
use crate::base::waiting::woken_or_after;
use crate::segments::contents::{Expiry, NEVER_MS};
use crate::write::Writer;

/// Interval between two rounds.
const ROUND_EVERY: Duration = Duration::from_millis(500);
/// Delay in milliseconds before a segment is examined again in which expired records were left: their groups are led by other
/// nodes, which delete them, or a writer has reserved them.
const LEFT_AGAIN_MS: u64 = 5000;
/// Number of keys that are deleted at a time.
const KEYS_AT_ONCE: usize = 256;
/// Maximum rate of reading summaries, in bytes per second.
const SUMMARY_BYTES_PER_S: u64 = 16 << 20;

/// Deletes expired records of the groups that this node leads, until the store closes.
pub(crate) async fn run(writer: Arc<Writer>) {
    let mut task = ExpireGroups { writer: &writer, due: HashMap::default() };
    loop {
        // Only a store that closes or has failed wakes it.
        let mut woken = pin!(writer.space.expiries.notified());
        if writer.space.health.check_writable().is_err() {
            return;
        }
        if task.leads_any() {
            // A close does not wait for proposals: without a majority they have no end.
            match select(pin!(task.round()), woken.as_mut()).await {
                Either::Left((Ok(()), _)) => {}
                Either::Left((Err(error), _)) => {
                    tracing::debug!(%error, "expired keys are left to the next round");
                }
                Either::Right(_) => continue,
            }
        }
        woken_or_after(&*writer.space.runtime, woken, ROUND_EVERY).await;
    }
}

/// Place of a segment.
type SegmentAt = (TierName, u32);

struct ExpireGroups<'a> {
    writer: &'a Writer,
    /// For each segment with expired records: its number, and the time in milliseconds when it is examined again.
    due: HashMap<SegmentAt, (u64, u64), FixedState>,
}

/// The expired records of a segment, and the time of the next expiry in it.
struct Examined {
    expired: Vec<Entry>,
    next_ms: u64,
}

impl Examined {
    fn of(entries: impl Iterator<Item = Entry>, now_ms: u64) -> Examined {
        let mut examined = Examined { expired: Vec::new(), next_ms: NEVER_MS };
        for entry in entries.filter(|entry| entry.kind == Kind::Put) {
            match entry.expires_at_ms {
                Some(at_ms) if at_ms <= now_ms => examined.expired.push(entry),
                Some(at_ms) => examined.next_ms = examined.next_ms.min(at_ms),
                None => {}
            }
        }
        examined
    }
}

impl ExpireGroups<'_> {
    fn leads_any(&self) -> bool {
        Keyspace::all().skip(1).any(|keyspace| self.leads(keyspace))
    }

    fn leads(&self, keyspace: Keyspace) -> bool {
        self.writer.catalog.replicator().is_some_and(|replicator| replicator.term(keyspace.number()).is_ok())
    }

    async fn round(&mut self) -> Result<()> {
        let now_ms = self.writer.catalog.now_ms();
        self.expire_open(now_ms).await?;
        let listed: Vec<SegmentAt> = self
            .writer
            .space
            .tiers()
            .flat_map(|tier| {
                let slots = tier.slots().all_expired(Expiry::First, now_ms);
                slots.into_iter().map(|slot| (tier.name(), slot))
            })
            .collect();
        let mut due = std::mem::take(&mut self.due);
        for at in listed {
            let segment = self.writer.space.tier(at.0).slot(at.1).segment();
            let known = due.remove(&at).filter(|(known, _)| *known == segment);
            let next_ms = match known {
                Some((_, next_ms)) if next_ms > now_ms => next_ms,
                _ => self.expire_segment(at, segment, now_ms).await?,
            };
            self.due.insert(at, (segment, next_ms));
        }
        Ok(())
    }

    /// Deletes expired records of the lanes' open segments.
    async fn expire_open(&self, now_ms: u64) -> Result<()> {
        for lane in self.writer.lanes() {
            if lane.expires_from().is_none_or(|at_ms| at_ms > now_ms) {
                continue;
            }
            lane.forget_expiries();
            let mut entries: Vec<(SegmentAt, u64, Entry)> = Vec::new();
            lane.each_open_entry(|name, entry| {
                if entry.expires_at_ms.is_some() {
                    entries.push(((lane.shape.tier, name.slot), name.segment, *entry));
                }
            });
            let mut next_ms = NEVER_MS;
            for row in entries.chunk_by(|one, other| one.1 == other.1) {
                let (at, segment, _) = row[0];
                let examined = Examined::of(row.iter().map(|(_, _, entry)| *entry), now_ms);
                let row_ms = self.delete(at, segment, examined, now_ms).await;
                next_ms = next_ms.min(*row_ms.as_ref().unwrap_or(&now_ms));
                if let Err(error) = row_ms {
                    lane.expires_from_at_most(next_ms);
                    return Err(error);
                }
            }
            lane.expires_from_at_most(next_ms);
        }
        Ok(())
    }

    /// Deletes expired records of a sealed segment. Returns the time when it is to be examined again.
    async fn expire_segment(&self, at: SegmentAt, segment: u64, now_ms: u64) -> Result<u64> {
        let space = &self.writer.space;
        // Read errors are reported by the tasks that read the segment for other reasons.
        let Ok(Some(entries)) = space.read_entries_or_scan(space.tier(at.0), at.1).await else {
            return Ok(now_ms + LEFT_AGAIN_MS);
        };
        let bytes = entries.len() as u64 * TYPICAL_ENTRY_BYTES;
        let next_ms = self.delete(at, segment, Examined::of(entries.iter(), now_ms), now_ms).await?;
        space.runtime.sleep(Duration::from_micros(bytes * 1_000_000 / SUMMARY_BYTES_PER_S)).await;
        Ok(next_ms)
    }

    /// Deletes expired records of a segment. Returns the time when it is to be examined again.
    async fn delete(&self, at: SegmentAt, segment: u64, examined: Examined, now_ms: u64) -> Result<u64> {
        let Examined { expired, mut next_ms } = examined;
        let current = expired.iter().filter(|entry| self.writer.catalog.is_current(at.0, at.1, entry));
        let (mut current, mut row) = (current, Vec::with_capacity(KEYS_AT_ONCE));
        loop {
            row.clear();
            row.extend(current.by_ref().take(KEYS_AT_ONCE));
            if row.is_empty() {
                return Ok(next_ms);
            }
            self.writer.space.health.check_writable()?;
            let deleted = join_all(row.iter().map(|entry| self.delete_record(at, segment, entry))).await;
            if deleted.iter().any(|deleted| !matches!(deleted, Ok(true))) {
                next_ms = next_ms.min(now_ms + LEFT_AGAIN_MS);
            }
        }
    }

    /// Proposes to delete an expired record, if this node leads its group, and waits until that is done. Returns false if the
    /// record is left: the node does not lead, a writer has reserved the key, or the key cannot be read.
    async fn delete_record(&self, at: SegmentAt, segment: u64, entry: &Entry) -> Result<bool> {
        let (catalog, hash) = (&self.writer.catalog, entry.key_hash);
        if !self.leads(hash.keyspace()) {
            return Ok(false);
        }
        let stored = vec![catalog.index.stored_hash(&hash)];
        let Some(reservation) = self.writer.lane.try_reserve(stored) else { return Ok(false) };
        let location = self.writer.space.location(at.0, at.1, entry);
        let key: Option<Bytes> = catalog.read_key(&catalog.unchecked_place(catalog.pointer(location))).await;
        let Some(key) = key.filter(|key| catalog.hash(hash.keyspace(), key) == hash) else {
            return Ok(false);
        };
        if self.writer.space.tier(at.0).slot(at.1).segment() != segment {
            return Ok(true);
        }
        self.writer.delete_expired(&key, &hash, entry.sequence, reservation).await?;
        Ok(true)
    }
}
