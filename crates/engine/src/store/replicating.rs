//! Makes a store a member of a cluster. See `docs/decisions/0051-groups.md`.

use std::sync::Arc;

use crate::background::expire_groups;
use crate::base::damage_watch::DamageWatch;
use crate::base::error::{Error, Result};
use crate::base::option_name::OptionName;
use crate::base::replicated::Replicator;
use crate::segments::unidentified::LostSegments;
use crate::store::handle::Store;
use crate::write::apply::Applier;

impl Store {
    /// Registers the receiver of damaged records, for the life of the store. A later one is ignored.
    pub fn watch_damage(&self, watch: Arc<dyn DamageWatch>) {
        let _is_first = self.space.damage_watch.set(watch);
    }

    /// Returns true if the record of a key is, or may be, lost in damage that did not tell its key: so that a cluster finds such
    /// keys by those of another copy.
    ///
    /// # Errors
    /// `Closed` after a close.
    pub async fn is_in_damage(&self, key: &[u8]) -> Result<bool> {
        self.space.health.check_open()?;
        let database = self.catalog.database_of(self.database, key);
        self.catalog.is_in_damage(key, &self.catalog.hash_in(database, key)).await
    }

    /// Returns the segments that are known to be lost as a whole, for [`forget_lost`](Self::forget_lost).
    pub fn lost_segments(&self) -> LostSegments {
        self.space.lost_segments()
    }

    /// Forgets the records of this database in lost segments, after [`is_in_damage`](Self::is_in_damage) has returned false for
    /// each key that the other copies have. Returns false if an index entry still leads there: then a write is under way.
    pub async fn forget_lost(&self, lost: &LostSegments) -> bool {
        self.catalog.forget_lost(self.catalog.keyspace(self.database), lost).await
    }

    /// Makes this a replicated store: from now on, writes are proposed to `replicator`, and take effect when the returned
    /// [`Applier`] applies them. It is called once, before the store serves anything.
    ///
    /// Keys of database 0 are spread over the groups: each belongs to the keyspace [`Replicator::group_of`] names. A handle
    /// of database *n* ≥ 1 is a direct view of group *n*, whose scans also return records whose time has passed. Every write
    /// is as durable as [`Durability::Sync`](crate::Durability::Sync), whatever its options say, and nothing expires by the
    /// clock of one node: the leader proposes to delete expired keys.
    ///
    /// # Errors
    /// `Invalid`, naming the option, if the store evicts keys when it is full, coalesces puts, or has no group log; also if
    /// it has keys that belong to no group, or is replicated already.
    pub fn replicate(&self, replicator: Arc<dyn Replicator>) -> Result<Applier> {
        if self.writer.group_log.is_none() {
            return Err(Error::option(
                OptionName::GroupLog,
                "is not set, but a replicated store needs a log; give it at least 4 segments",
            ));
        }
        check_when_full(self.when_full().evicts())?;
        if self.space.coalesces() {
            return Err(Error::option(
                OptionName::CoalesceFor,
                "is set, but a replicated store cannot keep its writes in memory; set it to 0",
            ));
        }
        self.space.health.check_writable()?;
        self.catalog.replicate(replicator)?;
        self.writer.tasks.spawn("expire groups", expire_groups::run(self.writer.clone()));
        Ok(Applier::new(&self.writer))
    }
}

/// Refuses a policy that evicts keys, because each node would evict others.
pub(super) fn check_when_full(evicts: bool) -> Result<()> {
    if evicts {
        return Err(Error::option(
            OptionName::WhenFull,
            "evicts keys, but the nodes of a cluster would evict different ones; set it to refuse",
        ));
    }
    Ok(())
}

#[cfg(test)]
#[path = "replicating_bench.rs"]
mod bench;
#[cfg(test)]
#[path = "replicating_reads_tests.rs"]
mod reads_tests;
#[cfg(test)]
#[path = "replicating_tests.rs"]
mod tests;
