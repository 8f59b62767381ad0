//! Iterating over all keys, in no order, from where one left off.

use esker_index::{Cursor as IndexCursor, Pointer};
use futures_util::future::join_all;

use crate::base::error::{Error, Result};
use crate::catalog::cache::{Cached, Entry};
use crate::catalog::place::Place;
use crate::catalog::records::Damaged;
use crate::read::Reader;

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
#[derive(Clone, Debug)]
pub struct Page {
    /// Entries, in no order.
    pub entries: Vec<Entry>,
    /// Records that are there and cannot be read, each with its place, and with its key where that still can be told. Their
    /// keys are missing from the entries.
    pub damaged: Vec<Error>,
    /// Where to go on, or `None` at the end.
    pub next: Option<Cursor>,
}

impl Reader {
    /// See [`Store::scan`](crate::Store::scan).
    pub(crate) async fn scan(&self, cursor: Cursor, limit: usize) -> Result<Page> {
        self.space.health.check_open()?;
        let mut suspects = Vec::new();
        loop {
            // Must be read before the pointers, or else a segment could be taken for the one that they lead to which was
            // opened in that one's slot since: whatever lay there before has moved, and would be missed.
            let opened_through = self.space.newest_segment();
            // Among them are pointers of records that were displaced without looking: the key there may be hidden.
            let (pointers, next) = self.catalog.index.scan(IndexCursor::from_u64(cursor.0), limit.max(1));
            let read = join_all(pointers.into_iter().map(|pointer| self.read_any(pointer))).await;
            let mut entries = Vec::with_capacity(read.len());
            let (mut failed, mut damaged) = (Vec::new(), Vec::new());
            for (place, record) in read {
                let record = match record.map(|record| record.map_err(|damage| damage.into_error(None))) {
                    Ok(Ok(_)) if place.segment > opened_through => {
                        failed.push(place);
                        continue;
                    }
                    Ok(Ok(record)) => record,
                    // Either the segment was freed meanwhile, and the next look at this place will not find the pointer; or
                    // it is damage.
                    Ok(Err(error)) if suspects.contains(&place) => {
                        damaged.push(error);
                        continue;
                    }
                    Ok(Err(_)) => {
                        failed.push(place);
                        continue;
                    }
                    Err(error) if error.is_of_reading() => {
                        damaged.push(error);
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                let hash = self.catalog.hash(record.key());
                let record = if self.catalog.index.is_current(&hash, place.pointer) {
                    Some(record)
                } else {
                    match self.catalog.look_up(record.key(), &hash).await {
                        Ok(found) => found.map(|found| found.record),
                        Err(error) if error.is_of_reading() => {
                            damaged.push(error);
                            continue;
                        }
                        Err(error) => return Err(error),
                    }
                };
                let Some(record) = record else { continue };
                if self.writer.may_show(record.key(), &hash, record.sequence, record.expires_at_ms).await {
                    entries.push(record.into_entry());
                }
            }
            if failed.is_empty() {
                // A key may have been met at its place and behind an unverified overwrite.
                entries.sort_unstable_by(|a, b| (&a.key, b.version).cmp(&(&b.key, a.version)));
                entries.dedup_by(|later, first| later.key == first.key);
                return Ok(Page { entries, damaged, next: next.map(|c| Cursor(c.to_u64())) });
            }
            suspects = failed;
        }
    }

    /// What is at a pointer whose key is not known, and where it was looked for.
    async fn read_any(&self, pointer: Pointer) -> (Place, Result<std::result::Result<Cached, Damaged>>) {
        let place = self.catalog.unchecked_place(pointer);
        (place, self.catalog.read_record(&place).await)
    }
}
