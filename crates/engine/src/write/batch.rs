//! Several writes that happen together or not at all.

use std::time::Duration;

use bytes::Bytes;
use esker_log::Kind;
use hashbrown::HashMap;

use crate::base::durability::Durability;
use crate::base::error::{Error, Result};
use crate::base::fixed_hash::FixedState;
use crate::base::option_name::OptionName;
use crate::base::to_bytes::ToBytes;
use crate::write::Writer;
use crate::write::options::{Condition, WriteOptions, after_ms};
use crate::write::prepared::Prepared;
use crate::write::reserve::Reservation;

/// Writes that are acknowledged, seen and recovered together or not at all.
///
/// Later operations on a key win over earlier ones in the same batch.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub(crate) operations: Vec<Operation>,
    /// What must hold for them to be written.
    pub(crate) conditions: Vec<(Bytes, Condition)>,
}

#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Put { key: Bytes, value: Bytes, expiry: Option<Expiry> },
    Delete { key: Bytes },
}

impl Operation {
    pub(crate) fn key(&self) -> &Bytes {
        match self {
            Operation::Put { key, .. } | Operation::Delete { key } => key,
        }
    }
}

/// When a put of a batch expires.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expiry {
    /// In milliseconds since the Unix epoch.
    At(u64),
    /// So long after it is written.
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
    /// An empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Adds a put.
    pub fn put(&mut self, key: impl ToBytes, value: impl ToBytes) -> &mut Batch {
        self.add_put(key.into_bytes(), value.into_bytes(), None)
    }

    /// Adds a put whose value lives so long from when the batch is written.
    pub fn put_with_ttl(&mut self, key: impl ToBytes, value: impl ToBytes, ttl: Duration) -> &mut Batch {
        self.add_put(key.into_bytes(), value.into_bytes(), Some(Expiry::After(ttl)))
    }

    /// Adds a put that expires at a wall-clock time in milliseconds since the Unix epoch.
    pub fn put_expiring(&mut self, key: impl ToBytes, value: impl ToBytes, expires_at_ms: u64) -> &mut Batch {
        self.add_put(key.into_bytes(), value.into_bytes(), Some(Expiry::At(expires_at_ms)))
    }

    fn add_put(&mut self, key: Bytes, value: Bytes, expiry: Option<Expiry>) -> &mut Batch {
        self.operations.push(Operation::Put { key, value, expiry });
        self
    }

    /// Adds a delete. Deleting a key that is not there is not an error.
    pub fn delete(&mut self, key: impl ToBytes) -> &mut Batch {
        self.operations.push(Operation::Delete { key: key.into_bytes() });
        self
    }

    /// Adds a condition on a key, which the batch may write or not. The batch is written only if all its conditions hold when
    /// it is, or else [`Error::Conflict`] says which one does not; they are about what was there before the batch.
    ///
    /// All keys of such a batch are read before it is written.
    ///
    /// ```
    /// use esker_engine::{Batch, Condition};
    ///
    /// let mut rename = Batch::new();
    /// rename.require("new", Condition::IfAbsent).require("old", Condition::IfPresent);
    /// rename.put("new", "value").delete("old");
    /// ```
    pub fn require(&mut self, key: impl ToBytes, condition: Condition) -> &mut Batch {
        self.conditions.push((key.into_bytes(), condition));
        self
    }

    /// Number of operations. Conditions do not count.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }
}

impl Writer {
    pub(crate) async fn write(&self, batch: Batch, options: WriteOptions) -> Result<()> {
        if options.condition != Condition::Always {
            return Err(Error::invalid(
                "the options of a batch have no condition; name the keys that it is about with Batch::require",
            ));
        }
        if !batch.conditions.is_empty() {
            return self.write_if(batch, options).await;
        }
        let durability = self.durability(&options)?;
        self.find_room(self.padded_bytes_of(&batch, &options)).await;
        let mut records = self.records_of(batch, &options)?;
        let mut reservation = None;
        if records.iter().any(|r| r.kind == Kind::Tombstone) {
            // All keys: a delete that reserves its own while it waits for a put of the same batch would wait for ever.
            let keys = records.iter().map(|r| self.catalog.index.stored_hash(&r.hash)).collect();
            reservation = Some(self.lane.reserve(keys).await?);
            let mut kept = Vec::with_capacity(records.len());
            for mut record in records {
                if record.kind == Kind::Tombstone {
                    let Some((replaced, alive)) = self.find_for_delete(&record.key, &record.hash).await?
                    else {
                        continue;
                    };
                    (record.replaces, record.expired) = (Some(replaced), !alive);
                }
                kept.push(record);
            }
            records = kept;
        }
        self.commit(records, durability, reservation).await.map(drop)
    }

