//! Batches: several writes that take effect together or not at all.

use std::time::Duration;

use bytes::Bytes;
use esker_log::{Keyspace, Kind};
use hashbrown::HashMap;

use crate::base::durability::Durability;
use crate::base::error::{Error, Result};
use crate::base::fixed_hash::FixedState;
use crate::base::option_name::OptionName;
use crate::base::to_bytes::ToBytes;
use crate::write::Writer;
use crate::write::databases::check_database;
use crate::write::options::{Condition, WriteOptions, after_ms};
use crate::write::prepared::Prepared;
use crate::write::reserve::Reservation;

/// Writes that are acknowledged, become visible and are recovered together or not at all.
///
/// The last operation on a key in a batch counts.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub(crate) operations: Vec<Operation>,
    /// Conditions that must hold for the batch to be written.
    pub(crate) conditions: Vec<(KeyOf, Condition)>,
    /// Database of operations and conditions added from now on.
    database: Option<u8>,
}

/// A key and its database; `None` means the database of the store's handle.
#[derive(Clone, Debug)]
pub(crate) struct KeyOf {
    pub(crate) database: Option<u8>,
    pub(crate) key: Bytes,
}

#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) of: KeyOf,
    pub(crate) change: Change,
}

#[derive(Clone, Debug)]
pub(crate) enum Change {
    Put { value: Bytes, expiry: Option<Expiry> },
    Delete,
}

/// Expiry of a put in a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expiry {
    /// Time in milliseconds since the Unix epoch.
    At(u64),
    /// Time after the write of the batch.
    After(Duration),
}

impl Expiry {
    fn at_ms(self, now_ms: u64) -> u64 {
        match self {
            Expiry::At(at_ms) => at_ms,
            Expiry::After(ttl) => after_ms(now_ms, ttl),
        }
    }
}

impl Batch {
    /// Returns an empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Adds a put.
    pub fn put(&mut self, key: impl ToBytes, value: impl ToBytes) -> &mut Batch {
        self.add_put(key.into_bytes(), value.into_bytes(), None)
    }

    /// Adds a put whose value expires `ttl` after the batch is written.
    pub fn put_with_ttl(&mut self, key: impl ToBytes, value: impl ToBytes, ttl: Duration) -> &mut Batch {
        self.add_put(key.into_bytes(), value.into_bytes(), Some(Expiry::After(ttl)))
    }

    /// Adds a put that expires at a wall-clock time in milliseconds since the Unix epoch.
    pub fn put_expiring(&mut self, key: impl ToBytes, value: impl ToBytes, expires_at_ms: u64) -> &mut Batch {
        self.add_put(key.into_bytes(), value.into_bytes(), Some(Expiry::At(expires_at_ms)))
    }

    fn add_put(&mut self, key: Bytes, value: Bytes, expiry: Option<Expiry>) -> &mut Batch {
        self.add(key, Change::Put { value, expiry })
    }

    fn add(&mut self, key: Bytes, change: Change) -> &mut Batch {
        self.operations.push(Operation { of: KeyOf { database: self.database, key }, change });
        self
    }

    /// Makes operations and conditions added from now on apply to this database, whichever database the store's handle has.
    ///
    /// ```
    /// # extern crate esker_engine as esker;
    /// use esker::Batch;
    ///
    /// let mut moved = Batch::new();
    /// moved.in_database(3).put("key", "value");
    /// moved.in_database(0).delete("key");
    /// ```
    pub fn in_database(&mut self, database: u8) -> &mut Batch {
        self.database = Some(database);
        self
    }

    /// Adds a delete. Deleting an absent key is not an error.
    pub fn delete(&mut self, key: impl ToBytes) -> &mut Batch {
        self.add(key.into_bytes(), Change::Delete)
    }

    /// Adds a condition on a key, which the batch may or may not write. The batch is written only if all its conditions hold at
    /// that time; otherwise [`Error::Conflict`] names the one that does not. Conditions refer to the state before the batch.
    ///
    /// All keys of such a batch are read before it is written.
    ///
    /// ```
    /// # extern crate esker_engine as esker;
    /// use esker::{Batch, Condition};
    ///
    /// let mut rename = Batch::new();
    /// rename.require("new", Condition::IfAbsent).require("old", Condition::IfPresent);
    /// rename.put("new", "value").delete("old");
    /// ```
    pub fn require(&mut self, key: impl ToBytes, condition: Condition) -> &mut Batch {
        self.conditions.push((KeyOf { database: self.database, key: key.into_bytes() }, condition));
        self
    }

    /// Returns the number of operations, without conditions.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Returns true if the batch has no operations.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }
}

