//! Updates: reading keys and writing results that depend on them, without writes of others in between.
//!
//! See `docs/decisions/0006-update-under-reservation.md`.
//!
//! 1. The keys are reserved, so that no other writer changes them. Records appended before are visible or, if every one of
//!    these keys has an unpublished record, read from memory.
//! 2. Their entries are read, and the caller's function returns a batch.
//! 3. The batch is appended with the reservation. If it has only puts, none of them a large value, the reservation ends then,
//!    and the next update reads the appended records (decision 0023); otherwise it ends when they are visible.
//!
//! The result is returned only after all records shown to the caller are visible.

use bytes::Bytes;
use esker_device::outside_block_on;
use esker_index::KeyHash;
use esker_log::Kind;
use esker_seeded_bugs::{Bug, planted};
use futures_util::future::try_join_all;
use smallvec::SmallVec;

use crate::base::error::{Error, Result};
use crate::catalog::cache::Entry;
use crate::catalog::clock::{Life, ReportedRecord};
use crate::catalog::lookup::Found;
use crate::write::Writer;
use crate::write::batch::{Batch, KeyOf};
use crate::write::databases::check_database;
use crate::write::options::{Condition, WriteOptions};
use crate::write::prepared::Prepared;
use crate::write::put::check_key;
use crate::write::reserve::{Reservation, Unpublished};

/// Waits until records are published.
async fn publish(unpublished: &mut Vec<Unpublished>) -> Result<()> {
    for record in unpublished.drain(..) {
        record.published.wait().await?;
    }
    Ok(())
}

/// For each record, the index of its key among the update's keys.
type Places = SmallVec<[usize; 4]>;

/// A key of an update.
pub(crate) struct Named<'k> {
    database: u8,
    key: &'k [u8],
    /// Digest, with the keyspace that its database had at that time.
    hash: KeyHash,
}

/// An expired version of a key.
struct Expired {
    sequence: u64,
    expires_at_ms: Option<u64>,
}

