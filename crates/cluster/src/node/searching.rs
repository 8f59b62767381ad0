//! Finds the keys of damaged records that did not tell them, by the keys of other copies. See
//! `docs/decisions/0054-repair-from-peers.md`.
//!
//! 1. A verification, the scrub or the collector reports damage without a key: it names the group alone.
//! 2. If this node leads the group, it hands over: another copy is sound.
//! 3. Another copy that has applied at least as much lists its keys, page by page. Of each key the index here tells if its record is
//!    in the damaged part.
//! 4. Those keys are healed as any damaged record is (`healing`). The list of a copy that is damaged itself is used, but another copy
//!    is asked as well.
//! 5. The search is repeated until it finds no damaged key. Then the index forgets the records in lost segments.
//!
//! A search that is interrupted, by a crash or a change of the members, changed nothing: the damage is reported and searched again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::select;

use super::core::Node;
use crate::levels::HEALING_LEVEL;
use crate::peers::{NodeDamage, PeerRequest, PeerResponse};

/// Time after which a search that could not begin is tried again.
const AGAIN: Duration = Duration::from_secs(5);
/// Pause while too many keys wait to be healed.
const FULL: Duration = Duration::from_secs(1);

/// Searches one group after the other until the node stops.
pub(super) async fn run(node: Arc<Node>) {
    while !node.has_stopped.load(Ordering::Relaxed) {
        let is_put_off = node.table.load().is_paused || node.lacks_room();
        let next = node.healing.next_search(node.runtime().now()).filter(|_| !is_put_off);
        let Some((group, covers)) = next else {
            select(Box::pin(node.healing.search_wanted.notified()), node.runtime().sleep(AGAIN)).await;
            continue;
        };
        let (began, mut waited) = (node.runtime().now(), Duration::ZERO);
        let found = node.search(group, &mut waited).await;
        match &found {
            Ok(0) => {
                tracing::warn!(group, "all records of damage that did not tell its keys are healed");
                node.healing.searched.fetch_add(1, Ordering::Relaxed);
            }
            Ok(keys) => {
                tracing::warn!(group, keys, "all keys of damage that did not tell them are being healed")
            }
            Err(why) => {
                tracing::warn!(group, %why, "the keys of damaged records cannot be found by another copy yet")
            }
        }
        let is_healed = found == Ok(0);
        // Meanwhile the other node did nothing for the search.
        let began = began + waited;
        node.healing.end_search(group, is_healed.then_some(covers), (began, node.runtime().now()));
    }
}

impl Node {
    /// Returns the damage of this node that is not healed yet.
    pub(super) fn own_damage(&self) -> NodeDamage {
        let (groups, keys) = (self.healing.damaged_groups(), self.healing.count() as u64);
        let lost_segments = self.meta.lost_segments().len() as u32;
        NodeDamage { groups, keys, lacks_room: groups != 0 && self.lacks_room(), lost_segments }
    }

    /// Returns true if the records of this node exceed the devices that are left, so that none can be written again.
    pub(super) fn lacks_room(&self) -> bool {
        let stats = self.meta.stats();
        stats.live_bytes > stats.user_limit_bytes
    }

    /// Finds the damaged keys of a group. Returns their number once all are known: 0 if all are healed. Adds to `waited` the time in
    /// which too many keys waited to be healed.
    async fn search(&self, group: u8, waited: &mut Duration) -> Result<u64, String> {
        let level = self.table.load().level();
        if level < HEALING_LEVEL {
            return Err(format!(
                "the cluster uses level {level}, which cannot list keys: upgrade all nodes, and call esker cluster upgrade finalize"
            ));
        }
        let replica = self.replica(group).ok_or("there is no such group")?;
        if replica.ready_term().is_ok() {
            self.hand_over_damaged(group).await?;
        }
        let store = self.keys_of(group).map_err(|error| error.to_string())?;
        // Before the position is read, so that the log up to there has each record in these segments.
        let lost = store.lost_segments();
        let status = replica.status();
        let mut why = "no other node with a copy answers".to_owned();
        for voter in status.voters.into_iter().filter(|voter| *voter != self.identity.node) {
            match self.search_by(group, voter, status.applied, waited).await {
                Ok((0, true)) if !store.forget_lost(&lost).await => why = "a delete is under way".into(),
                Ok((keys, true)) => return Ok(keys),
                Ok((_, false)) => why = "the copies that answer are damaged as well".into(),
                Err(failed) => why = failed,
            }
        }
        Err(why)
    }

    /// Finds the damaged keys among those of another copy. Returns their number, and true if that copy has listed all its keys.
    async fn search_by(
        &self,
        group: u8,
        voter: u64,
        applied: u64,
        waited: &mut Duration,
    ) -> Result<(u64, bool), String> {
        let (mut cursor, mut count, mut is_whole) = (0, 0, true);
        let store = self.keys_of(group).map_err(|error| error.to_string())?;
        while !self.has_stopped.load(Ordering::Relaxed) {
            let list = match self.call(voter, PeerRequest::Keys { group, applied, cursor }).await? {
                PeerResponse::Keys(list) => list,
                PeerResponse::Refused(why) => return Err(why),
                other => return Err(format!("node {voter:016x} answered with {other:?}")),
            };
            is_whole &= !list.is_damaged;
            let next = page_after(cursor, list.next)?;
            for key in list.keys {
                if store.is_in_damage(&key).await.map_err(|error| error.to_string())? {
                    count += 1;
                    while !self.healing.add(group, &key) {
                        if self.has_stopped.load(Ordering::Relaxed) {
                            return Err("the node is ending".into());
                        }
                        self.runtime().sleep(FULL).await;
                        *waited += FULL;
                    }
                }
            }
            match next {
                Some(next) => cursor = next,
                None => return Ok((count, is_whole)),
            }
        }
        Err("the node is ending".into())
    }
}

/// Returns the cursor of the page after one. Cursors ascend, because otherwise a list would have no end.
fn page_after(cursor: u64, next: Option<u64>) -> Result<Option<u64>, String> {
    match next {
        Some(next) if next <= cursor => Err(format!("a list of keys goes from cursor {cursor} to {next}")),
        next => Ok(next),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_of_keys_goes_forward() {
        assert_eq!((page_after(0, Some(1)), page_after(7, Some(9))), (Ok(Some(1)), Ok(Some(9))));
        assert_eq!(page_after(u64::MAX, None), Ok(None));
        assert!(page_after(0, Some(0)).is_err() && page_after(9, Some(9)).is_err());
        assert!(page_after(9, Some(7)).is_err());
    }
}
