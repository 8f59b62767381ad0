//! Iterating over all keys, in no order, from where one left off.

use esker_index::{Claim, Cursor as IndexCursor};
use futures_util::future::join_all;

use crate::engine::Engine;
use crate::error::Result;
use crate::get::Fetched;
use crate::store::{Entry, Store};

/// The index reads a whole shard for each piece, so a piece is not too small.
const LEAST_PAGE: usize = 64;

/// Where an iteration stands; it can be kept as a number and resumed, in another process too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor(u64);

impl Cursor {
    /// The beginning.
    pub const START: Cursor = Cursor(0);

    /// From a number that [`to_u64`](Self::to_u64) gave.
    pub fn from_u64(raw: u64) -> Cursor {
        Cursor(raw)
    }

    /// As a number.
    pub fn to_u64(self) -> u64 {
        self.0
    }
}

/// A piece of an iteration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Entries, in no order.
    pub entries: Vec<Entry>,
    /// Where to go on, or `None` at the end.
    pub next: Option<Cursor>,
}

impl Store {
    /// A piece of the iteration over all keys, of about `limit` entries. A key that is there from the beginning of the
    /// iteration to its end is returned at least once.
    ///
    /// # Errors
    /// As [`get`](Self::get): a damaged record ends the piece.
    pub async fn scan(&self, cursor: Cursor, limit: usize) -> Result<Page> {
        self.engine.scan(cursor, limit).await
    }
}

impl Engine {
    async fn scan(&self, cursor: Cursor, limit: usize) -> Result<Page> {
        self.check_open()?;
        loop {
            let (pointers, next) = self.index.scan(IndexCursor::from_u64(cursor.0), limit.max(LEAST_PAGE));
            // A key that another displaced without looking is in no slot until that claim is settled.
            let end = next.map_or(u64::MAX, IndexCursor::to_u64);
            let page = |claim: &Claim| (cursor.0..end).contains(&self.index.stored_hash(&claim.hash));
            let mut found_hidden = false;
            for claim in self.index.claims_where(|_| true).iter().filter(|claim| page(claim)) {
                found_hidden |= self.settle(&claim.hash).await?;
            }
            if found_hidden {
                continue;
            }
            let fetched = join_all(pointers.iter().map(|&pointer| self.fetch_any(pointer))).await;
            let mut entries = Vec::with_capacity(fetched.len());
            let mut moved = false;
            let now = self.runtime.wall_clock_ms();
            for fetched in fetched {
                match fetched? {
                    Fetched::Moved => moved = true,
                    Fetched::Record(record) if record.expires_at_ms.is_some_and(|at| at <= now) => {}
                    Fetched::Record(record) => entries.push(Entry {
                        key: record.key,
                        value: record.value,
                        version: record.sequence,
                        expires_at_ms: record.expires_at_ms,
                    }),
                }
            }
            // What moved in between lies at the same place of the iteration: look at that place again.
            if !moved {
                return Ok(Page { entries, next: next.map(|c| Cursor(c.to_u64())) });
            }
        }
    }

    /// The record at a pointer whose key is not known.
    async fn fetch_any(&self, pointer: esker_index::Pointer) -> Result<Fetched> {
        let location = self.packing.unpack(pointer.get());
        let slot = self.slot(location);
        let segment = slot.segment();
        match self.read_record(location, segment).await? {
            Ok(record) => {
                let current = self.index.is_current(&self.hash(&record.key), pointer);
                Ok(if current { Fetched::Record(record) } else { Fetched::Moved })
            }
            Err(_) if slot.segment() != segment => Ok(Fetched::Moved),
            Err(damaged) => Err(damaged.into_error(None)),
        }
    }
}
