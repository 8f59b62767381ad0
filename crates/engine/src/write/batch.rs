//! Several writes that happen together or not at all.

use bytes::Bytes;
use esker_log::Kind;
use hashbrown::HashMap;

use crate::base::durability::Durability;
use crate::base::error::{Error, Result};
use crate::base::fixed_hash::FixedState;
use crate::base::to_bytes::ToBytes;
use crate::write::Writer;
use crate::write::options::{Condition, WriteOptions};
use crate::write::prepared::Prepared;
use crate::write::reserve::Reservation;

/// Writes that are acknowledged, seen and recovered together or not at all.
///
/// Later operations on a key win over earlier ones in the same batch.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub(crate) operations: Vec<Operation>,
}

#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Put { key: Bytes, value: Bytes, expires_at_ms: Option<u64> },
    Delete { key: Bytes },
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Adds a put.
    pub fn put(&mut self, key: impl ToBytes, value: impl ToBytes) -> &mut Batch {
        self.operations.push(Operation::Put {
            key: key.into_bytes(),
            value: value.into_bytes(),
            expires_at_ms: None,
        });
        self
    }

    /// Adds a put that expires at a wall-clock time in milliseconds since the Unix epoch.
    pub fn put_expiring(&mut self, key: impl ToBytes, value: impl ToBytes, expires_at_ms: u64) -> &mut Batch {
        let expires_at_ms = Some(expires_at_ms);
        self.operations.push(Operation::Put {
            key: key.into_bytes(),
            value: value.into_bytes(),
            expires_at_ms,
        });
        self
    }

    /// Adds a delete. Deleting a key that is not there is not an error.
    pub fn delete(&mut self, key: impl ToBytes) -> &mut Batch {
        self.operations.push(Operation::Delete { key: key.into_bytes() });
        self
    }

    /// Number of operations.
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
                "a batch has no condition; put the condition on single writes, or update",
            ));
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
                Kind::Put => self.space.counters.count_put(record.key.len() + record.value.len()),
                Kind::Tombstone => self.space.counters.count_delete(),
            }
        }
        let mut lane = &self.lane;
        match (&mut *records, &mut reservation) {
            ([], _) => return Ok(()),
            ([only], Some(reservation)) if only.kind == Kind::Put => {
                if let Some(large) = self.lane_for_large(only) {
                    only.sequence = Some(reservation.draw(&self.space.sequence));
                    lane = large;
                }
            }
            _ => {}
        }
        self.append(lane, &records, durability, reservation).await.map(drop)
    }
}
