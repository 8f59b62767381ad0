//! Resumable iteration over all keys, in no order.

use esker_index::{KeyHash, Pointer, Step};
use futures_util::future::join_all;

use crate::base::error::{Error, Result};
use crate::catalog::cache::{Cached, Entry};
use crate::read::Reader;
use crate::read::scan_filter::{Look, Met, Scanned, Sifted};

/// Position of an iteration. It can be stored as a number and resumed, even in another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor(u64);

impl Cursor {
    /// The start of the iteration.
    pub const START: Cursor = Cursor(0);

    /// Converts a number from [`to_u64`](Self::to_u64) back.
    pub fn from_u64(raw: u64) -> Cursor {
        Cursor(raw)
    }

    /// Returns the position as a number.
    pub fn to_u64(self) -> u64 {
        self.0
    }
}

/// One page of an iteration.
#[derive(Clone, Debug)]
pub struct Page {
    /// Entries, in no order.
    pub entries: Vec<Entry>,
    /// Unreadable records, each with its location, and with its key if that can still be determined. Their keys are
    /// missing from `entries`.
    pub damaged: Vec<Error>,
    /// Cursor of the next page; `None` at the end.
    pub next: Option<Cursor>,
}

impl Reader {
    /// See [`Store::scan`](crate::Store::scan).
    pub(crate) async fn scan(&self, database: u8, cursor: Cursor, limit: usize) -> Result<Page> {
        self.space.health.check_open()?;
        let mut suspects = Vec::new();
        loop {
            // Must be read before the pointers; see `sift`.
            let opened_through = self.space.newest_segment();
            let Some((keyspace, at)) = self.position(database, cursor) else {
                return Ok(Page { entries: Vec::new(), damaged: Vec::new(), next: None });
            };
            let Step { current, displaced, next } = self.catalog.index.scan(keyspace, at, limit.max(1));
            let met = join_all(current.into_iter().map(|pointer| self.read_any(pointer))).await;
            let is_direct = self.catalog.is_direct(database);
            let look = Look { keyspace, is_direct, opened_through, suspects: &suspects };
            let sifted = self.sift(&look, met, &displaced).await?;
            if !self.is_in_database(database, keyspace) {
                continue;
            }
            let Sifted { current, damaged, again } = sifted;
            if again.is_empty() {
                let entries = current.into_iter().map(Cached::into_entry).collect();
                return Ok(Page { entries, damaged, next: self.next_position(database, keyspace, next) });
            }
            suspects.extend(again);
        }
    }

    /// Reads the record at a pointer whose key is not known. Returns it with the place that was read.
    async fn read_any(&self, pointer: Pointer) -> Met<Cached> {
        let place = self.catalog.unchecked_place(pointer);
        (place, self.catalog.read_record(&place).await)
    }
}

impl Scanned for Cached {
    fn key(&self) -> &[u8] {
        self.key()
    }

    fn version(&self) -> u64 {
        self.sequence
    }

    fn expires_at_ms(&self) -> Option<u64> {
        self.expires_at_ms
    }

    async fn look_up(reader: &Reader, key: &[u8], hash: &KeyHash) -> Result<Option<Cached>> {
        Ok(reader.catalog.look_up(key, hash).await?.map(|found| found.record))
    }
}
