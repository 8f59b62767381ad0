//! The engines, each with its settings for values of a few kilobytes and all of its memory within the budget.

use std::time::{Duration, Instant};

use crate::flags::Flags;

pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Names and versions, as in `Cargo.lock`.
pub const VERSIONS: [(&str, &str); 3] = [("fjall", "3.1.13"), ("redb", "4.4.0"), ("sled", "0.34.7")];

/// The operations that the benchmarks call. A put returns when the level of durability that the flags ask for is reached.
pub trait Engine: Sync {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Failure>;
    /// The length of the value.
    fn get(&self, key: &[u8]) -> Result<Option<usize>, Failure>;
    /// Reads at most `most` records by iteration and calls `seen` with the bytes of each record's key and value.
    fn scan(&self, most: u64, seen: &mut dyn FnMut(usize)) -> Result<(), Failure>;
    /// Waits until all is on the medium, and background work rests as far as the engine tells.
    fn settle(&self) -> Result<(), Failure>;
}

pub fn open(flags: &Flags) -> Result<Box<dyn Engine>, Failure> {
    match flags.engine.as_str() {
        "fjall" => Ok(Box::new(Fjall::open(flags)?)),
        "redb" => Ok(Box::new(Redb::open(flags)?)),
        "sled" => Ok(Box::new(Sled::open(flags)?)),
        other => Err(format!("--engine={other}: it has to be fjall, redb or sled").into()),
    }
}

struct Fjall {
    database: fjall::Database,
    keyspace: fjall::Keyspace,
    sync: bool,
}

impl Fjall {
    fn open(flags: &Flags) -> Result<Fjall, Failure> {
        // As RocksDB gets it: two fifths for blocks, three write buffers of an eighth.
        let database = fjall::Database::builder(&flags.db).cache_size(flags.memory * 2 / 5).open()?;
        let keyspace = database.keyspace("bench", || {
            let options = fjall::KeyspaceCreateOptions::default().max_memtable_size(flags.memory / 8);
            // It is made for large values, which it keeps beside the tree.
            let separation = (flags.value_size >= 1024).then(fjall::KvSeparationOptions::default);
            options.with_kv_separation(separation)
        })?;
        Ok(Fjall { database, keyspace, sync: flags.sync })
    }
}

impl Engine for Fjall {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.keyspace.insert(key, value)?;
        if self.sync {
            self.database.persist(fjall::PersistMode::SyncData)?;
        }
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<Option<usize>, Failure> {
        Ok(self.keyspace.get(key)?.map(|value| value.len()))
    }

    fn scan(&self, most: u64, seen: &mut dyn FnMut(usize)) -> Result<(), Failure> {
        for entry in self.keyspace.iter().take(usize::try_from(most)?) {
            let (key, value) = entry.into_inner()?;
            seen(key.len() + value.len());
        }
        Ok(())
    }

    fn settle(&self) -> Result<(), Failure> {
        self.keyspace.rotate_memtable_and_wait()?;
        let mut rested = Instant::now();
        let mut before = self.database.compactions_completed();
        while rested.elapsed() < Duration::from_secs(1) {
            std::thread::sleep(Duration::from_millis(50));
            let now = self.database.compactions_completed();
            if now != before
                || self.database.active_compactions() > 0
                || self.database.outstanding_flushes() > 0
            {
                (before, rested) = (now, Instant::now());
            }
        }
        Ok(self.database.persist(fjall::PersistMode::SyncAll)?)
    }
}

const TABLE: redb::TableDefinition<'_, &[u8], &[u8]> = redb::TableDefinition::new("bench");

struct Redb {
    database: redb::Database,
    durability: redb::Durability,
}

impl Redb {
    fn open(flags: &Flags) -> Result<Redb, Failure> {
        let cache = usize::try_from(flags.memory * 7 / 10)?;
        let database = redb::Database::builder().set_cache_size(cache).create(flags.db.join("bench.redb"))?;
        let durability = if flags.sync { redb::Durability::Immediate } else { redb::Durability::None };
        let write = database.begin_write()?;
        write.open_table(TABLE)?;
        write.commit()?;
        Ok(Redb { database, durability })
    }
}

impl Engine for Redb {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        let mut write = self.database.begin_write()?;
        write.set_durability(self.durability)?;
        write.open_table(TABLE)?.insert(key, value)?;
        Ok(write.commit()?)
    }

    fn get(&self, key: &[u8]) -> Result<Option<usize>, Failure> {
        use redb::ReadableDatabase;
        let table = self.database.begin_read()?.open_table(TABLE)?;
        Ok(table.get(key)?.map(|value| value.value().len()))
    }

    fn scan(&self, most: u64, seen: &mut dyn FnMut(usize)) -> Result<(), Failure> {
        use redb::{ReadableDatabase, ReadableTable};
        let table = self.database.begin_read()?.open_table(TABLE)?;
        for entry in table.iter()?.take(usize::try_from(most)?) {
            let (key, value) = entry?;
            seen(key.value().len() + value.value().len());
        }
        Ok(())
    }

    fn settle(&self) -> Result<(), Failure> {
        // A commit that is durable makes those before it durable.
        Ok(self.database.begin_write()?.commit()?)
    }
}

struct Sled {
    database: sled::Db,
    sync: bool,
}

impl Sled {
    fn open(flags: &Flags) -> Result<Sled, Failure> {
        let database = sled::Config::new()
            .path(&flags.db)
            .cache_capacity(flags.memory * 2 / 5)
            .flush_every_ms(Some(500))
            .open()?;
        Ok(Sled { database, sync: flags.sync })
    }
}

impl Engine for Sled {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.database.insert(key, value)?;
        if self.sync {
            self.database.flush()?;
        }
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<Option<usize>, Failure> {
        Ok(self.database.get(key)?.map(|value| value.len()))
    }

    fn scan(&self, most: u64, seen: &mut dyn FnMut(usize)) -> Result<(), Failure> {
        for entry in self.database.iter().take(usize::try_from(most)?) {
            let (key, value) = entry?;
            seen(key.len() + value.len());
        }
        Ok(())
    }

    fn settle(&self) -> Result<(), Failure> {
        self.database.flush()?;
        Ok(())
    }
}
