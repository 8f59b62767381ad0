//! Clients that execute their part of the plan concurrently. Each writes its own slots and reads those of all.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use esker_device::Runtime;
use esker_engine::{
    Batch, Compression, Condition, Entry, Error, ErrorKind, Result, Store, WhenFull, WriteOptions,
};
use esker_simulated::SimRuntime;
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::RwLock;

use crate::config::{Config, Tiers};
use crate::coverage::Reached;
use crate::model::{Model, Reading, Slot, State};
use crate::plan::{Level, Media, Op};
use crate::store::Faults;
use crate::value::{Fill, VALUE_BYTES_MIN, any_value, fill_of};

/// A client of a store.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) store: Store,
    pub(crate) runtime: SimRuntime,
    pub(crate) model: Arc<Mutex<Model>>,
    pub(crate) config: Arc<Config>,
    pub(crate) media: Media,
    pub(crate) faults: Arc<Faults>,
    pub(crate) reached: Arc<Mutex<Reached>>,
    /// Held for reading by all operations, and for writing by a clear or a swap of databases.
    pub(crate) turns: Arc<RwLock<()>>,
}

impl Client {
    /// Executes the operations. Panics if a result contradicts the model.
    pub(crate) async fn live(self, operations: Vec<Op>) {
        for operation in operations {
            match operation {
                Op::Clear => self.clear(None).await,
                Op::ClearOne { elsewhere } => self.clear(Some(elsewhere)).await,
                Op::Swap => self.swap().await,
                operation => {
                    let _turn = self.turns.read().await;
                    self.act(operation).await;
                }
            }
        }
    }

    async fn act(&self, operation: Op) {
        match operation {
            Op::Put { slot, bytes, level, expires_in_ms, condition } => {
                self.put(slot as usize, bytes, level, expires_in_ms, condition).await;
            }
            Op::Several { slots, level } => self.several(slots, level).await,
            Op::Delete { slot, level } => self.delete(slot as usize, level).await,
            Op::Update { slot, bytes, level } => self.update(slot as usize, bytes, level).await,
            Op::Expire { slot, in_ms, level } => self.expire(slot as usize, in_ms, level).await,
            Op::Get { slot } => self.get_many(vec![slot]).await,
            Op::GetRange { slot, from, bytes } => self.get_range(slot as usize, from, bytes).await,
            Op::GetMany { slots } => self.get_many(slots).await,
            Op::Scan(kind, limit) => self.scan(kind, limit as usize).await,
            Op::Flush => self.flush().await,
            Op::Compact => {
                if let Err(error) = self.store.compact().await {
                    self.tolerate("compacting", &error);
                }
            }
            Op::Verify => self.verify().await,
            Op::Count { counter, bytes } => self.count(counter as usize, bytes).await,
            Op::Sleep(us) => self.runtime.sleep(Duration::from_micros(us)).await,
            Op::Clear | Op::ClearOne { .. } | Op::Swap => unreachable!("it runs alone"),
        }
    }

    /// Asserts that a call may fail, because a device did.
    pub(crate) fn tolerate(&self, what: &str, error: &Error) {
        let may = match (self.media, error.kind()) {
            (Media::Sound, _) => false,
            (Media::Failing, ErrorKind::Io | ErrorKind::Closed) => self.faults.struck(),
            (Media::Failing, _) => false,
            (Media::Lying, kind) => matches!(kind, ErrorKind::Io | ErrorKind::Closed | ErrorKind::Corrupt),
        };
        assert!(may, "{what} failed: {error}");
        self.reached.lock().note(match error.kind() {
            ErrorKind::Io => "a call failed with Io",
            ErrorKind::Corrupt => "a call failed with Corrupt",
            _ => "the store stopped after a failure",
        });
    }

    /// Returns the database of a slot.
    pub(crate) fn of(&self, slot: usize) -> Store {
        let database = self.model.lock().database_of(slot);
        self.store.database(database).expect("there is one")
    }

