//! Writes of a replicated store: they are proposed to the cluster instead of being appended to a lane. See
//! `docs/decisions/0051-groups.md`.
//!
//! 1. The keys are reserved, or a turn of plain puts is taken.
//! 2. The term is read then, before any existing record is read. If another leader wrote since, the term is another one, and
//!    the cluster refuses the proposal.
//! 3. The final records are proposed. The reservation belongs to the proposal, and ends when it is applied here or void.

use std::sync::Arc;

use esker_index::KeyHash;
use esker_seeded_bugs::{Bug, planted};
use futures_util::future::{BoxFuture, join_all};

use crate::base::cluster_error::ClusterError;
use crate::base::error::{Error, Result};
use crate::base::replicated::{Proposal, Replicator, StoredChange, StoredValue};
use crate::catalog::Catalog;
use crate::catalog::routing::data_groups;
use crate::write::Writer;
use crate::write::options::Condition;
use crate::write::prepared::Prepared;
use crate::write::put::Put;
use crate::write::reserve::Reservation;

/// The version of a write, once it is applied.
type Proposed = BoxFuture<'static, Result<u64>>;

/// Reservation of the keys of a proposal.
struct Held {
    catalog: Arc<Catalog>,
    reservation: Reservation,
}

impl Drop for Held {
    fn drop(&mut self) {
        let ephemeral = Reservation::ephemeral_of(Some(&self.reservation));
        if !ephemeral.is_empty() {
            self.catalog.publish(&[], ephemeral);
        }
    }
}

impl From<&Prepared> for StoredChange {
    fn from(record: &Prepared) -> StoredChange {
        let Prepared { kind, key, value, compressed, expires_at_ms, origin, .. } = record;
        let value =
            || StoredValue { bytes: value.clone(), compressed: *compressed, expires_at_ms: *expires_at_ms };
        let is_put = *kind == esker_log::Kind::Put;
        StoredChange { key: key.clone(), value: is_put.then(value), origin: *origin }
    }
}

impl Writer {
    /// Step 2. `hashes`: digests of the reserved keys.
    ///
    /// # Errors
    /// In a replicated store: the keys are in several groups, or this node does not lead their group.
    pub(super) fn begin_term<'h>(
        &self,
        reservation: &mut Reservation,
        mut hashes: impl Iterator<Item = &'h KeyHash>,
    ) -> Result<()> {
        let Some(replicator) = self.catalog.replicator() else { return Ok(()) };
        let Some(first) = hashes.next() else { return Ok(()) };
        if hashes.any(|hash| hash.keyspace() != first.keyspace()) {
            return Err(Error::Cluster(ClusterError::SeveralGroups));
        }
        reservation.term = Some(replicator.term(first.keyspace().number())?);
        Ok(())
    }

    /// Proposes records as one command, and waits until it is applied. Returns the version of the last record.
    pub(super) async fn propose(
        &self,
        replicator: &Arc<dyn Replicator>,
        records: &mut [Prepared],
        reservation: Option<Reservation>,
    ) -> Result<u64> {
        let reservation = match reservation {
            Some(reservation) => reservation,
            None => self.turn(records).await?,
        };
        self.begin_proposal(replicator, records, reservation)?.await
    }

    /// Step 3.
    fn begin_proposal(
        &self,
        replicator: &Arc<dyn Replicator>,
        records: &[Prepared],
        reservation: Reservation,
    ) -> Result<Proposed> {
        self.space.health.check_writable()?;
        let (Some(first), Some(term)) = (records.first(), reservation.term) else {
            return Err(Error::invalid("a write without keys has no group"));
        };
        let keyspace = first.hash.keyspace();
        if records.iter().any(|record| record.hash.keyspace() != keyspace) {
            return Err(Error::Cluster(ClusterError::SeveralGroups));
        }
        if records.len() > 1 {
            // Again, because an update adds deletes of expired keys. Every node must be able to apply the command.
            self.check_batch_bytes(records)?;
        }
        let group = keyspace.number();
        let term = if planted(Bug::TermReadAtPropose) { replicator.term(group)? } else { term };
        let changes = records.iter().map(StoredChange::from).collect();
        let held: Box<dyn Send> = match planted(Bug::ReservationEndsAtPropose) {
            false => Box::new(Held { catalog: self.catalog.clone(), reservation }),
            true => Box::new(()),
        };
        Ok(replicator.propose(Proposal { group, term, changes, held }))
    }

    /// Proposes unrelated puts, each as a command of its own, and waits for all of them. Puts of one key keep their order.
    pub(super) async fn propose_many(
        &self,
        replicator: &Arc<dyn Replicator>,
        database: u8,
        puts: Vec<Put>,
        origin: u64,
    ) -> Vec<Result<u64>> {
        let mut proposed = Vec::with_capacity(puts.len());
        for put in puts {
            proposed.push(self.propose_put(replicator, database, put, origin).await);
        }
        join_all(proposed.into_iter().map(async |proposed| proposed?.await)).await
    }

    async fn propose_put(
        &self,
        replicator: &Arc<dyn Replicator>,
        database: u8,
        put: Put,
        origin: u64,
    ) -> Result<Proposed> {
        let mut put = self.admit(database, put, origin).await?;
        let put = std::slice::from_mut(&mut put);
        let turn = self.turn(put).await?;
        self.begin_proposal(replicator, put, turn)
    }

    /// Refuses conditions on versions in a replicated store, because nodes give one record different versions.
    pub(super) fn check_condition_kind(&self, condition: Condition) -> Result<()> {
        if matches!(condition, Condition::IfVersion(_)) && self.catalog.replicator().is_some() {
            return Err(Error::invalid(
                "a write of a replicated store cannot have a condition on a version, because versions differ between \
                 nodes; compare values in an update",
            ));
        }
        Ok(())
    }

    /// Deletes all keys of the groups that this node leads.
    pub(crate) async fn clear_groups(&self, database: u8) -> Result<()> {
        let Some(replicator) = self.catalog.replicator() else { return Ok(()) };
        if database != 0 {
            return Err(Error::invalid(format!(
                "database {database} is the direct view of a group, and cannot be cleared; clear database 0"
            )));
        }
        // A write that was evaluated before a clear must not follow it in the log. This waits until such writes are applied.
        // The clears hold it, because one that is answered as uncertain may be applied later.
        let all = Arc::new(self.lane.reserve_all().await?);
        let (mut refused, mut cleared) = (None, Vec::new());
        for group in data_groups().map(|keyspace| keyspace.number()) {
            match replicator.term(group) {
                Ok(_) => cleared.push(replicator.clear(group, Box::new(all.clone()))),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        drop(all);
        match refused {
            Some(error) if cleared.is_empty() => Err(error),
            _ => join_all(cleared).await.into_iter().collect(),
        }
    }
}
