//! Iteration over keys without their values.
//!
//! Of a record that is not in memory, only the beginning is read (`catalog/heads`). A long value is not read, so damage
//! in it is only found by a later read.

use esker_index::{KeyHash, Pointer, Step};
use futures_util::future::join_all;

use crate::base::error::{Error, Result};
use crate::base::latency::Timed;
use crate::catalog::place::Place;
use crate::catalog::record_heads::{Beginning, HEAD_BYTES, Head, KeyEntry};
use crate::read::Reader;
use crate::read::scan::Cursor;
use crate::read::scan_filter::{Look, Met, Scanned, Sifted};

/// One page of an iteration over keys.
#[derive(Clone, Debug)]
pub struct KeyPage {
    /// Keys, in no order.
    pub keys: Vec<KeyEntry>,
    /// As [`Page::damaged`](crate::Page::damaged), for records whose key is damaged.
    pub damaged: Vec<Error>,
    /// Cursor of the next page; `None` at the end.
    pub next: Option<Cursor>,
}

/// The head read at a pointer, with the place that was read.
struct Started {
    place: Place,
    head: Result<Head>,
}

impl Started {
    /// Returns the length of the key; 0 if there is none.
    fn key_bytes(&self) -> usize {
        match &self.head {
            Ok(Head::Read(Ok(beginning))) => beginning.entry.key.len(),
            Ok(Head::Longer(bytes)) => *bytes,
            Ok(Head::Read(Err(_))) | Err(_) => 0,
        }
    }
}

impl Reader {
    /// See [`Store::get_key`](crate::Store::get_key).
    pub(crate) async fn get_key(&self, database: u8, key: &[u8]) -> Result<Option<KeyEntry>> {
        Ok(self.find_key(database, key).await?.map(|(_, entry)| entry))
    }

    /// See [`Store::contains`](crate::Store::contains). Counts as a use of the key, as a get does.
    pub(crate) async fn contains(&self, database: u8, key: &[u8]) -> Result<bool> {
        let began = self.space.runtime.now();
        let found = self.find_key(database, key).await?;
        if !key.is_empty() {
            self.space.took(Timed::Get, began);
        }
        if let Some((hash, _)) = &found {
            self.catalog.recency.note_asked(hash);
        }
        Ok(found.is_some())
    }

    /// Returns a key's digest and metadata; `None` if the key is absent.
    async fn find_key(&self, database: u8, key: &[u8]) -> Result<Option<(KeyHash, KeyEntry)>> {
        self.space.health.check_open()?;
        if key.is_empty() {
            return Ok(None);
        }
        let database = self.catalog.database_of(database, key);
        loop {
            let hash = self.catalog.hash_in(database, key);
            let found = KeyEntry::look_up(self, key, &hash).await?;
            if !self.is_still_of(database, &hash) {
                continue;
            }
            let Some(entry) = found else { return Ok(None) };
            let may_show = self.writer.may_show(key, &hash, entry.version, entry.expires_at_ms).await?;
            return Ok(may_show.then_some((hash, entry)));
        }
    }

    /// See [`Store::scan_keys`](crate::Store::scan_keys).
    pub(crate) async fn scan_keys(
        &self,
        database: u8,
        cursor: Cursor,
        limit: usize,
        bytes: usize,
    ) -> Result<KeyPage> {
        self.space.health.check_open()?;
        let (mut limit, mut suspects) = (limit.max(1), Vec::new());
        loop {
            // Must be read before the pointers; see `scan`.
            let opened_through = self.space.newest_segment();
            let Some((keyspace, at)) = self.position(database, cursor) else {
                return Ok(KeyPage { keys: Vec::new(), damaged: Vec::new(), next: None });
            };
            let Step { current, displaced, next } = self.catalog.index.scan(keyspace, at, limit);
            let started = join_all(current.into_iter().map(|pointer| self.start(pointer))).await;
            let wanted: usize = started.iter().map(Started::key_bytes).sum();
            let count = limit.min(started.len());
            if wanted > bytes && limit > 1 {
                limit = (count.saturating_mul(bytes) / wanted).clamp(1, (count / 2).max(1));
                continue;
            }
            let met = join_all(started.into_iter().map(|started| self.finish(started))).await;
            let is_direct = self.catalog.is_direct(database);
            let look = Look { keyspace, is_direct, opened_through, suspects: &suspects };
            let sifted = self.sift(&look, met, &displaced).await?;
            if !self.is_in_database(database, keyspace) {
                continue;
            }
            let Sifted { current, damaged, again } = sifted;
            if again.is_empty() {
                let next = self.next_position(database, keyspace, next);
                return Ok(KeyPage { keys: current, damaged, next });
            }
            suspects.extend(again);
        }
    }

    async fn start(&self, pointer: Pointer) -> Started {
        let place = self.catalog.unchecked_place(pointer);
        Started { place, head: self.catalog.read_head(&place, HEAD_BYTES, false).await }
    }

    async fn finish(&self, Started { place, head }: Started) -> Met<KeyEntry> {
        let whole = match head {
            Ok(head) => self.catalog.whole_head(&place, head, false).await,
            Err(error) => Err(error),
        };
        (place, whole.map(|read| read.map(|beginning| beginning.entry)))
    }
}

impl Scanned for KeyEntry {
    fn key(&self) -> &[u8] {
        &self.key
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn expires_at_ms(&self) -> Option<u64> {
        self.expires_at_ms
    }

    async fn look_up(reader: &Reader, key: &[u8], hash: &KeyHash) -> Result<Option<KeyEntry>> {
        if let Some(pointer) = reader.catalog.between_batches(|| reader.catalog.index.get(hash))
            && let Some(place) = reader.catalog.place(hash, pointer)
        {
            match reader.catalog.beginning(&place).await {
                Ok(Ok(Beginning { entry, .. })) if entry.key == key => return Ok(Some(entry)),
                Err(error) if !error.is_of_reading() => return Err(error),
                _ => {}
            }
        }
        // It moved, or the index slot belongs to another key, whose record may be the unreadable one.
        Ok(reader.catalog.look_up(key, hash).await?.map(|found| KeyEntry::of(&found.record)))
    }
}