    /// Returns the database of the counters.
    fn of_counters(&self) -> Store {
        let database = self.model.lock().database(false);
        self.store.database(database).expect("there is one")
    }

    pub(crate) fn options(&self, level: Level) -> WriteOptions {
        WriteOptions { durability: Some(level.into()), ..WriteOptions::default() }
    }

    /// True if a value of `bytes` bytes may go through the lane of large values. It does not if its stored length is
    /// below the threshold.
    fn is_large(&self, bytes: u64) -> bool {
        let threshold = self.config.shaping_threshold_bytes.unwrap_or(self.config.unit_bytes);
        self.config.tiers == Tiers::Both && bytes.max(VALUE_BYTES_MIN as u64) >= threshold
    }

    async fn put(&self, slot: usize, bytes: u64, level: Level, expires_in_ms: Option<u64>, condition: bool) {
        let expires_at_ms = expires_in_ms.map(|ms| self.store.now_ms() + ms);
        let mut options = WriteOptions { expires_at_ms, ..self.options(level) };
        let (keys, stamp, known) = {
            let mut model = self.model.lock();
            (model.slots[slot].keys.clone(), model.next_stamp(), model.slots[slot].known())
        };
        let bytes = bytes.min(self.store.max_value_bytes(400));
        if let [key] = &keys[..] {
            let value = any_value(key, stamp, bytes as usize);
            let large = self.is_large(value.len() as u64);
            // No other client writes the slot, so the condition follows from the known state.
            if let Some(known) = known.filter(|known| condition && known.expires_at_ms.is_none())
                && self.media != Media::Lying
            {
                options.condition =
                    if known.stamp.is_some() { Condition::IfPresent } else { Condition::IfAbsent };
            }
            if large && (fill_of(stamp) == Fill::Noise || self.config.compression == Compression::Off) {
                self.reached.lock().note("a large value went its own way");
            }
            let at = self.issue(slot, Some(stamp), expires_at_ms, level, large);
            let result = self.of(slot).put_with(key.clone(), value, options).await;
            match &result {
                Ok(version) => self.model.lock().check_version(key, stamp, *version),
                Err(error) if error.kind() == ErrorKind::Conflict => {
                    let known = known.expect("what is not known is no condition");
                    assert!(self.may_have_dropped(&known), "{key:?} is not as it was: {known:?}");
                    return self.model.lock().refuse(slot, at);
                }
                Err(_) => {}
            }
            return self.done(slot, at, result.map(|_| ()));
        }
        let mut batch = Batch::new();
        for key in &keys {
            batch.put(key.clone(), any_value(key, stamp, bytes.min(6000) as usize));
        }
        let at = self.issue(slot, Some(stamp), expires_at_ms, level, false);
        let result = self.of(slot).write_with(batch, options).await;
        self.done(slot, at, result);
    }

    fn issue(
        &self,
        slot: usize,
        stamp: Option<u64>,
        expires: Option<u64>,
        level: Level,
        large: bool,
    ) -> usize {
        self.model.lock().issue(slot, stamp, expires, level.into(), large)
    }

    /// Writes a batch over several slots that puts some and deletes others.
    async fn several(&self, slots: Vec<(u64, bool)>, level: Level) {
        let mut batch = Batch::new();
        let mut issued = BTreeMap::new();
        for (slot, deletes) in slots {
            let slot = slot as usize;
            let mut model = self.model.lock();
            let last = model.slots[slot].last();
            if issued.contains_key(&slot) || last.expires_at_ms.is_some() {
                continue;
            }
            let stamp = (!deletes || last.stamp.is_none()).then(|| model.next_stamp());
            issued.insert(slot, model.issue(slot, stamp, None, level.into(), false));
            batch.in_database(model.database_of(slot));
            for key in &model.slots[slot].keys {
                match stamp {
                    Some(stamp) => batch.put(key.clone(), any_value(key, stamp, (stamp % 200) as usize)),
                    None => batch.delete(key.clone()),
                };
            }
        }
        let issued = Vec::from_iter(issued);
        self.model.lock().join(&issued);
        let result = self.store.write_with(batch, self.options(level)).await;
        for (slot, at) in issued {
            self.done(slot, at, result.clone());
        }
    }

