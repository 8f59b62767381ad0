//! The keys of a group, for a node whose copy is damaged and does not tell which keys are concerned. See
//! `docs/decisions/0054-repair-from-peers.md`.

use std::sync::Arc;

use esker_engine::Cursor;
use esker_seeded_bugs::{Bug, planted};

use super::Group;
use crate::peers::KeyList;

/// Maximum number of keys of a page, and of their bytes, unless one key alone is longer.
const PAGE_KEYS: usize = 4096;
const PAGE_BYTES: usize = 256 << 10;

impl Group {
    /// Returns a page of the keys that this node has of the group. A key that exists from the first page to the last is in one.
    ///
    /// # Errors
    /// If this replica has not applied the log up to index `applied`, or is being replaced.
    pub async fn list_keys(self: &Arc<Group>, applied: u64, cursor: u64) -> Result<KeyList, String> {
        let member = self.running()?;
        let reached = member.applied().index;
        if reached < applied {
            return Err(format!("the copy has applied index {reached}, the asking one {applied}"));
        }
        let page = self.parts.keys.scan_keys(Cursor::from_u64(cursor), PAGE_KEYS, PAGE_BYTES).await;
        let page = page.map_err(|error| error.to_string())?;
        // A replica that was replaced meanwhile may have emptied the keyspace.
        if !Arc::ptr_eq(&member, &self.running()?) {
            return Err("the copy was replaced meanwhile".into());
        }
        Ok(KeyList {
            keys: page.keys.into_iter().map(|entry| entry.key).collect(),
            next: page.next.map(Cursor::to_u64),
            is_damaged: !page.damaged.is_empty() && !planted(Bug::DamagedListBelieved),
        })
    }
}
