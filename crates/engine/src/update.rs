//! Reading keys and writing what follows from them, with nothing in between.
//!
//! See `docs/decisions/0006-update-under-reservation.md`.
//!
//! 1. The keys are reserved: what was appended before is visible, and nobody else writes them.
//! 2. Their entries are read, and the caller says what to write.
//! 3. The batch is appended with the reservation, which ends when it is visible.

use bytes::Bytes;
use esker_index::KeyHash;
use esker_log::Kind;
use futures_util::future::try_join_all;

use crate::append::Prepared;
use crate::batch::Batch;
use crate::clock::Life;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::get::Found;
use crate::store::{Condition, Entry, Store, WriteOptions};

impl Store {
    /// Reads the entries of some keys, in their order, and writes what `change` makes of them as one batch. From the
    /// reading until the batch is seen nobody else writes these keys, so that nothing is lost and nothing comes between.
    /// Returns what `change` returned beside the batch. If the batch is empty, nothing is written.
    ///
    /// Others who want to write these keys wait meanwhile, so `change` should not take long.
    ///
    /// # Errors
    /// As [`write`](Self::write), and as [`get`](Self::get); `Invalid` if a key is written that was not named. After an
    /// error nothing was written.
    pub async fn update<T>(
        &self,
        keys: &[Bytes],
        options: WriteOptions,
        change: impl FnOnce(&[Option<Entry>]) -> (Batch, T),
    ) -> Result<T> {
        self.engine.update(keys, options, change).await
    }
}

/// Which version of a key has expired.
struct Expired {
    sequence: u64,
    expires_at_ms: Option<u64>,
}

impl Engine {
    async fn update<T>(
        &self,
        keys: &[Bytes],
        options: WriteOptions,
        change: impl FnOnce(&[Option<Entry>]) -> (Batch, T),
    ) -> Result<T> {
        if options.condition != Condition::Always {
            return Err(Error::invalid("an update has no condition; compare the entries it is given"));
        }
        let mut told = Vec::new();
        let outcome = self.update_reserved(keys, options, change, &mut told).await;
        // The keys are not reserved any more. What was written over since is left alone.
        for (at, hash, Expired { sequence, expires_at_ms }) in told {
            self.keep_expired(&keys[at], &hash, sequence, expires_at_ms).await;
        }
        outcome
    }

    /// `told`: the keys that were shown to be absent because, by the wall clock alone, they have expired.
    async fn update_reserved<T>(
        &self,
        keys: &[Bytes],
        options: WriteOptions,
        change: impl FnOnce(&[Option<Entry>]) -> (Batch, T),
        told: &mut Vec<(usize, KeyHash, Expired)>,
    ) -> Result<T> {
        let durability = self.durability(&options)?;
        // 1.
        let hashes: Vec<KeyHash> = keys.iter().map(|key| self.hash(key)).collect();
        let stored = hashes.iter().map(|hash| self.index.stored_hash(hash)).collect();
        let reservation = self.lane.reserve(self, stored).await?;

        // 2.
        let found = match (keys, &*hashes) {
            ([key], [hash]) => vec![self.look_up(key, hash).await?],
            _ => try_join_all(keys.iter().zip(&hashes).map(|(key, hash)| self.look_up(key, hash))).await?,
        };
        let mut show = |(at, found): (usize, &Option<Found>)| {
            let record = &found.as_ref()?.record;
            let (sequence, expires_at_ms) = (record.sequence, record.expires_at_ms);
            let life = self.life(sequence, expires_at_ms);
            if life == Life::Unconfirmed {
                told.push((at, hashes[at], Expired { sequence, expires_at_ms }));
            }
            (life == Life::Alive).then(|| record.clone().into_entry())
        };
        let entries: Vec<Option<Entry>> = found.iter().enumerate().map(&mut show).collect();
        let (batch, outcome) = change(&entries);
        drop(entries);
        if batch.is_empty() {
            return Ok(outcome);
        }

        // 3.
        self.find_room(self.padded_bytes_of(&batch, &options)).await;
        let mut places: Vec<usize> = (0..keys.len()).collect();
        let digest = |hash: &KeyHash| (hash.slot, hash.check);
        places.sort_unstable_by_key(|&at| digest(&hashes[at]));
        let mut records = Vec::with_capacity(batch.len());
        for mut record in self.records_of(batch, &options)? {
            let place = places.binary_search_by_key(&digest(&record.hash), |&at| digest(&hashes[at]));
            let Ok(at) = place.map(|place| places[place]) else {
                let key = record.key.escape_ascii();
                return Err(Error::invalid(format!("key \"{key}\" is written, but was not named to update")));
            };
            if self.attach(&mut record, found[at].as_ref()).await? {
                records.push(record);
            }
        }
        self.commit(records, durability, Some(reservation)).await?;
        Ok(outcome)
    }

    /// Notes what a record replaces; false for a tombstone that is not needed.
    async fn attach(&self, record: &mut Prepared, found: Option<&Found>) -> Result<bool> {
        record.replaces = found.map(Found::replaced);
        if record.kind == Kind::Put {
            return Ok(true);
        }
        // A slot is given up only when no other key can be hidden behind it.
        self.settle(&record.hash).await?;
        if found.is_some_and(|found| !self.index.is_current(&record.hash, found.pointer)) {
            let again = self.look_up(&record.key, &record.hash).await?;
            record.replaces = again.as_ref().map(Found::replaced);
        }
        Ok(record.replaces.is_some())
    }
}
