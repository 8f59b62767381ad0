//! Puts, deletes and conditional writes.
//!
//! A plain put goes directly to the lane. A write that depends on existing records reserves its keys first.

use std::sync::Arc;

use bytes::Bytes;
use esker_index::KeyHash;
use esker_log::{Keyspace, Kind, MAX_KEY_BYTES};
use esker_seeded_bugs::{Bug, planted};

use crate::base::durability::Durability;
use crate::base::error::{Error, Result};
use crate::base::option_name::OptionName;
use crate::catalog::appended::Replaced;
use crate::catalog::cache::Cached;
use crate::catalog::clock::Life;
use crate::write::Writer;
use crate::write::lane::Lane;
use crate::write::options::{Condition, WriteOptions};
use crate::write::prepared::Prepared;
use crate::write::reserve::Reservation;

/// Key, value, and expiry in milliseconds since the Unix epoch.
pub(crate) type Put = (Bytes, Bytes, Option<u64>);

/// Checks that the key has a valid length.
pub(super) fn check_key(key: &[u8]) -> Result<()> {
    if key.is_empty() || key.len() > MAX_KEY_BYTES {
        return Err(Error::invalid(format!("key of {} bytes; a key has 1 to {MAX_KEY_BYTES}", key.len())));
    }
    Ok(())
}

impl Writer {
    /// Returns the maximum length of a value under a key of `key_bytes`, in any keyspace.
    pub(crate) fn max_value_bytes(&self, key_bytes: usize, expires: bool) -> u64 {
        let record = self.longest_record_bytes;
        // Includes the header for a value of that length.
        let overhead = esker_log::record_bytes_max(key_bytes, record as usize, expires) as u64 - record;
        record.saturating_sub(overhead)
    }

    /// Prepares a record of a database or, if none is given, of the first keyspace.
    #[inline]
    pub(crate) fn prepare(
        &self,
        kind: Kind,
        database: Option<u8>,
        key: Bytes,
        value: Bytes,
        expires_at_ms: Option<u64>,
    ) -> Result<Prepared> {
        let mut record = self.checked(kind, database, key, value, expires_at_ms)?;
        self.compress(&mut record);
        Ok(record)
    }

    /// Like [`prepare`](Self::prepare), without the steps that take memory and time: the value is not compressed yet.
    pub(super) fn checked(
        &self,
        kind: Kind,
        database: Option<u8>,
        key: Bytes,
        value: Bytes,
        expires_at_ms: Option<u64>,
    ) -> Result<Prepared> {
        check_key(&key)?;
        if esker_log::record_bytes_max(key.len(), 0, expires_at_ms.is_some()) as u64
            > self.longest_record_bytes
        {
            return Err(Error::option(OptionName::Segment, format!("allows no keys of {} bytes", key.len())));
        }
        let limit = self.max_value_bytes(key.len(), expires_at_ms.is_some());
        if value.len() as u64 > limit {
            let (value, key) = (value.len(), key.len());
            let what =
                format!("allows values of {limit} bytes beside a key of {key} bytes; this one has {value}");
            return Err(Error::option(OptionName::Segment, what));
        }
        let database = database.map(|database| self.catalog.database_of(database, &key));
        let keyspace = database.map_or(Keyspace::FIRST, |database| self.catalog.keyspace(database));
        let hash = self.catalog.hash(keyspace, &key);
        Ok(Prepared {
            kind,
            key,
            value,
            compressed: None,
            hash,
            database,
            value_check: None,
            expires_at_ms,
            sequence: None,
            replaces: None,
            follows_put: false,
            origin: 0,
        })
    }

    /// Compresses the value of a record if that pays, and computes its checksum.
    pub(super) fn compress(&self, record: &mut Prepared) {
        let compression = self.changeable.compression();
        if let Some((shorter, how)) = self.compressing.compress(&record.value, compression) {
            (record.value, record.compressed) = (shorter.into(), Some(how));
        }
        // In a replicated store each node computes its own when it applies the record.
        if self.catalog.replicator().is_none() {
            record.value_check = self.space.secret.value_check(&record.value);
        }
    }

    pub(crate) fn durability(&self, options: &WriteOptions) -> Result<Durability> {
        self.check_durability(options.durability.unwrap_or_else(|| self.changeable.durability()))
    }

    /// Returns the durability if this store supports it.
    pub(crate) fn check_durability(&self, durability: Durability) -> Result<Durability> {
        if durability == Durability::Process && !self.space.outlives_process {
            return Err(Error::invalid(
                "durability Process needs a staging file, which this store has not; give Options::staging",
            ));
        }
        Ok(durability)
    }

    pub(crate) async fn put(
        &self,
        database: u8,
        key: Bytes,
        value: Bytes,
        options: WriteOptions,
    ) -> Result<u64> {
        self.check_condition_kind(options.condition)?;
        let durability = self.durability(&options)?;
        let expires_at_ms = options.expiry_ms(|| self.catalog.now_ms());
        let prepared = self.prepare_put(database, (key, value, expires_at_ms), options.origin)?;
        self.put_prepared(prepared, durability, options.condition).await
    }

