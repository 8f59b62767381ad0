//! Copies of a group for a backup, in steps that a client asks for, while writes go on.
//!
//! 1. [`CopyStep::Begin`]: the leader confirms that it leads, and names the index *i* up to which entries are applied. The log above
//!    it is kept for the copy.
//! 2. [`CopyStep::Keys`], until there is no next cursor: the keys of the group, each with the value of some moment after 1.
//! 3. [`CopyStep::Log`], beside the keys and after them: the changes of the applied entries above *i*, in their order. The copy is
//!    complete with the entries that the log had when the last keys were read.
//!
//! A key that no entry above *i* changes has one value from 1 on, and the iteration does not miss it. Any other gets its value from
//! the entries. Entries are whole commands, so a copy has no half of one.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use esker_engine::{Cursor, StoredChange, StoredValue};
use esker_seeded_bugs::{Bug, planted};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::Group;
use super::entry::{Step, decode_entry};
use super::state::RunningCopy;
use crate::changes::encode_changes;
use crate::view::{CopyPart, CopyStep};

/// Time after which a copy that is not continued holds the log no longer.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// Copies of a group at the same time.
const COPIES_MAX: usize = 4;
/// Bytes of a part, unless one value or one entry is longer; and keys of a part.
const PART_BYTES: usize = 2 << 20;
const PART_KEYS: usize = 1024;

impl Group {
    /// Executes a step of a copy.
    pub(crate) fn copy(self: &Arc<Group>, step: CopyStep) -> BoxFuture<'static, Result<CopyPart, String>> {
        let group = self.clone();
        async move {
            match step {
                CopyStep::Begin => group.begin_copy().await,
                CopyStep::Keys { copy, cursor } => group.copy_keys(copy, cursor).await,
                CopyStep::Log { copy, after } => group.copy_log(copy, after).await,
            }
        }
        .boxed()
    }

    /// Returns the index above which copies in progress need the log.
    pub(super) fn copied_through(&self) -> Option<u64> {
        let now = self.now();
        let mut copies = self.copies.lock();
        copies.retain(|_, copy| now.saturating_sub(copy.last_step) < IDLE_MAX);
        copies.values().map(|copy| copy.after).min()
    }

    async fn begin_copy(self: &Arc<Group>) -> Result<CopyPart, String> {
        self.confirm().await.map_err(|error| error.to_string())?;
        let member = self.running()?;
        self.copied_through();
        let mut copies = self.copies.lock();
        if copies.len() >= COPIES_MAX {
            return Err(format!(
                "{COPIES_MAX} copies of group {} are in progress; try again later",
                self.number()
            ));
        }
        let (after, last_step) = (member.applied().index, self.now());
        let number = self.parts.runtime.random();
        copies.insert(number, RunningCopy { after, last_step, member: Arc::downgrade(&member) });
        Ok(CopyPart { copy: number, index: after, ..CopyPart::default() })
    }

    /// Notes a step of a copy, which needs the log above an index from now on if one is given.
    fn continue_copy(&self, number: u64, after: Option<u64>) -> Result<(), String> {
        let member = self.running()?;
        let mut copies = self.copies.lock();
        let copy = copies.get_mut(&number);
        let copy =
            copy.filter(|copy| copy.member.upgrade().is_some_and(|first| Arc::ptr_eq(&first, &member)));
        let copy = copy.ok_or_else(|| {
            format!(
                "this copy of group {} ended: no step for {IDLE_MAX:?}, or the replica was replaced",
                self.number()
            )
        })?;
        copy.last_step = self.now();
        copy.after = copy.after.max(after.unwrap_or(0));
        Ok(())
    }

    async fn copy_keys(&self, number: u64, cursor: u64) -> Result<CopyPart, String> {
        self.continue_copy(number, None)?;
        let (keys, cursor) = (&self.parts.keys, Cursor::from_u64(cursor));
        let mut limit = PART_KEYS;
        while limit > 1 && keys.scan_bytes_hint(cursor, limit) > PART_BYTES {
            limit /= 2;
        }
        let page = keys.scan(cursor, limit).await.map_err(|error| error.to_string())?;
        if let Some(damaged) = page.damaged.first() {
            return Err(format!(
                "a record of group {} is damaged, so this copy would not be whole: {damaged}",
                self.number()
            ));
        }
        let change = |entry: esker_engine::Entry| StoredChange {
            key: entry.key,
            value: Some(StoredValue {
                bytes: entry.value,
                compressed: None,
                expires_at_ms: entry.expires_at_ms,
            }),
            origin: 0,
        };
        let changes: Vec<_> = page.entries.into_iter().map(change).collect();
        // A replica that was replaced meanwhile may have emptied the keyspace.
        self.continue_copy(number, None)?;
        Ok(CopyPart {
            copy: number,
            last_index: self.status().last_index,
            next: page.next.map(Cursor::to_u64),
            count: changes.len() as u64,
            changes: encode_changes(&changes),
            ..CopyPart::default()
        })
    }

    async fn copy_log(&self, number: u64, after: u64) -> Result<CopyPart, String> {
        self.continue_copy(number, Some(after))?;
        let member = self.running()?;
        let applied = member.applied().index;
        let read =
            self.store.changes_after(after, applied, PART_BYTES).await.map_err(|error| error.to_string())?;
        let Some((index, mut entries)) = read else {
            return Err(format!(
                "the log of group {} was purged above entry {after}, because it was full, so this copy cannot be completed",
                self.number()
            ));
        };
        if planted(Bug::CopyWithoutLog) {
            entries.clear();
        }
        let (mut changes, mut is_cleared) = (Vec::new(), false);
        for entry in &entries {
            let steps = decode_entry(entry)
                .ok_or_else(|| format!("an entry of group {} does not decode", self.number()))?;
            for step in steps {
                match step {
                    Step::Changes(more) => changes.extend(more),
                    Step::Clear => is_cleared = true,
                }
            }
        }
        Ok(CopyPart {
            copy: number,
            index,
            last_index: self.status().last_index,
            next: None,
            is_cleared,
            count: changes.len() as u64,
            changes: if changes.is_empty() { Bytes::new() } else { encode_changes(&changes) },
        })
    }
}