    async fn delete(&self, slot: usize, level: Level) {
        let options = self.options(level);
        let Slot { keys, .. } = self.model.lock().slots[slot].clone();
        let known = self.model.lock().slots[slot].known().filter(|_| self.media != Media::Lying);
        let began_ms = self.store.now_ms();
        let at = self.issue(slot, None, None, level, false);
        // Deleting an absent key writes nothing, so it makes nothing durable.
        if let [key] = &keys[..] {
            let result = self.of(slot).delete_with(key.clone(), options).await;
            if let (Ok(was_there), Some(known)) = (&result, known) {
                let (there, expires) = (known.stamp.is_some(), known.expires_at_ms);
                let latest_ms = self.model.lock().clock(self.store.now_ms());
                let must = there && expires.is_none_or(|at| latest_ms < at);
                let may = there && expires.is_none_or(|at| began_ms < at);
                assert!(
                    *was_there && may || !was_there && (!must || self.may_have_dropped(&known)),
                    "delete of {key:?} says {was_there}, but it was {there}, until {expires:?}"
                );
            }
            return match result {
                Ok(false) => self.model.lock().refuse(slot, at),
                result => self.done(slot, at, result.map(|_| ())),
            };
        }
        let mut batch = Batch::new();
        for key in &keys {
            batch.delete(key.clone());
        }
        let result = self.of(slot).write_with(batch, options).await;
        if result.is_ok() && known.is_some_and(|known| known.stamp.is_none()) {
            self.model.lock().refuse(slot, at);
        } else {
            self.done(slot, at, result);
        }
    }

    /// Reads the entries of a slot and rewrites them, in one update.
    async fn update(&self, slot: usize, bytes: u64, level: Level) {
        let (keys, stamp, reading) = {
            let mut model = self.model.lock();
            let reading = model.begin_read(slot, self.store.now_ms());
            (model.slots[slot].keys.clone(), model.next_stamp(), reading)
        };
        let bytes = bytes.min(6000);
        // A batch of one record is processed like a put.
        let large = keys.len() == 1 && self.is_large(bytes + 6);
        let at = self.issue(slot, Some(stamp), None, level, large);
        let database = self.model.lock().database_of(slot);
        let named: Vec<(u8, &Bytes)> = keys.iter().map(|key| (database, key)).collect();
        let result = self.store.update_across(&named, self.options(level), |entries| {
            let mut batch = Batch::new();
            batch.in_database(database);
            for (key, entry) in keys.iter().zip(entries) {
                // The length depends on the entry that was read, so that an interleaved change would show.
                let more = entry.as_ref().map_or(0, |entry| entry.value.len() % 7);
                batch.put(key.clone(), any_value(key, stamp, bytes as usize + more));
            }
            (batch, entries.to_vec())
        });
        let result = result.await;
        if let Ok(entries) = &result {
            for (number, entry) in entries.iter().enumerate() {
                self.end_read(&reading, number, entry.as_ref());
            }
        }
        self.done(slot, at, result.map(|_| ()));
    }

    /// Changes the expiry of a slot's keys.
    async fn expire(&self, slot: usize, in_ms: Option<u64>, level: Level) {
        let Slot { keys, .. } = self.model.lock().slots[slot].clone();
        let Some(known) = self.model.lock().slots[slot].known() else { return };
        if known.stamp.is_none() || known.expires_at_ms.is_some() && keys.len() > 1 {
            return;
        }
        let expires_at_ms = in_ms.map(|ms| self.store.now_ms() + ms);
        let large = keys.len() == 1 && self.config.tiers == Tiers::Both;
        let at = self.issue(slot, known.stamp, expires_at_ms, level, large);
        let store = self.of(slot);
        let result = store.update(&keys, self.options(level), |entries| {
            let mut batch = Batch::new();
            for entry in entries.iter().flatten() {
                match expires_at_ms {
                    Some(at_ms) => batch.put_expiring(&entry.key, &entry.value, at_ms),
                    None => batch.put(&entry.key, &entry.value),
                };
            }
            let all_there = entries.iter().all(Option::is_some);
            (if all_there { batch } else { Batch::new() }, all_there)
        });
        match result.await {
            // The key had expired.
            Ok(false) => self.model.lock().refuse(slot, at),
            result => self.done(slot, at, result.map(|_| ())),
        }
    }