impl Writer {
    pub(crate) async fn write(&self, database: u8, batch: Batch, options: WriteOptions) -> Result<()> {
        if options.condition != Condition::Always {
            return Err(Error::invalid(
                "the options of a batch cannot have a condition; add conditions with Batch::require",
            ));
        }
        if !batch.conditions.is_empty() {
            // Boxed: its future is twice as long as that of a write without conditions, which callers copy.
            return Box::pin(self.write_if(database, batch, options)).await;
        }
        let durability = self.durability(&options)?;
        let mut records = self.records_of(database, batch, &options).await?;
        let mut reservation = None;
        if records.iter().any(|r| r.kind == Kind::Tombstone) {
            // All keys: a delete that reserves only its own while it waits for a put of the same batch would deadlock.
            let reserved = reservation.insert(self.reserve(&mut records).await?);
            let mut kept = Vec::with_capacity(records.len());
            for mut record in records {
                if record.kind == Kind::Tombstone {
                    record.replaces = self.find_for_delete(&record.key, &record.hash).await?;
                    reserved.note_ephemeral(record.ephemeral());
                    if record.replaces.is_none() {
                        continue;
                    }
                }
                kept.push(record);
            }
            records = kept;
        }
        self.commit(records, durability, reservation).await.map(drop)
    }

    /// Checks a batch, waits for room, and returns its records. Only the last operation on a key is kept.
    pub(crate) async fn records_of(
        &self,
        database: u8,
        batch: Batch,
        options: &WriteOptions,
    ) -> Result<Vec<Prepared>> {
        let mut records = Vec::with_capacity(batch.len());
        let now_ms = self.catalog.now_ms();
        let of_all = options.expiry_ms(|| now_ms);
        for Operation { of, change } in batch.operations {
            let database = Some(check_database(of.database.unwrap_or(database))?);
            records.push(match change {
                Change::Put { value, expiry } => {
                    let expires_at_ms = expiry.map(|expiry| expiry.at_ms(now_ms)).or(of_all);
                    self.checked(Kind::Put, database, of.key, value, expires_at_ms)?
                }
                Change::Delete => self.checked(Kind::Tombstone, database, of.key, Bytes::new(), None)?,
            });
        }
        if records.len() > 1 {
            // By digest, because users cannot construct digests that collide. Not by keyspace, because a swap may intervene.
            let name = |record: &Prepared| {
                let hash = record.hash.in_keyspace(Keyspace::FIRST);
                (record.database, hash.slot, hash.check)
            };
            let mut last: HashMap<_, usize, FixedState> = HashMap::default();
            for at in 0..records.len() {
                let before = last.insert(name(&records[at]), at);
                let was_put =
                    |before: usize| records[before].kind == Kind::Put || records[before].follows_put;
                records[at].follows_put = before.is_some_and(was_put) && records[at].kind == Kind::Tombstone;
            }
            let mut at = 0;
            records.retain(|record| {
                at += 1;
                last[&name(record)] == at - 1
            });
        }
        records.iter_mut().for_each(|record| record.origin = options.origin);
        self.space.health.check_writable()?;
        // The length limit applies before compression, and regardless of the keyspace. Values may share memory, in any number,
        // but each takes memory of its own once it is compressed.
        self.check_batch_bytes(&records)?;
        records.iter_mut().for_each(|record| self.compress(record));
        if records.iter().any(|r| r.kind == Kind::Put) {
            let bytes = records.iter().map(|r| r.padded_bytes(self.lane.shape)).sum();
            self.find_room(bytes).await;
            self.check_room(bytes)?;
        }
        Ok(records)
    }

    /// Checks that records fit in a segment as one group.
    pub(super) fn check_batch_bytes(&self, records: &[Prepared]) -> Result<()> {
        let bytes: u64 = records.iter().map(|r| r.padded_bytes(self.lane.shape)).sum();
        let limit = self.lane.shape.max_record_bytes();
        if self.lane.shape.batch_bytes_max(records.len(), bytes) > limit {
            let records = records.len();
            let what = format!(
                "allows batches of {limit} bytes; this one has {bytes} in {records} records, so split it"
            );
            return Err(Error::option(OptionName::Segment, what));
        }
        Ok(())
    }

    /// Appends the records of a batch or update as one group. Returns the last sequence number; those of the others immediately
    /// precede it, in order.
    pub(crate) async fn commit(
        &self,
        mut records: Vec<Prepared>,
        durability: Durability,
        mut reservation: Option<Reservation>,
    ) -> Result<u64> {
        let mut lane = &self.lane;
        match (&mut *records, &mut reservation) {
            ([], reservation) => {
                self.catalog.publish(&[], Reservation::ephemeral_of(reservation.as_ref()));
                return Ok(0);
            }
            ([only], Some(reservation)) if only.kind == Kind::Put => {
                if let Some(large) = self.lane_for_large(only) {
                    only.sequence = Some(reservation.draw(&self.space.sequence));
                    lane = large;
                }
            }
            _ => {}
        }
        self.append(lane, &mut records, durability, reservation).await
    }
}
