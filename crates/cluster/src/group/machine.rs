//! Applies committed entries to the keyspace.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use esker_engine::Applier;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use super::entry::{Step, decode_entry};
use super::parts::Apply;
use super::status::Counters;

/// An entry that is committed.
pub(crate) struct Committed {
    /// Its index in the log.
    pub(crate) index: u64,
    /// What was proposed.
    pub(crate) bytes: Bytes,
}

/// Applies entries to a state. Replicas that applied the same entries are equal.
pub(crate) trait Machine: Send + Sync + 'static {
    /// Applies an entry. Returns the versions of its proposals, 8 bytes each.
    fn apply(&self, entry: Committed) -> BoxFuture<'_, io::Result<Bytes>>;

    /// Makes everything durable that was applied before the call.
    fn flush(&self) -> BoxFuture<'_, io::Result<()>>;
}

impl Apply for Applier {
    fn apply(
        &self,
        group: u8,
        proposals: Vec<Vec<esker_engine::StoredChange>>,
    ) -> BoxFuture<'_, esker_engine::Result<Vec<u64>>> {
        Box::pin(Applier::apply(self, group, proposals))
    }

    fn clear(&self, group: u8) -> BoxFuture<'_, esker_engine::Result<()>> {
        Box::pin(Applier::clear(self, group))
    }

    fn flush(&self) -> BoxFuture<'_, esker_engine::Result<()>> {
        Box::pin(Applier::flush(self))
    }
}

/// The keyspace of a group.
pub(super) struct KeyspaceMachine {
    pub(super) group: u8,
    pub(super) applier: Arc<dyn Apply>,
    /// Entries that were proposed here and are committed, by index, as they were before they were encoded.
    pub(super) own: Mutex<BTreeMap<u64, Vec<Step>>>,
    pub(super) counters: Arc<Counters>,
}

impl KeyspaceMachine {
    fn failed(&self, index: u64, why: impl std::fmt::Display) -> io::Error {
        let group = self.group;
        io::Error::other(format!(
            "entry {index} of group {group} cannot be applied, so its replica stops: {why}"
        ))
    }

    async fn apply_steps(&self, steps: Vec<Step>) -> esker_engine::Result<Vec<u64>> {
        let (mut versions, mut waiting) = (Vec::with_capacity(steps.len()), Vec::new());
        for step in steps {
            match step {
                Step::Changes(changes) => waiting.push(changes),
                Step::Clear => {
                    versions.extend(self.applier.apply(self.group, std::mem::take(&mut waiting)).await?);
                    self.applier.clear(self.group).await?;
                    versions.push(0);
                }
            }
        }
        if !waiting.is_empty() {
            versions.extend(self.applier.apply(self.group, waiting).await?);
        }
        Ok(versions)
    }
}

impl Machine for KeyspaceMachine {
    fn apply(&self, entry: Committed) -> BoxFuture<'_, io::Result<Bytes>> {
        Box::pin(async move {
            let Committed { index, bytes } = entry;
            let own = self.own.lock().remove(&index);
            let steps = match own {
                Some(steps) => steps,
                None => decode_entry(&bytes).ok_or_else(|| {
                    self.failed(index, "it is damaged, or was written by a later version of Esker")
                })?,
            };
            let versions = self.apply_steps(steps).await.map_err(|error| self.failed(index, error))?;
            self.counters.entries.fetch_add(1, Ordering::Relaxed);
            self.counters.entry_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            Ok(versions.iter().flat_map(|version| version.to_le_bytes()).collect())
        })
    }

    fn flush(&self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move { self.applier.flush().await.map_err(io::Error::other) })
    }
}
