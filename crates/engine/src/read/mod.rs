//! Reads for users. `catalog::lookup` describes how a record is found.

pub(crate) mod hints;
pub(crate) mod keys;
pub(crate) mod log_scan;
pub(crate) mod peek;
mod position;
pub(crate) mod probe;
pub(crate) mod range;
pub(crate) mod scan;
mod scan_filter;
mod segment_reader;
pub(crate) mod verification;

use std::sync::Arc;

use esker_index::KeyHash;

use crate::base::error::Result;
use crate::base::latency::Timed;
use crate::catalog::Catalog;
use crate::catalog::cache::Cached;
use crate::catalog::feed::KeyWatch;
use crate::catalog::lookup::Found;
use crate::read::probe::Probe;
use crate::segments::space::Space;
use crate::write::Writer;

/// Returns true if a key begins with a prefix. An empty prefix is not compared: `memcmp` of glibc reads no bytes at the dangling
/// address of an empty slice by a masked load, which takes the processor ten times as long as one at a valid address.
#[inline]
pub(crate) fn has_prefix(key: &[u8], prefix: &[u8]) -> bool {
    prefix.is_empty() || key.starts_with(prefix)
}

/// Executes the reads of users.
pub(crate) struct Reader {
    space: Arc<Space>,
    catalog: Arc<Catalog>,
    /// Makes the expiry of a key permanent before a reader reports it.
    writer: Arc<Writer>,
}

impl Reader {
    pub(crate) fn new(writer: Arc<Writer>) -> Reader {
        Reader { space: writer.space.clone(), catalog: writer.catalog.clone(), writer }
    }

    pub(crate) fn watch(&self, database: u8, key: &[u8]) -> KeyWatch {
        let database = self.catalog.database_of(database, key);
        loop {
            let hash = self.catalog.hash_in(database, key);
            let watch = self.catalog.feed.watch(hash);
            // Must come after the watch is registered, because otherwise a swap could miss it.
            if self.is_still_of(database, &hash) {
                return KeyWatch::new(watch);
            }
        }
    }

    /// Returns true if a database still has the keyspace of a digest. Must be called after the read: a record read
    /// between two swaps may have been written to another database.
    fn is_still_of(&self, database: u8, hash: &KeyHash) -> bool {
        self.catalog.keyspace(database) == hash.keyspace()
    }

    /// Returns the current record of a key.
    pub(crate) fn get<'a>(
        &'a self,
        database: u8,
        key: &'a [u8],
    ) -> impl Future<Output = Result<Option<Cached>>> {
        self.get_probed(self.hashed(database, key))
    }

    /// Returns the current record of a probed key.
    pub(crate) async fn get_probed(&self, mut probe: Probe<'_>) -> Result<Option<Cached>> {
        self.space.health.check_open()?;
        if probe.key.is_empty() {
            return Ok(None);
        }
        let began = self.space.runtime.now();
        loop {
            self.follow_swap(&mut probe);
            let Probe { key, hash, pointer, .. } = &mut probe;
            // After a swap the pointer is not used again: the index is searched.
            let found = self.catalog.look_up_from(key, hash, pointer.take()).await?;
            if !self.is_in_its_database(&probe) {
                continue;
            }
            self.space.took(Timed::Get, began);
            let Some(Found { record, .. }) = found else { return Ok(None) };
            let Probe { key, hash, .. } = &probe;
            let may_show = self.writer.may_show(key, hash, record.sequence, record.expires_at_ms).await?;
            if may_show {
                self.catalog.recency.note_asked(hash);
            }
            return Ok(may_show.then_some(record));
        }
    }
}
