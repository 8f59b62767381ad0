//! A swap of the two databases with concurrent writes: one write to each of some twin keys that exist in both
//! databases. No other operation runs meanwhile. A write ordered before the swap changes the keyspace that its database
//! had before, a write ordered after it the other one; after all have ended, reads show the actual order.

use std::time::Duration;

use bytes::Bytes;
use esker_device::Runtime;
use esker_engine::{Batch, Condition, Entry, ErrorKind, Result, Store, WhenFull};
use esker_simulated::Random;
use futures_util::future::{join, join_all};

use crate::client::Client;
use crate::model::Twins;
use crate::plan::{Level, Media};
use crate::value::{any_value, stamp_of};

/// Maximum number of writes concurrent with one swap.
const WRITES_MAX: usize = 6;
/// Maximum delay in microseconds of a write's start.
const BEGINS_WITHIN_US: u64 = 400;

/// Kinds of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Put,
    Update,
    PutIfPresent,
    Delete,
}

/// A write that may land in either of two slots.
struct Beside {
    twins: Twins,
    kind: Kind,
    database: u8,
    stamp: Option<u64>,
    level: Level,
    begins: Duration,
    /// Positions in the histories of both slots.
    at: [usize; 2],
}

impl Client {
    /// Swaps the two databases.
    pub(crate) async fn swap(&self) {
        let _alone = self.turns.write().await;
        let writes = self.writes_beside();
        let (first, second) = self.model.lock().issue_swap();
        let begins = Duration::from_micros(if writes.is_empty() { 0 } else { BEGINS_WITHIN_US / 2 });
        let swap = async {
            self.runtime.sleep(begins).await;
            self.store.swap_databases(first, second).await?;
            let mut come_later = Vec::new();
            for write in &writes {
                let is_visible = self.is_visible(write, [first, second]).await;
                // If that read fails, the order is unknown.
                come_later.push(!is_visible.unwrap_or(true));
            }
            Ok(come_later)
        };
        let written = join_all(writes.iter().map(|write| self.write_beside(write)));
        let (swapped, written) = join(swap, written).await;
        let come_later = match swapped {
            Ok(come_later) => come_later,
            Err(error) => return self.tolerate("a swap", &error),
        };
        self.reached.lock().note("databases were swapped");
        self.model.lock().swapped();
        for ((write, written), comes_later) in writes.iter().zip(written).zip(come_later) {
            match written {
                Ok(seen) => self.settle(write, &seen, comes_later).await,
                Err(error) if error.kind() == ErrorKind::Full => {
                    let mut model = self.model.lock();
                    write.twins.slots.iter().zip(write.at).for_each(|(slot, at)| model.refuse(*slot, at));
                }
                // The write may have landed in either slot.
                Err(error) => self.tolerate("a write beside a swap", &error),
            }
        }
    }

    /// Chooses writes and records them in the model. Returns none if keys may be evicted or devices lie.
    fn writes_beside(&self) -> Vec<Beside> {
        let mut model = self.model.lock();
        if self.media == Media::Lying || self.config.when_full != WhenFull::Refuse {
            return Vec::new();
        }
        let mut random = Random::new(model.next_stamp());
        let mut writes = Vec::new();
        for twins in model.twins() {
            if writes.len() == WRITES_MAX || random.one_in(3) {
                continue;
            }
            let kind = [Kind::Put, Kind::Update, Kind::PutIfPresent, Kind::Delete][random.below(4) as usize];
            let both_there = twins.stamps.iter().all(Option::is_some);
            let kind = if both_there { kind } else { Kind::Put };
            let stamp = (kind != Kind::Delete).then(|| model.next_stamp());
            let level = if random.one_in(2) { Level::Sync } else { Level::None };
            let database = model.database_of(twins.slots[random.below(2) as usize]);
            let at = twins.slots.map(|slot| model.issue(slot, stamp, None, level.into(), false));
            let begins = Duration::from_micros(random.below(BEGINS_WITHIN_US));
            writes.push(Beside { twins, kind, database, stamp, level, begins, at });
        }
        writes
    }