impl Writer {
    /// Returns the keys of an update, with their databases.
    pub(crate) fn named<'k>(&self, keys: impl Iterator<Item = (u8, &'k [u8])>) -> Vec<Named<'k>> {
        let name = |(database, key)| {
            let database = self.catalog.database_of(database, key);
            Named { database, key, hash: self.catalog.hash_in(database, key) }
        };
        keys.map(name).collect()
    }

    /// See [`Store::update`](crate::Store::update). `database`: database of operations that name none.
    pub(crate) async fn update<T>(
        &self,
        database: u8,
        keys: Vec<Named<'_>>,
        options: WriteOptions,
        change: impl FnOnce(&[Option<Entry>]) -> (Batch, T),
    ) -> Result<T> {
        self.update_and_tell(database, keys, options, change, |_, _| {}).await
    }

    /// Like [`update`](Self::update). Calls `tell` with the index of each key that was put, and its new version.
    pub(crate) async fn update_and_tell<T>(
        &self,
        database: u8,
        mut keys: Vec<Named<'_>>,
        options: WriteOptions,
        change: impl FnOnce(&[Option<Entry>]) -> (Batch, T),
        tell: impl FnMut(usize, u64),
    ) -> Result<T> {
        if options.condition != Condition::Always {
            return Err(Error::invalid(
                "an update cannot have a condition; compare the entries passed to it",
            ));
        }
        let mut told = Vec::new();
        let outcome = self.update_reserved(database, &mut keys, options, change, tell, &mut told).await;
        if self.catalog.replicator().is_some() {
            // With a write, the proposal has deleted them.
            if outcome.is_ok() {
                for (at, Expired { sequence, expires_at_ms }) in told {
                    self.keep_expired(keys[at].key, &keys[at].hash, sequence, expires_at_ms).await?;
                }
            }
            return outcome;
        }
        // The keys are not reserved any more. Keys overwritten since are left alone.
        for (at, Expired { sequence, expires_at_ms }) in told {
            let kept = self.keep_expired(keys[at].key, &keys[at].hash, sequence, expires_at_ms).await;
            if kept.is_err() {
                // The key was shown as absent, and the write based on that is done.
                let (key, hash) = (Bytes::copy_from_slice(keys[at].key), keys[at].hash);
                let record = ReportedRecord { key, hash, expires_at_ms: expires_at_ms.unwrap_or(0) };
                self.catalog.clock.reported().add(sequence, record, true);
                self.space.reported.notify_one();
            }
        }
        outcome
    }

    /// `told`: the keys that were shown as absent because they have expired by the wall clock alone.
    async fn update_reserved<T>(
        &self,
        database: u8,
        keys: &mut [Named<'_>],
        options: WriteOptions,
        change: impl FnOnce(&[Option<Entry>]) -> (Batch, T),
        mut tell: impl FnMut(usize, u64),
        told: &mut Vec<(usize, Expired)>,
    ) -> Result<T> {
        let durability = self.durability(&options)?;
        // Step 1.
        let (mut reservation, mut unpublished) = self.reserve_named(keys).await?;
        let keys = &*keys;

        // Step 2.
        let found = match self.read_unpublished(keys, &unpublished).await {
            Some(found) => found,
            None => {
                publish(&mut unpublished).await?;
                self.look_up_all(keys).await?
            }
        };
        let entries = self.shown(&found, told);
        let (batch, outcome) = outside_block_on(|| change(&entries));
        drop(entries);
        if !batch.conditions.is_empty() {
            return Err(Error::invalid(
                "the batch of an update cannot have conditions; compare the entries passed to the update",
            ));
        }
        if batch.is_empty() {
            if !planted(Bug::UnpublishedAnswered) {
                publish(&mut unpublished).await?;
            }
            return Ok(outcome);
        }

        // Step 3.
        let records = self.records_of(database, batch, &options).await?;
        // A delete keeps the reservation until it is visible, because its key may turn out to be ephemeral.
        let only_puts = records.iter().all(|record| record.kind == Kind::Put);
        reservation.ends_early = self.catalog.replicator().is_none()
            && only_puts
            && !records.iter().any(|record| self.lane_for_large(record).is_some());
        let is_one_point = unpublished.windows(2).all(|pair| pair[0].point == pair[1].point);
        if reservation.ends_early && is_one_point {
            // Records before the newest are published before it.
            let newest = (0..unpublished.len()).max_by_key(|&at| unpublished[at].sequence);
            reservation.after = newest.map(|at| Box::new(unpublished.swap_remove(at)));
        } else {
            publish(&mut unpublished).await?;
        }
        let (mut records, places) = self.replacing(records, keys, &found, &mut reservation).await?;
        let kinds: SmallVec<[Kind; 4]> = records.iter().map(|record| record.kind).collect();
        if self.catalog.replicator().is_some() {
            let deletes = self.deletes_of_shown(keys, &found, &places, told)?;
            // In front, because the last versions are those of the update's own records.
            records.splice(..0, deletes);
        }
        let last = self.commit(records, durability, Some(reservation)).await?;
        let versions = (0..=last).rev();
        for ((place, kind), version) in places.into_iter().zip(kinds).rev().zip(versions) {
            if kind == Kind::Put {
                tell(place, version);
            }
        }
        Ok(outcome)
    }

    /// Reserves keys in the keyspaces that their databases have when the reservation is granted.
    async fn reserve_named(&self, keys: &mut [Named<'_>]) -> Result<(Reservation, Vec<Unpublished>)> {
        loop {
            let stored = keys.iter().map(|named| self.catalog.index.stored_hash(&named.hash)).collect();
            let mut reserved = self.lane.reserve_early(stored).await?;
            self.begin_term(&mut reserved.0, keys.iter().map(|named| &named.hash))?;
            let mut has_moved = false;
            for named in keys.iter_mut() {
                let keyspace = self.catalog.keyspace(named.database);
                has_moved |= keyspace != named.hash.keyspace();
                named.hash = named.hash.in_keyspace(keyspace);
            }
            if !has_moved || planted(Bug::UpdateReservedElsewhere) {
                return Ok(reserved);
            }
        }
    }

    async fn look_up_all(&self, keys: &[Named<'_>]) -> Result<Vec<Option<Found>>> {
        match keys {
            // The most frequent case, without a list of futures.
            [only] => Ok(vec![self.catalog.look_up(only.key, &only.hash).await?]),
            _ => try_join_all(keys.iter().map(|named| self.catalog.look_up(named.key, &named.hash))).await,
        }
    }

    /// Reads the unpublished records of these keys; `None` if there are none, or if they are of other keys.
    async fn read_unpublished(
        &self,
        keys: &[Named<'_>],
        unpublished: &[Unpublished],
    ) -> Option<Vec<Option<Found>>> {
        if unpublished.is_empty() {
            return None;
        }
        let mut found = Vec::with_capacity(keys.len());
        for (named, Unpublished { pointer, sequence, .. }) in keys.iter().zip(unpublished) {
            let place = self.catalog.unchecked_place(*pointer);
            let record = self.catalog.read_record(&place).await.ok()?.ok()?;
            if !record.is_of(&named.hash, named.key) || record.sequence != *sequence {
                return None;
            }
            found.push(Some(Found { record, pointer: *pointer }));
        }
        Some(found)
    }

    /// Returns the entries shown to the caller: all but expired ones.
    fn shown(&self, found: &[Option<Found>], told: &mut Vec<(usize, Expired)>) -> Vec<Option<Entry>> {
        let mut show = |(at, found): (usize, &Option<Found>)| {
            let record = &found.as_ref()?.record;
            let (sequence, expires_at_ms) = (record.sequence, record.expires_at_ms);
            let life = self.catalog.life(sequence, expires_at_ms);
            if life == Life::Unconfirmed {
                told.push((at, Expired { sequence, expires_at_ms }));
            }
            (life == Life::Alive).then(|| record.clone().into_entry())
        };
        found.iter().enumerate().map(&mut show).collect()
    }

    /// Returns the deletes of keys that an update of a replicated store was shown as absent because their time has passed, and
    /// that it does not write itself. They are part of its proposal, so that no later leader shows values that it did not see.
    fn deletes_of_shown(
        &self,
        keys: &[Named<'_>],
        found: &[Option<Found>],
        written: &[usize],
        told: &mut Vec<(usize, Expired)>,
    ) -> Result<Vec<Prepared>> {
        let mut deletes: Vec<Prepared> = Vec::new();
        for (at, _) in told.drain(..) {
            let (named, found) = (&keys[at], &found[at]);
            let is_written = written.iter().any(|written| keys[*written].hash == named.hash)
                || deletes.iter().any(|delete| delete.hash == named.hash);
            if let (Some(found), false) = (found, is_written) {
                let key = Bytes::copy_from_slice(named.key);
                let mut delete = self.prepare(Kind::Tombstone, None, key, Bytes::new(), None)?;
                delete.hash = named.hash;
                delete.replaces = Some(self.catalog.replaced(found));
                deletes.push(delete);
            }
        }
        Ok(deletes)
    }

    /// Notes with each record the record it replaces, found under one of the keys. Drops tombstones of absent keys, and notes
    /// with the reservation those whose keys the batch put before. Returns the records, and the index of each one's key.
    async fn replacing(
        &self,
        records: Vec<Prepared>,
        keys: &[Named<'_>],
        found: &[Option<Found>],
        reservation: &mut Reservation,
    ) -> Result<(Vec<Prepared>, Places)> {
        let digest = |hash: &KeyHash| (hash.slot, hash.check);
        let mut places: Vec<usize> = (0..keys.len()).collect();
        places.sort_unstable_by_key(|&at| digest(&keys[at].hash));
        let (mut replacing, mut of_keys) = (Vec::with_capacity(records.len()), Places::new());
        for mut record in records {
            let place = places.binary_search_by_key(&digest(&record.hash), |&at| digest(&keys[at].hash));
            let Ok(at) = place.map(|place| places[place]) else {
                let key = record.key.escape_ascii();
                return Err(Error::invalid(format!("key \"{key}\" is written, but was not named to update")));
            };
            let is_needed = self.attach(&mut record, found[at].as_ref()).await?;
            reservation.note_ephemeral(record.ephemeral());
            if is_needed {
                replacing.push(record);
                of_keys.push(at);
            }
        }
        Ok((replacing, of_keys))
    }

    /// Writes a batch if its conditions hold.
    pub(super) async fn write_if(&self, database: u8, mut batch: Batch, options: WriteOptions) -> Result<()> {
        let conditions = std::mem::take(&mut batch.conditions);
        let located = |of: &KeyOf| Ok((check_database(of.database.unwrap_or(database))?, of.key.clone()));
        for (of, condition) in &conditions {
            check_key(&of.key)?;
            self.check_condition_kind(*condition)?;
        }
        let of_operations = batch.operations.iter().map(|operation| &operation.of);
        let all = conditions.iter().map(|(of, _)| of).chain(of_operations);
        let mut keys = all.map(located).collect::<Result<Vec<(u8, Bytes)>>>()?;
        keys.sort_unstable();
        keys.dedup();
        let change = |entries: &[Option<Entry>]| {
            let conflict = conditions.iter().find_map(|(of, condition)| {
                let sought = (of.database.unwrap_or(database), &of.key);
                let at = keys.binary_search_by(|(number, key)| (*number, key).cmp(&sought));
                let current = entries[at.expect("the keys of all conditions are in the list")]
                    .as_ref()
                    .map(|entry| entry.version);
                (!condition.holds(current)).then(|| condition.conflict(&of.key, current))
            });
            conflict.map_or((batch, Ok(())), |conflict| (Batch::new(), Err(conflict)))
        };
        let named = self.named(keys.iter().map(|(database, key)| (*database, &key[..])));
        self.update(database, named, options, change).await?
    }

    /// Notes the record that a record replaces. Returns false for a tombstone that is not needed.
    async fn attach(&self, record: &mut Prepared, found: Option<&Found>) -> Result<bool> {
        let replaced = |found: &Found| self.catalog.replaced(found);
        record.replaces = found.map(replaced);
        if record.kind == Kind::Put {
            return Ok(true);
        }
        // A slot is emptied only when no other key can be hidden behind it.
        self.catalog.verify_to_remove(&record.hash).await?;
        if found.is_some_and(|found| !self.catalog.index.is_current(&record.hash, found.pointer)) {
            let again = self.catalog.look_up(&record.key, &record.hash).await?;
            record.replaces = again.as_ref().map(replaced);
        }
        Ok(record.replaces.is_some())
    }
}
