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
use crate::raft::member::{Committed, Machine};

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

#[cfg(test)]
mod tests {
    use esker_engine::{Result, StoredChange};

    use super::super::entry::encode_entry;
    use super::*;

    /// Notes the calls of `Apply`, one line each.
    #[derive(Default)]
    struct Notes(Mutex<Vec<String>>);

    impl Apply for Notes {
        fn apply(&self, group: u8, proposals: Vec<Vec<StoredChange>>) -> BoxFuture<'_, Result<Vec<u64>>> {
            let origins = proposals.iter().flatten().map(|change| change.origin).collect::<Vec<_>>();
            self.0.lock().push(format!("apply {group} {origins:?}"));
            Box::pin(std::future::ready(Ok((1..=proposals.len() as u64).collect())))
        }

        fn clear(&self, group: u8) -> BoxFuture<'_, Result<()>> {
            self.0.lock().push(format!("clear {group}"));
            Box::pin(std::future::ready(Ok(())))
        }

        fn flush(&self) -> BoxFuture<'_, Result<()>> {
            Box::pin(std::future::ready(Ok(())))
        }
    }

    fn changes(origin: u64) -> Step {
        Step::Changes(vec![StoredChange { key: Bytes::from_static(b"key"), value: None, origin }])
    }

    #[test]
    fn machine_applies_steps_in_order_and_refuses_damaged_entry() {
        let notes = Arc::new(Notes::default());
        let machine = KeyspaceMachine {
            group: 3,
            applier: notes.clone(),
            own: Mutex::default(),
            counters: Arc::default(),
        };
        let steps = [changes(5), changes(6), Step::Clear, changes(7)];
        let bytes = encode_entry(1, steps.iter());
        let apply = |index, bytes| esker_device::block_on(machine.apply(Committed { index, bytes }));
        machine.own.lock().insert(1, steps.to_vec());
        let versions = apply(1, bytes.clone()).expect("it is applied");
        assert_eq!(&versions[..], [1_u64, 2, 0, 1].map(u64::to_le_bytes).concat());
        assert_eq!(std::mem::take(&mut *notes.0.lock()), ["apply 3 [5, 6]", "clear 3", "apply 3 [7]"]);
        // From another node's log, origins are not known.
        apply(2, bytes.clone()).expect("it is applied");
        assert_eq!(notes.0.lock()[0], "apply 3 [0, 0]");
        let error = apply(3, bytes.slice(..bytes.len() - 1)).expect_err("it is damaged").to_string();
        assert!(error.contains("entry 3 of group 3") && error.contains("damaged"), "{error}");
    }
}