    /// Records the result of a write.
    fn done(&self, slot: usize, at: usize, result: Result<()>) {
        match result {
            Ok(()) => self.model.lock().ack(slot, at, self.runtime.now()),
            Err(error) if error.kind() == ErrorKind::Full => {
                let evicts = self.config.when_full == WhenFull::Evict;
                assert!(!evicts || self.faults.struck(), "a cache refused a write: {error}");
                self.reached.lock().note("a full store refused a write");
                self.model.lock().refuse(slot, at);
            }
            // The write may have happened or not.
            Err(error) => self.tolerate("a write", &error),
        }
    }

    /// Reads all keys of some slots concurrently.
    async fn get_many(&self, slots: Vec<u64>) {
        let mut wanted = Vec::new();
        for slot in slots.into_iter().map(|slot| slot as usize) {
            let model = self.model.lock();
            let reading = model.begin_read(slot, self.store.now_ms());
            let keys = model.slots[slot].keys.iter().cloned().enumerate();
            let store = self.store.database(model.database_of(slot)).expect("there is one");
            wanted.extend(keys.map(|(number, key)| (store.clone(), reading.clone(), number, key)));
        }
        let reads = wanted.iter().map(|(store, _, _, key)| store.get_entry(key));
        let found = join_all(reads).await;
        for ((_, reading, number, _), found) in wanted.into_iter().zip(found) {
            match found {
                // They ran concurrently, so each is checked against the knowledge before all of them.
                Ok(found) => self.end_read(&reading, number, found.as_ref()),
                Err(error) => self.tolerate("a read", &error),
            }
        }
    }

    /// Checks a read of a key.
    pub(crate) fn end_read(&self, reading: &Reading, number: usize, found: Option<&Entry>) {
        let evicted = found.is_none().then(|| self.records_evicted());
        let mut model = self.model.lock();
        evicted.into_iter().for_each(|records| model.told_of_evictions(records));
        if model.end_read(reading, number, found, self.store.now_ms()) {
            self.reached.lock().note("a key that was dropped was missed");
        }
    }

    /// True if the store may have evicted a key that had this state.
    fn may_have_dropped(&self, state: &State) -> bool {
        let mut model = self.model.lock();
        model.told_of_evictions(self.records_evicted());
        model.may_have_dropped(&[*state])
    }

    /// Returns the number of records that the store has evicted. For a store that may not evict it is 0, because the
    /// statistics lock each shard of the index, and because any missing key of such a store is a failure.
    fn records_evicted(&self) -> u64 {
        if self.config.when_full.evicts() { self.store.stats().activity.records_evicted } else { 0 }
    }

    /// Reads a value, a part of it, and the value again: if it is unchanged, the part must match.
    async fn get_range(&self, slot: usize, from: u64, bytes: u64) {
        let Slot { keys, .. } = self.model.lock().slots[slot].clone();
        let (key, store) = (&keys[0], self.of(slot));
        let read = async {
            let Some(before) = store.get_entry(key).await? else { return Ok(None) };
            let from = before.value.len() as u64 * from / 1000;
            let range = from..from + bytes;
            let part = store.get_range(key, range.clone()).await?;
            let after = store.get_entry(key).await?;
            let same = after.filter(|after| after.version == before.version);
            Ok(same.map(|entry| (entry, range, part)))
        };
        match read.await {
            Ok(Some((entry, range, part))) => {
                let (start, end) = (range.start as usize, entry.value.len().min(range.end as usize));
                assert_eq!(part.as_deref(), Some(&entry.value[start..end]), "{range:?} of {key:?}");
            }
            Ok(None) => {}
            Err(error) => self.tolerate("a read of a part", &error),
        }
    }

