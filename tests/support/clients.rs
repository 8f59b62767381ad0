//! Clients that write their own slots and read everybody's, all at the same time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use esker::{Batch, Condition, Cursor, Durability, Entry, ErrorKind, Store, WriteOptions};
use esker_device::Runtime;
use esker_world::{Random, SimRuntime};
use futures_util::future::join_all;
use parking_lot::Mutex;

use super::model::{End, Model, Slot};
use super::{Config, Tiers, value};

/// What the clients of a case do.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) clients: u64,
    pub(crate) slots: u64,
    pub(crate) counters: u64,
    pub(crate) batches: bool,
    pub(crate) expiry: bool,
    pub(crate) large_values: bool,
    pub(crate) durabilities: Vec<Durability>,
    pub(crate) value_bytes: u64,
}

impl Load {
    pub(crate) fn random(random: &mut Random, staging: bool) -> Load {
        let periodic = Durability::Periodic(Duration::from_millis(1 + random.below(20)));
        let weak = if staging { Durability::Process } else { Durability::None };
        let durabilities = match random.below(6) {
            0 | 1 => vec![Durability::Sync],
            2 => vec![Durability::None],
            3 => vec![periodic],
            4 => vec![weak],
            _ => vec![Durability::Sync, Durability::None, periodic, weak],
        };
        Load {
            clients: 1 + random.below(8),
            slots: 4 + random.below(80),
            counters: random.below(3),
            batches: !random.one_in(4),
            expiry: random.one_in(4),
            large_values: random.one_in(2),
            durabilities,
            value_bytes: [60, 300, 1500, 5000][random.below(4) as usize],
        }
    }

    /// The slots and counters that it works on. They stay for all the lives of a store.
    pub(crate) fn model(&self, random: &mut Random) -> Model {
        let key = |name: &str, long: bool| {
            let mut key = name.as_bytes().to_vec();
            if long {
                key.resize(300, b'.');
            }
            Bytes::from(key)
        };
        let slots = (0..self.slots).map(|slot| {
            let keys = if self.batches && random.one_in(4) { 2 + random.below(5) } else { 1 };
            (0..keys).map(|part| key(&format!("s{slot}p{part}"), random.one_in(12))).collect()
        });
        let slots = slots.collect();
        Model::new(slots, (0..self.counters).map(|c| key(&format!("counter{c}"), false)).collect())
    }
}

#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) store: Store,
    pub(crate) runtime: SimRuntime,
    pub(crate) model: Arc<Mutex<Model>>,
    pub(crate) load: Arc<Load>,
    pub(crate) config: Arc<Config>,
    pub(crate) number: u64,
}

impl Client {
    /// Does so many things, then returns. What it finds wrong is a panic.
    pub(crate) async fn live(self, mut random: Random, operations: u64) {
        for _ in 0..operations {
            match random.below(100) {
                0..48 => self.write(&mut random).await,
                48..52 => self.write_several(&mut random).await,
                52..62 => self.delete(&mut random).await,
                62..82 => self.read(&mut random).await,
                82..87 => self.read_many(&mut random).await,
                87..88 => self.scan(&mut random).await,
                88..91 => self.flush().await,
                91..97 => self.count(&mut random).await,
                _ => self.runtime.sleep(Duration::from_micros(random.below(2000))).await,
            }
        }
    }

    /// A slot of which it is the only writer.
    fn own_slot(&self, random: &mut Random) -> Option<usize> {
        let mine = (self.load.slots + self.load.clients - 1 - self.number) / self.load.clients;
        (mine > 0).then(|| {
            // Some are written much more often than others.
            let pick = random.below(mine).min(random.below(mine));
            (pick * self.load.clients + self.number) as usize
        })
    }

    fn value_bytes(&self, random: &mut Random) -> u64 {
        let most = self.store.max_value_bytes(400);
        let bytes = match random.below(20) {
            0 if self.load.large_values => self.config.unit_bytes + random.below(2 * self.config.unit_bytes),
            1 if self.load.large_values => most.saturating_sub(random.below(3)),
            2 => [512, 4096, self.config.unit_bytes][random.below(3) as usize] + random.below(17) - 8,
            _ => random.below(2 * self.load.value_bytes),
        };
        bytes.min(most)
    }