    /// The room that a batch takes; none if it puts nothing.
    pub(crate) fn padded_bytes_of(&self, batch: &Batch, options: &WriteOptions) -> u64 {
        let padded = |operation: &Operation| match operation {
            Operation::Put { key, value, expiry } => {
                let expires = expiry.is_some() || options.expires();
                self.lane.shape.padded(esker_log::record_bytes_max(key.len(), value.len(), expires))
            }
            Operation::Delete { key } => {
                self.lane.shape.padded(esker_log::record_bytes_max(key.len(), 0, false))
            }
        };
        let puts = batch.operations.iter().any(|o| matches!(o, Operation::Put { .. }));
        if puts { batch.operations.iter().map(padded).sum() } else { 0 }
    }

    /// The records of a batch, checked. The last operation on a key is the one that counts.
    pub(crate) fn records_of(&self, batch: Batch, options: &WriteOptions) -> Result<Vec<Prepared>> {
        let mut records = Vec::with_capacity(batch.len());
        let now_ms = self.catalog.now_ms();
        let of_all = options.expiry_ms(|| now_ms);
        for operation in batch.operations {
            records.push(match operation {
                Operation::Put { key, value, expiry } => {
                    let expires_at_ms = expiry.map(|expiry| expiry.at_ms(now_ms)).or(of_all);
                    self.prepare(Kind::Put, key, value, expires_at_ms)?
                }
                Operation::Delete { key } => self.prepare(Kind::Tombstone, key, Bytes::new(), None)?,
            });
        }
        if records.len() > 1 {
            // By digests, which nobody can choose so that they collide.
            let mut last: HashMap<(u64, u64), usize, FixedState> = HashMap::default();
            for (at, record) in records.iter().enumerate() {
                last.insert((record.hash.slot, record.hash.check), at);
            }
            let mut at = 0;
            records.retain(|record| {
                at += 1;
                last[&(record.hash.slot, record.hash.check)] == at - 1
            });
        }
        self.space.health.check_writable()?;
        let bytes: u64 = records.iter().map(|r| r.padded_bytes(self.lane.shape)).sum();
        let limit = self.lane.shape.max_record_bytes();
        if self.lane.shape.batch_bytes_max(records.len(), bytes) > limit {
            let records = records.len();
            let what = format!(
                "allows batches of {limit} bytes; this one has {bytes} in {records} records, so split it"
            );
            return Err(Error::option(OptionName::Segment, what));
        }
        if records.iter().any(|r| r.kind == Kind::Put) {
            self.check_room(bytes)?;
        }
        Ok(records)
    }

    /// Appends the records of a batch or update as one. Returns the last sequence number; those of the others come right before
    /// it, in their order.
    pub(crate) async fn commit(
        &self,
        mut records: Vec<Prepared>,
        durability: Durability,
        mut reservation: Option<Reservation>,
    ) -> Result<u64> {
        for record in &records {
            match record.kind {
                Kind::Put => self.space.counters.count_put(record.key.len() + record.value.len()),
                Kind::Tombstone => self.space.counters.count_delete(),
            }
        }
        let mut lane = &self.lane;
        match (&mut *records, &mut reservation) {
            ([], _) => return Ok(0),
            ([only], Some(reservation)) if only.kind == Kind::Put => {
                if let Some(large) = self.lane_for_large(only) {
                    only.sequence = Some(reservation.draw(&self.space.sequence));
                    lane = large;
                }
            }
            _ => {}
        }
        self.append(lane, &records, durability, reservation).await
    }
}