    /// Executes a write. Returns the entries that an update was shown.
    async fn write_beside(&self, write: &Beside) -> Result<Vec<Option<Entry>>> {
        self.runtime.sleep(write.begins).await;
        let keys = &write.twins.keys;
        let mut batch = Batch::new();
        batch.in_database(write.database);
        for key in keys {
            if write.kind == Kind::PutIfPresent {
                batch.require(key.clone(), Condition::IfPresent);
            }
            match write.stamp {
                Some(stamp) => batch.put(key.clone(), any_value(key, stamp, (stamp % 200) as usize)),
                None => batch.delete(key.clone()),
            };
        }
        let options = self.options(write.level);
        let store = self.in_database(write.database);
        match (write.kind, &keys[..], write.stamp) {
            (Kind::Update, _, _) => {
                let named: Vec<(u8, &Bytes)> = keys.iter().map(|key| (write.database, key)).collect();
                self.store.update_across(&named, options, |entries| (batch, entries.to_vec())).await
            }
            (Kind::Put, [key], Some(stamp)) => {
                let value = any_value(key, stamp, (stamp % 200) as usize);
                store.put_with(key.clone(), value, options).await.map(|_| Vec::new())
            }
            (Kind::Delete, [key], _) => {
                let was_there = store.delete_with(key.clone(), options).await?;
                assert!(
                    was_there,
                    "{key:?} was in both databases, but a delete beside their swap found none"
                );
                Ok(Vec::new())
            }
            _ => self.store.write_with(batch, options).await.map(|()| Vec::new()),
        }
    }

    /// Returns true if a write is visible in one of the two databases.
    async fn is_visible(&self, write: &Beside, databases: [u8; 2]) -> Result<bool> {
        let key = &write.twins.keys[0];
        for database in databases {
            let entry = self.in_database(database).get_entry(key).await?;
            if entry.map(|entry| stamp_of(key, &entry.value)) == write.stamp {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn in_database(&self, database: u8) -> Store {
        self.store.database(database).expect("there is one")
    }

    /// Determines the keyspace in which a write landed, and updates the model. `comes_later`: the swap was acknowledged
    /// before the write was visible.
    async fn settle(&self, write: &Beside, seen: &[Option<Entry>], comes_later: bool) {
        let mut landed = Vec::new();
        for slot in write.twins.slots {
            let store = self.of(slot);
            let mut stamps = Vec::new();
            for key in &write.twins.keys {
                match store.get_entry(key).await {
                    Ok(entry) => {
                        let stamp = self.model.lock().check_entry(slot, key, entry.as_ref());
                        stamps.push(stamp.map(|(stamp, _)| stamp));
                    }
                    // The write may have landed in either slot.
                    Err(error) => return self.tolerate("a read behind a swap", &error),
                }
            }
            assert!(
                stamps.iter().all(|stamp| *stamp == stamps[0]),
                "half of a write beside a swap: {stamps:?}"
            );
            landed.push(stamps[0] == write.stamp);
        }
        let [in_first, in_second] = landed[..] else { unreachable!("there are two") };
        let (kind, stamps) = (write.kind, write.twins.stamps);
        assert!(in_first != in_second, "{kind:?} beside a swap landed in {landed:?}, of {stamps:?}");
        let it = usize::from(in_second);
        for (key, entry) in write.twins.keys.iter().zip(seen) {
            let shown = entry.as_ref().map(|entry| stamp_of(key, &entry.value));
            assert_eq!(shown, stamps[it], "an update beside a swap was shown another key than it wrote");
        }
        let mut model = self.model.lock();
        let (ours, other) = (write.twins.slots[it], write.twins.slots[1 - it]);
        model.refuse(other, write.at[1 - it]);
        model.ack(ours, write.at[it], self.runtime.now());
        let is_before = model.database_of(ours) != write.database;
        assert!(
            !comes_later || !is_before,
            "{kind:?} came after a swap, and was written to the keyspace before it"
        );
        let when = if is_before { "a write came before a swap" } else { "a write came after a swap" };
        self.reached.lock().note(when);
    }
}