    /// Prepares a put, single or one of many. It is refused for an invalid length of its key or value; after that
    /// [`await_admission`](Self::await_admission) decides.
    #[inline]
    pub(super) fn prepare_put(
        &self,
        database: u8,
        (key, value, expires_at_ms): Put,
        origin: u64,
    ) -> Result<Prepared> {
        let mut put = self.prepare(Kind::Put, Some(database), key, value, expires_at_ms)?;
        put.origin = origin;
        Ok(put)
    }

    /// Waits until a put, single or one of many, may be appended.
    ///
    /// # Errors
    ///
    /// 1. The store is closed or has failed.
    /// 2. There is no room, or no index memory.
    pub(super) async fn await_admission(&self, put: &Prepared) -> Result<()> {
        self.space.health.check_writable()?;
        self.find_room_for(put).await
    }

    /// Admits and writes a put.
    pub(super) async fn put_prepared(
        &self,
        mut prepared: Prepared,
        durability: Durability,
        condition: Condition,
    ) -> Result<u64> {
        self.await_admission(&prepared).await?;
        let large = self.lane_for_large(&prepared);
        let mut reservation = None;
        let is_early = large.is_some() && planted(Bug::LargeNumberedTooEarly);
        let early = is_early.then(|| self.space.next_sequences(1));
        if large.is_some() || condition != Condition::Always {
            reservation = Some(self.reserve(std::slice::from_mut(&mut prepared)).await?);
            if condition != Condition::Always {
                let checked = Box::pin(self.check_condition(&prepared, condition, &mut reservation));
                prepared.replaces = checked.await?;
            }
            if let (Some(reserved), true) = (&mut reservation, large.is_some()) {
                prepared.sequence = Some(early.unwrap_or_else(|| reserved.draw(&self.space.sequence)));
            }
        }
        let lane = large.unwrap_or(&self.lane);
        self.append(lane, std::slice::from_mut(&mut prepared), durability, reservation).await
    }

    /// Checks the condition under this reservation. Returns the record that the put replaces.
    async fn check_condition(
        &self,
        put: &Prepared,
        condition: Condition,
        reservation: &mut Option<Reservation>,
    ) -> Result<Option<Replaced>> {
        let found = self.catalog.look_up(&put.key, &put.hash).await?;
        let life = found.as_ref().map(|f| self.catalog.life(f.record.sequence, f.record.expires_at_ms));
        let current = found.as_ref().filter(|_| life == Some(Life::Alive)).map(|f| f.record.sequence);
        if !condition.holds(current) {
            if let (Some(Life::Unconfirmed), Some(found)) = (life, found) {
                drop(reservation.take());
                let Cached { sequence, expires_at_ms, .. } = found.record;
                self.keep_expired(&put.key, &put.hash, sequence, expires_at_ms).await?;
            }
            return Err(condition.conflict(&put.key, current));
        }
        Ok(found.as_ref().map(|found| self.catalog.replaced(found)))
    }

    pub(crate) async fn delete(&self, database: u8, key: Bytes, options: WriteOptions) -> Result<bool> {
        self.check_condition_kind(options.condition)?;
        let durability = self.durability(&options)?;
        let mut prepared = self.prepare(Kind::Tombstone, Some(database), key, Bytes::new(), None)?;
        prepared.origin = options.origin;
        self.space.health.check_writable()?;
        let mut reservation = Some(self.reserve(std::slice::from_mut(&mut prepared)).await?);
        if options.condition != Condition::Always {
            Box::pin(self.check_condition(&prepared, options.condition, &mut reservation)).await?;
        }
        let Some(replaced) = self.find_for_delete(&prepared.key, &prepared.hash).await? else {
            return Ok(false);
        };
        prepared.replaces = Some(replaced);
        self.append(&self.lane, std::slice::from_mut(&mut prepared), durability, reservation).await?;
        Ok(!replaced.expired)
    }

    /// Returns the record that a delete removes. The key is reserved.
    pub(super) async fn find_for_delete(&self, key: &[u8], hash: &KeyHash) -> Result<Option<Replaced>> {
        // A slot is emptied only when no other key can be hidden behind it.
        self.catalog.verify_to_remove(hash).await?;
        let found = match self.catalog.look_up(key, hash).await {
            // A damaged record need not be read to be deleted.
            Err(error) if error.is_of_reading() => {
                let found = self.catalog.find_unreadable(hash).await.ok_or(error)?;
                // Its segment may be worth collecting now.
                self.space.reclaim.notify_one();
                return Ok(Some(found));
            }
            found => found?,
        };
        Ok(found.as_ref().map(|found| self.catalog.replaced(found)))
    }

    /// Returns the lane of large values if a writer appends this record to it. In a replicated store no writer does.
    pub(crate) fn lane_for_large(&self, record: &Prepared) -> Option<&Arc<Lane>> {
        self.large_lane_of(record).filter(|_| self.catalog.replicator().is_none())
    }

    /// Returns the lane of large values if it takes this record, by the stored length of the value.
    pub(super) fn large_lane_of(&self, record: &Prepared) -> Option<&Arc<Lane>> {
        self.large.as_ref().filter(|_| record.value.len() as u64 >= self.shaping_threshold_bytes)
    }
}