    fn is_large(&self, bytes: u64) -> bool {
        let threshold = self.config.shaping_threshold_bytes.unwrap_or(self.config.unit_bytes);
        self.config.tiers == Tiers::Both && bytes.max(24) >= threshold
    }

    fn durability(&self, random: &mut Random) -> Durability {
        self.load.durabilities[random.below(self.load.durabilities.len() as u64) as usize]
    }

    async fn write(&self, random: &mut Random) {
        let Some(slot) = self.own_slot(random) else { return };
        let durability = self.durability(random);
        let keys = self.model.lock().slots[slot].keys.clone();
        let stamp = self.model.lock().next_stamp();
        let expires_at_ms = (self.load.expiry && random.one_in(4))
            .then(|| self.runtime.wall_clock_ms() + 1 + random.below(40));
        let mut options =
            WriteOptions { durability: Some(durability), expires_at_ms, ..WriteOptions::default() };
        if let [key] = &keys[..] {
            let bytes = self.value_bytes(random);
            let value = value(key, stamp, bytes as usize);
            let large = self.is_large(value.len() as u64);
            if random.one_in(12) && !self.load.expiry {
                // Nobody else writes the slot, so the condition says what is known.
                let there = self.model.lock().slots[slot].history.last().is_some_and(|s| s.stamp.is_some());
                options.condition = if there { Condition::IfPresent } else { Condition::IfAbsent };
            }
            let at = self.model.lock().issue(slot, Some(stamp), expires_at_ms, durability, large);
            let result = self.store.put_with(key.clone(), value, options).await;
            if let Ok(version) = result {
                self.model.lock().check_version(key, stamp, version);
            }
            self.done(slot, at, result.map(|_| ()));
            return;
        }
        let mut batch = Batch::new();
        for key in &keys {
            batch.put(key.clone(), value(key, stamp, random.below(self.load.value_bytes) as usize));
        }
        let at = self.model.lock().issue(slot, Some(stamp), expires_at_ms, durability, false);
        let result = self.store.write_with(batch, options).await;
        self.done(slot, at, result);
    }

    /// A batch over several slots, that writes some and deletes others.
    async fn write_several(&self, random: &mut Random) {
        let durability = self.durability(random);
        let mut batch = Batch::new();
        let mut issued = std::collections::BTreeMap::new();
        for _ in 0..1 + random.below(5) {
            let Some(slot) = self.own_slot(random) else { return };
            let mut model = self.model.lock();
            let state = *model.slots[slot].history.last().expect("there is always a state");
            if issued.contains_key(&slot) || state.expires_at_ms.is_some() {
                continue;
            }
            let delete = state.stamp.is_some() && random.one_in(2);
            let stamp = (!delete).then(|| model.next_stamp());
            issued.insert(slot, model.issue(slot, stamp, None, durability, false));
            for key in &model.slots[slot].keys {
                match stamp {
                    Some(stamp) => batch.put(key.clone(), value(key, stamp, random.below(200) as usize)),
                    None => batch.delete(key.clone()),
                };
            }
        }
        let options = WriteOptions { durability: Some(durability), ..WriteOptions::default() };
        let result = self.store.write_with(batch, options).await;
        for (slot, at) in issued {
            self.done(slot, at, result.clone());
        }
    }