    async fn flush(&self) {
        let acked = self.model.lock().before_flush();
        match self.store.flush().await {
            Ok(()) => self.model.lock().flushed(&acked),
            Err(error) => self.tolerate("a flush", &error),
        }
    }

    async fn verify(&self) {
        match self.store.verify().await {
            Ok(verified) if self.media == Media::Lying => {
                if verified.damages > 0 {
                    self.reached.lock().note("verification found damage");
                }
            }
            Ok(verified) => {
                let damaged = verified.damaged.iter().find(|_| !self.faults.struck());
                assert!(damaged.is_none(), "there is damage: {:?}", verified.damaged);
            }
            Err(error) => self.tolerate("verification", &error),
        }
    }

    /// Clears everything, or the keys of one database.
    async fn clear(&self, which: Option<bool>) {
        let _alone = self.turns.write().await;
        let at = self.model.lock().issue_clear(which);
        self.reached.lock().note("a clear began");
        let database = which.map(|which| self.model.lock().database(which));
        let cleared = match database {
            Some(database) => self.store.database(database).expect("there is one").clear().await,
            None => self.store.clear_all().await,
        };
        match cleared {
            Ok(()) => {
                let what = if which.is_some() { "one database was cleared" } else { "a clear ended" };
                self.reached.lock().note(what);
                self.model.lock().cleared(&at, self.runtime.now());
            }
            Err(error) => self.tolerate("a clear", &error),
        }
    }

    /// Increments a shared counter.
    async fn count(&self, counter: usize, bytes: u64) {
        if self.media == Media::Lying {
            return;
        }
        let (key, known) = {
            let model = self.model.lock();
            (model.counters[counter].key.clone(), model.counters[counter].known)
        };
        let store = self.of_counters();
        let entry = match store.get_entry(&key).await {
            Ok(entry) => entry,
            Err(error) => return self.tolerate("a read", &error),
        };
        let count = entry.as_ref().map(count_of);
        let evicted = self.records_evicted();
        self.model.lock().told_of_evictions(evicted);
        self.model.lock().read_counter(counter, known, count);
        let next = count.unwrap_or(0) + 1;
        let condition = match &entry {
            None => Condition::IfAbsent,
            Some(entry) => Condition::IfVersion(entry.version),
        };
        self.model.lock().try_count(counter, next);
        let mut value = next.to_le_bytes().to_vec();
        value.resize(8 + bytes as usize, next as u8);
        let options = WriteOptions { condition, ..self.options(Level::Sync) };
        match store.put_with(key, value, options).await {
            Ok(_) => {
                let evicted = self.records_evicted();
                self.model.lock().told_of_evictions(evicted);
                self.model.lock().counted(counter, next);
            }
            Err(error) if error.kind() == ErrorKind::Conflict => {
                self.reached.lock().note("a condition did not hold");
            }
            Err(error) if error.kind() == ErrorKind::Full => {}
            Err(error) => self.tolerate("a conditional put", &error),
        }
    }
}

pub(crate) fn count_of(entry: &Entry) -> u64 {
    u64::from_le_bytes(entry.value[..8].try_into().expect("a counter has eight bytes"))
}

/// Reads every key while no write is in flight.
pub(crate) async fn read_all(store: &Store, model: &Mutex<Model>) -> Vec<Vec<Result<Option<Entry>>>> {
    let slots: Vec<(u8, Vec<Bytes>)> = {
        let model = model.lock();
        model.slots.iter().map(|slot| (model.database(slot.elsewhere), slot.keys.clone())).collect()
    };
    let mut found = Vec::new();
    for (database, keys) in slots {
        let store = store.database(database).expect("there is one");
        found.push(join_all(keys.iter().map(|key| store.get_entry(key))).await);
    }
    found
}
