//! Writing: puts, deletes, conditional writes, batches.
//!
//! A plain put goes straight to the lane. Whatever has to know what is there before it writes reserves its keys first.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use esker_index::KeyHash;
use esker_log::{Kind, MAX_KEY_BYTES};
use hashbrown::HashMap;

use crate::append::{Prepared, Replaced};
use crate::batch::{Batch, Operation};
use crate::cache::Cached;
use crate::clock::Life;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::get::Found;
use crate::lane::{Append, Lane};
use crate::options::Durability;
use crate::reserve::Reservation;
use crate::store::{Condition, WriteOptions};

/// How often a delete asks for room before it is told that there is none.
const DELETE_ATTEMPTS: u32 = 500;

/// What a record takes in its segment's summary, about.
const SUMMARY_BYTES: u64 = 24;

impl Engine {
    /// The longest value under a key of so many bytes.
    pub(crate) fn max_value_bytes(&self, key_bytes: usize, expires: bool) -> u64 {
        let lane = self.large.as_ref().unwrap_or(&self.lane);
        let overhead = esker_log::record_bytes(key_bytes, 0, expires) as u64;
        lane.shape.max_record_bytes().min(self.lane.shape.max_record_bytes()) - overhead
    }

    pub(crate) fn prepare(
        &self,
        kind: Kind,
        key: Bytes,
        value: Bytes,
        expires_at_ms: Option<u64>,
    ) -> Result<Prepared> {
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            return Err(Error::invalid(format!(
                "key of {} bytes; a key has 1 to {MAX_KEY_BYTES}",
                key.len()
            )));
        }
        let limit = self.max_value_bytes(key.len(), expires_at_ms.is_some());
        if value.len() as u64 > limit {
            return Err(Error::invalid(format!(
                "value of {} bytes; at most {limit} fit in a segment beside a key of {} bytes",
                value.len(),
                key.len()
            )));
        }
        let hash = self.hash(&key);
        let value_check = self.secret.value_check(&value);
        Ok(Prepared { kind, key, value, hash, value_check, expires_at_ms, sequence: None, replaces: None })
    }

    pub(crate) fn durability(&self, options: &WriteOptions) -> Result<Durability> {
        let durability = options.durability.unwrap_or(self.durability);
        if durability == Durability::Process && !self.outlives_process {
            return Err(Error::invalid(
                "durability Process needs a staging file, which this store has not; give Options::staging",
            ));
        }
        Ok(durability)
    }

    pub(crate) async fn put(&self, key: Bytes, value: Bytes, options: WriteOptions) -> Result<u64> {
        let durability = self.durability(&options)?;
        let mut prepared = self.prepare(Kind::Put, key, value, options.expires_at_ms)?;
        self.check_writable()?;
        self.find_room_for(&prepared).await?;
        self.counters.count_put(prepared.key.len() + prepared.value.len());
        let large = self.lane_for_large(&prepared);
        let mut reservation = None;
        if large.is_some() || options.condition != Condition::Always {
            let key = self.index.stored_hash(&prepared.hash);
            reservation = Some(self.lane.reserve(self, vec![key]).await?);
            if options.condition != Condition::Always {
                prepared.replaces =
                    self.check_condition(&prepared, options.condition, &mut reservation).await?;
            }
            if let (Some(reserved), true) = (&mut reservation, large.is_some()) {
                prepared.sequence = Some(reserved.draw(&self.sequence));
            }
        }
        let lane = large.unwrap_or(&self.lane);
        self.append(lane, std::slice::from_ref(&prepared), durability, reservation).await
    }

    /// Whether the condition holds under this reservation; what the put then replaces.
    async fn check_condition(
        &self,
        put: &Prepared,
        condition: Condition,
        reservation: &mut Option<Reservation>,
    ) -> Result<Option<Replaced>> {
        let found = self.look_up(&put.key, &put.hash).await?;
        let life = found.as_ref().map(|f| self.life(f.record.sequence, f.record.expires_at_ms));
        let current = found.as_ref().filter(|_| life == Some(Life::Alive)).map(|f| f.record.sequence);
        let (holds, wanted) = match condition {
            Condition::Always => (true, String::new()),
            Condition::IfAbsent => (current.is_none(), "the key to be absent".to_string()),
            Condition::IfPresent => (current.is_some(), "the key to be present".to_string()),
            Condition::IfVersion(version) => (current == Some(version), format!("version {version}")),
        };
        if !holds {
            if let (Some(Life::Unconfirmed), Some(found)) = (life, found) {
                drop(reservation.take());
                let Cached { sequence, expires_at_ms, .. } = found.record;
                self.keep_expired(&put.key, &put.hash, sequence, expires_at_ms).await;
            }
            let found = current.map_or("it is absent".to_string(), |v| format!("it has version {v}"));
            return Err(Error::Conflict { what: format!("expected {wanted}, but {found}"), current });
        }
        Ok(found.map(|f| f.replaced()))
    }

    pub(crate) async fn delete(&self, key: Bytes, options: WriteOptions) -> Result<bool> {
        let durability = self.durability(&options)?;
        let mut prepared = self.prepare(Kind::Tombstone, key, Bytes::new(), None)?;
        self.check_writable()?;
        let mut reservation =
            Some(self.lane.reserve(self, vec![self.index.stored_hash(&prepared.hash)]).await?);
        if options.condition != Condition::Always {
            self.check_condition(&prepared, options.condition, &mut reservation).await?;
        }
        let Some((replaced, alive)) = self.find_for_delete(&prepared.key, &prepared.hash).await? else {
            return Ok(false);
        };
        prepared.replaces = Some(replaced);
        self.counters.count_delete();
        self.append(&self.lane, std::slice::from_ref(&prepared), durability, reservation).await?;
        Ok(alive)
    }

    /// The record that a delete removes, and whether anybody could see it. The key is reserved.
    async fn find_for_delete(&self, key: &[u8], hash: &KeyHash) -> Result<Option<(Replaced, bool)>> {
        // A slot is given up only when no other key can be hidden behind it.
        self.settle(hash).await?;
        let found = self.look_up(key, hash).await?;
        let is_alive = |f: &Found| self.life(f.record.sequence, f.record.expires_at_ms) == Life::Alive;
        Ok(found.map(|f| (f.replaced(), is_alive(&f))))
    }

    pub(crate) async fn write(&self, batch: Batch, options: WriteOptions) -> Result<()> {
        if options.condition != Condition::Always {
            return Err(Error::invalid(
                "a batch has no condition; put the condition on single writes, or update",
            ));
        }
        let durability = self.durability(&options)?;
        self.find_room(self.padded_bytes_of(&batch, &options)).await;
        let mut records = self.records_of(batch, &options)?;
        let mut reservation = None;
        if records.iter().any(|r| r.kind == Kind::Tombstone) {
            // All keys: a delete that reserves its own while it waits for a put of the same batch would wait for ever.
            let keys = records.iter().map(|r| self.index.stored_hash(&r.hash)).collect();
            reservation = Some(self.lane.reserve(self, keys).await?);
            let mut kept = Vec::with_capacity(records.len());
            for mut record in records {
                if record.kind == Kind::Tombstone {
                    let Some((replaced, _)) = self.find_for_delete(&record.key, &record.hash).await? else {
                        continue;
                    };
                    record.replaces = Some(replaced);
                }
                kept.push(record);
            }
            records = kept;
        }
        self.commit(records, durability, reservation).await
    }

    /// The room that a batch takes; none if it puts nothing.
    pub(crate) fn padded_bytes_of(&self, batch: &Batch, options: &WriteOptions) -> u64 {
        let padded = |operation: &Operation| match operation {
            Operation::Put { key, value, expires_at_ms } => {
                let expires = expires_at_ms.or(options.expires_at_ms).is_some();
                self.lane.shape.padded(esker_log::record_bytes(key.len(), value.len(), expires))
            }
            Operation::Delete { key } => self.lane.shape.padded(esker_log::record_bytes(key.len(), 0, false)),
        };
        let puts = batch.operations.iter().any(|o| matches!(o, Operation::Put { .. }));
        if puts { batch.operations.iter().map(padded).sum() } else { 0 }
    }

    /// The records of a batch, checked. The last operation on a key is the one that counts.
    pub(crate) fn records_of(&self, batch: Batch, options: &WriteOptions) -> Result<Vec<Prepared>> {
        let mut records = Vec::with_capacity(batch.len());
        for operation in batch.operations {
            records.push(match operation {
                Operation::Put { key, value, expires_at_ms } => {
                    self.prepare(Kind::Put, key, value, expires_at_ms.or(options.expires_at_ms))?
                }
                Operation::Delete { key } => self.prepare(Kind::Tombstone, key, Bytes::new(), None)?,
            });
        }
        if records.len() > 1 {
            // By digests, which nobody can choose so that they collide.
            let mut last: HashMap<(u64, u64), usize, crate::reserve::FixedState> = HashMap::default();
            for (at, record) in records.iter().enumerate() {
                last.insert((record.hash.slot, record.hash.check), at);
            }
            let mut at = 0;
            records.retain(|record| {
                at += 1;
                last[&(record.hash.slot, record.hash.check)] == at - 1
            });
        }
        self.check_writable()?;
        let bytes: u64 = records.iter().map(|r| r.padded_bytes(self.lane.shape)).sum();
        let limit = self.lane.shape.max_record_bytes();
        let summaries = records.len().saturating_sub(1) * esker_log::MAX_ENTRY_BYTES;
        if bytes + summaries as u64 > limit {
            return Err(Error::invalid(format!(
                "batch of {} records and {bytes} bytes; at most {limit} bytes fit in a segment",
                records.len()
            )));
        }
        if records.iter().any(|r| r.kind == Kind::Put) {
            self.check_room(bytes)?;
        }
        Ok(records)
    }

    /// Appends the records of a batch or update as one.
    pub(crate) async fn commit(
        &self,
        mut records: Vec<Prepared>,
        durability: Durability,
        mut reservation: Option<Reservation>,
    ) -> Result<()> {
        for record in &records {
            match record.kind {
                Kind::Put => self.counters.count_put(record.key.len() + record.value.len()),
                Kind::Tombstone => self.counters.count_delete(),
            }
        }
        let mut lane = &self.lane;
        match (&mut *records, &mut reservation) {
            ([], _) => return Ok(()),
            ([only], Some(reservation)) if only.kind == Kind::Put => {
                if let Some(large) = self.lane_for_large(only) {
                    only.sequence = Some(reservation.draw(&self.sequence));
                    lane = large;
                }
            }
            _ => {}
        }
        self.append(lane, &records, durability, reservation).await.map(drop)
    }

    /// The lane of large values, if it takes this one.
    pub(crate) fn lane_for_large(&self, record: &Prepared) -> Option<&Arc<Lane>> {
        self.large.as_ref().filter(|_| record.value.len() as u64 >= self.shaping_threshold_bytes)
    }

    /// Appends to a lane and waits until it is acknowledged. Returns the last sequence number.
    pub(crate) async fn append(
        &self,
        lane: &Lane,
        records: &[Prepared],
        durability: Durability,
        mut reservation: Option<Reservation>,
    ) -> Result<u64> {
        let bytes: u64 = records.iter().map(|r| r.padded_bytes(lane.shape)).sum();
        self.admission.wait(self, bytes).await;
        let only_deletes = records.iter().all(|r| r.kind == Kind::Tombstone);
        let mut refused = 0;
        loop {
            match lane.append(self, records, durability, &mut reservation)? {
                Append::Done(sequence) => return Ok(sequence),
                Append::Wait(sequence, gate) => {
                    // A turn of plain puts ends here.
                    drop(reservation);
                    gate.wait().await?;
                    return Ok(sequence);
                }
                Append::Reserved => {
                    let since = self.runtime.now();
                    let keys = records.iter().map(|r| self.index.stored_hash(&r.hash)).collect();
                    reservation = Some(self.lane.turn(self, keys).await?);
                    self.counters.count_stall(self.runtime.now() - since);
                }
                Append::Blocked(gate) => {
                    // A turn is not kept while there is no room.
                    reservation.take_if(|reservation| reservation.is_shared());
                    let since = self.runtime.now();
                    if only_deletes && self.full.load(Ordering::Acquire) {
                        // Deletes make room, so they are lent some; it may take a moment to come.
                        refused += 1;
                        if refused > DELETE_ATTEMPTS {
                            return Err(self.full_error());
                        }
                        self.reclaim.notify_one();
                        self.runtime.sleep(Duration::from_millis(10)).await;
                    } else if let Err(error) = gate.wait().await
                        && !(only_deletes && matches!(error, Error::Full { .. }))
                    {
                        return Err(error);
                    }
                    self.counters.count_stall(self.runtime.now() - since);
                }
            }
        }
    }

    /// Sees to it that there is room for a put, or refuses it. At the limit what it displaces is read: a put that takes no more
    /// than that needs none, and the index tells a length only within a factor of two.
    pub(crate) async fn find_room_for(&self, put: &Prepared) -> Result<()> {
        let mut bytes = put.padded_bytes(self.lane.shape);
        if self.has_no_room(bytes) {
            // A record that cannot be read is replaced as if it were not there.
            let found = self.look_up(&put.key, &put.hash).await.ok().flatten();
            // What has expired for good may have ceased to count before the put displaces it.
            let counted =
                found.filter(|f| self.life(f.record.sequence, f.record.expires_at_ms) != Life::Expired);
            bytes = bytes.saturating_sub(counted.map_or(0, |found| found.record.padded_bytes.into()));
            self.find_room(bytes).await;
        }
        self.check_room(bytes)
    }

    /// Refuses what users may not fill.
    pub(crate) fn check_room(&self, bytes: u64) -> Result<()> {
        if self.out_of_memory.load(Ordering::Acquire) {
            self.balance_memory();
        }
        if self.out_of_memory.load(Ordering::Acquire) {
            let (index_bytes, budget_bytes) = (self.index.memory_bytes(), self.memory_bytes);
            return Err(Error::OutOfMemory { index_bytes, budget_bytes });
        }
        if self.has_no_room(bytes) { Err(self.full_error()) } else { Ok(()) }
    }

    /// Whether there is no room for so many bytes more. For none there is, unless all slots are gone.
    pub(crate) fn has_no_room(&self, bytes: u64) -> bool {
        let summaries = self.index.len() * SUMMARY_BYTES;
        let over = bytes > 0 && self.live_bytes() + summaries + bytes > self.user_limit_bytes();
        over || self.full.load(Ordering::Acquire)
    }
}