    async fn delete(&self, random: &mut Random) {
        let Some(slot) = self.own_slot(random) else { return };
        let durability = self.durability(random);
        let options = WriteOptions { durability: Some(durability), ..WriteOptions::default() };
        let (keys, there) = {
            let model = self.model.lock();
            let last = model.slots[slot].history.last().expect("there is always a state");
            (model.slots[slot].keys.clone(), last.stamp.is_some())
        };
        // Deleting what is not there writes nothing, so it promises nothing.
        let began_ms = self.runtime.wall_clock_ms();
        let expires = self.model.lock().slots[slot].history.last().and_then(|s| s.expires_at_ms);
        let at = self.model.lock().issue(slot, None, None, durability, false);
        if let [key] = &keys[..] {
            let result = self.store.delete_with(key.clone(), options).await;
            if let Ok(was_there) = result {
                let ended_ms = self.runtime.wall_clock_ms();
                let must = there && expires.is_none_or(|at| ended_ms < at);
                let may = there && expires.is_none_or(|at| began_ms < at);
                assert!(
                    was_there && may || !was_there && !must,
                    "delete of {key:?} says {was_there}, but it was {there}, until {expires:?}"
                );
            }
            match result {
                Ok(false) => self.model.lock().refuse(slot, at),
                result => self.done(slot, at, result.map(|_| ())),
            }
            return;
        }
        let mut batch = Batch::new();
        for key in &keys {
            batch.delete(key.clone());
        }
        let result = self.store.write_with(batch, options).await;
        if result.is_ok() && !there {
            self.model.lock().refuse(slot, at);
        } else {
            self.done(slot, at, result);
        }
    }

    fn done(&self, slot: usize, at: usize, result: esker::Result<()>) {
        let mut model = self.model.lock();
        match result {
            Ok(()) => model.ack(slot, at, self.runtime.now()),
            Err(error) if matches!(error.kind(), ErrorKind::Full | ErrorKind::Invalid) => {
                assert!(error.kind() == ErrorKind::Full, "{error}");
                model.refuse(slot, at);
            }
            Err(error) => panic!("a write failed: {error}"),
        }
    }

    async fn read(&self, random: &mut Random) {
        let slot = random.below(self.load.slots) as usize;
        let (reading, keys) = {
            let model = self.model.lock();
            (model.begin_read(slot, self.runtime.wall_clock_ms()), model.slots[slot].keys.clone())
        };
        let key = random.below(keys.len() as u64) as usize;
        let found = self.store.get_entry(&keys[key]).await.expect("a read succeeds");
        self.model.lock().end_read(reading, key, found.as_ref(), self.runtime.wall_clock_ms());
    }

    /// Reads all keys of some slots at once.
    async fn read_many(&self, random: &mut Random) {
        let mut wanted = Vec::new();
        for _ in 0..1 + random.below(6) {
            let slot = random.below(self.load.slots) as usize;
            let model = self.model.lock();
            let reading = model.begin_read(slot, self.runtime.wall_clock_ms());
            let keys = model.slots[slot].keys.iter().cloned().enumerate();
            wanted.extend(keys.map(|(number, key)| (reading, number, key)));
        }
        let reads = wanted.iter().map(|(_, _, key)| self.store.get_entry(key));
        let found = join_all(reads).await;
        for ((reading, number, _), found) in wanted.into_iter().zip(found) {
            let found = found.expect("a read succeeds");
            // They ran at the same time, so each is checked against what was known before all of them.
            self.model.lock().end_read(reading, number, found.as_ref(), self.runtime.wall_clock_ms());
        }
    }

    async fn scan(&self, random: &mut Random) {
        let before: Vec<Slot> = self.model.lock().slots.clone();
        let wall_ms = self.runtime.wall_clock_ms();
        let mut cursor = Some(Cursor::START);
        // Entries, or keys alone.
        let (mut seen, keys_only) = (std::collections::BTreeMap::new(), random.one_in(2));
        while let Some(at) = cursor {
            let limit = 1 + random.below(40) as usize;
            cursor = if keys_only {
                let page = self.store.scan_keys(at, limit, 2000).await.expect("a scan succeeds");
                seen.extend(page.keys.into_iter().map(|entry| (entry.key, None)));
                page.next
            } else {
                let page = self.store.scan(at, limit).await.expect("a scan succeeds");
                seen.extend(page.entries.into_iter().map(|entry| (entry.key.clone(), Some(entry))));
                page.next
            };
        }
        let mut model = self.model.lock();
        let ended_ms = self.runtime.wall_clock_ms();
        for (number, slot) in before.iter().enumerate() {
            let quiet = model.slots[number].history.len() == slot.history.len()
                && slot.history.last().is_some_and(|s| s.acked_at.is_some());
            for key in &slot.keys {
                let entry = seen.remove(key);
                if let Some(Some(entry)) = &entry {
                    let stamp = model.check_entry(key, Some(entry));
                    let known = model.slots[number].history.iter().any(|s| s.stamp == stamp);
                    assert!(known, "a scan found {stamp:?} under {key:?}, which is too old");
                }
                let state = slot.history.last().expect("there is always a state");
                let expired = state.expires_at_ms.is_some_and(|at| at <= ended_ms);
                if quiet && !expired && wall_ms <= ended_ms {
                    assert_eq!(
                        entry.is_some(),
                        state.stamp.is_some(),
                        "{key:?} of slot {number} did not change, and the scan is wrong about it"
                    );
                }
            }
        }
        seen.retain(|key, _| !key.starts_with(b"counter"));
        assert!(seen.is_empty(), "a scan found keys that nobody wrote: {:?}", seen.keys());
    }

    async fn flush(&self) {
        let acked = self.model.lock().before_flush();
        match self.store.flush().await {
            Ok(()) => self.model.lock().flushed(&acked),
            Err(error) => panic!("a flush failed: {error}"),
        }
    }

    /// Counts a shared counter up by one.
    async fn count(&self, random: &mut Random) {
        if self.load.counters == 0 {
            return;
        }
        let counter = random.below(self.load.counters) as usize;
        let (key, known) = {
            let model = self.model.lock();
            (model.counters[counter].key.clone(), model.counters[counter].known)
        };
        let entry = self.store.get_entry(&key).await.expect("a read succeeds");
        let count = entry.as_ref().map(count_of);
        self.model.lock().read_counter(counter, known, count);
        let next = count.unwrap_or(0) + 1;
        let condition = match &entry {
            None => Condition::IfAbsent,
            Some(entry) => Condition::IfVersion(entry.version),
        };
        self.model.lock().try_count(counter, next);
        let mut value = next.to_le_bytes().to_vec();
        value.resize(8 + random.below(200) as usize, self.number as u8);
        let options =
            WriteOptions { durability: Some(Durability::Sync), condition, ..WriteOptions::default() };
        match self.store.put_with(key, value, options).await {
            Ok(_) => self.model.lock().counted(counter, next),
            Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Full) => {}
            Err(error) => panic!("a conditional put failed: {error}"),
        }
    }
}

pub(crate) fn count_of(entry: &Entry) -> u64 {
    u64::from_le_bytes(entry.value[..8].try_into().expect("a counter has eight bytes"))
}

/// Reads every key there is; nobody writes.
pub(crate) async fn read_all(store: &Store, model: &Mutex<Model>) -> Vec<Vec<Option<Entry>>> {
    let slots: Vec<Vec<Bytes>> = model.lock().slots.iter().map(|slot| slot.keys.clone()).collect();
    let mut found = Vec::new();
    for keys in slots {
        let entries = join_all(keys.iter().map(|key| store.get_entry(key))).await;
        found.push(
            entries
                .into_iter()
                .zip(&keys)
                .map(|(entry, key)| {
                    entry.unwrap_or_else(|error| {
                        panic!("{} cannot be read: {error}", String::from_utf8_lossy(key))
                    })
                })
                .collect(),
        );
    }
    found
}

/// Checks a store that has just been opened against the model, and makes the model what was found.
pub(crate) async fn check_recovered(
    store: &Store,
    model: &Mutex<Model>,
    end: End,
    ended: Duration,
    runtime: &SimRuntime,
) {
    let began_ms = runtime.wall_clock_ms();
    let found = read_all(store, model).await;
    let read_ms = runtime.wall_clock_ms();
    let counters: Vec<(Bytes, u64)> =
        model.lock().counters.iter().map(|c| (c.key.clone(), c.known)).collect();
    for (number, (key, known)) in counters.into_iter().enumerate() {
        let entry = store.get_entry(&key).await.expect("a read succeeds");
        model.lock().read_counter(number, known, entry.as_ref().map(count_of));
        let counter = &mut model.lock().counters[number];
        counter.tried = counter.known;
    }
    model.lock().recovered(end, &found, ended, (began_ms, read_ms));
}
