//! One replica of a replicated group: a keyspace of the store, kept equal on several nodes. See
//! `docs/decisions/0051-groups.md`.
//!
//! 1. [`Group::propose`] queues a write. The proposer packs waiting writes into an entry of the group's log.
//! 2. Once the entry is durable on a majority, each replica applies it with [`Apply`], in order. The leader answers then.
//! 3. The floor task notes up to where applied entries are durable without the log, and purges the log up to there.
//! 4. A follower that needs purged entries gets the whole keyspace.

mod error;
mod parts;
mod status;

use std::collections::BTreeSet;
use std::sync::Arc;

use esker_engine::Proposal;
use futures_util::future::BoxFuture;

pub use self::error::{GroupError, NotReady};
pub use self::parts::{Apply, GroupParts, GroupSettings, Readiness};
pub use self::status::{GroupCounters, GroupStatus, Role};

use crate::peers::{PeerRequest, PeerResponse};

/// A replica of a group on this node.
pub struct Group {
    parts: GroupParts,
}

impl Group {
    /// Starts the replica with the log and the keyspace that it has, if any. Without a log it waits for a leader that
    /// adds it, or for [`found`](Self::found).
    ///
    /// # Errors
    /// `Io` or `Corrupt` if the log cannot be read; `Invalid` if the settings contradict each other.
    pub async fn start(parts: GroupParts) -> esker_engine::Result<Arc<Group>> {
        Ok(Arc::new(Group { parts }))
    }

    /// Returns the number of the group.
    pub fn number(&self) -> u8 {
        self.parts.number
    }

    /// Founds the group with this node as its only voter. Called once in the life of a group, on one node.
    ///
    /// # Errors
    /// If the replica has a log already.
    pub async fn found(&self) -> Result<(), GroupError> {
        unimplemented!()
    }

    /// Stops the replica. Waiting proposals end as uncertain. The log and the keyspace stay.
    pub async fn stop(&self) {
        unimplemented!()
    }

    /// Returns the term in which this node leads the group and has applied every earlier entry. Reads atomics only.
    ///
    /// # Errors
    /// `NotReady` with the leader that is known.
    pub fn ready_term(&self) -> Result<u64, NotReady> {
        unimplemented!()
    }

    /// Replicates a write, and returns its version once it is durable on a majority and applied here. It is queued by the
    /// call: the outcome does not depend on whether the future is polled or dropped.
    ///
    /// # Errors
    /// `NotLeader` or `NotReady` if it is certainly not done, otherwise `Uncertain`.
    pub fn propose(&self, proposal: Proposal) -> BoxFuture<'static, Result<u64, GroupError>> {
        let _ = proposal;
        unimplemented!()
    }

    /// Replicates the deletion of all keys.
    ///
    /// # Errors
    /// As [`propose`](Self::propose).
    pub fn clear(&self) -> BoxFuture<'static, Result<(), GroupError>> {
        unimplemented!()
    }

    /// Returns true if no other node can lead the group at this moment. A value that was read before the call was current.
    pub fn has_lease(&self) -> bool {
        unimplemented!()
    }

    /// Confirms with a majority that this node leads the group at a moment after the call. Calls that wait share a round.
    ///
    /// # Errors
    /// `NotLeader`, `NotReady` or `NoMajority`.
    pub fn confirm(&self) -> BoxFuture<'static, Result<(), GroupError>> {
        unimplemented!()
    }

    /// Handles a request of another node: `Raft`, `SnapshotPart` or `Transfer` of this group. Others are refused.
    pub fn handle(&self, from: u64, request: PeerRequest) -> BoxFuture<'static, PeerResponse> {
        let _ = (from, request);
        unimplemented!()
    }

    /// Returns the state at this moment.
    pub fn status(&self) -> GroupStatus {
        unimplemented!()
    }

    /// Adds a node that receives the log and does not vote. Returns once the change is committed.
    ///
    /// # Errors
    /// `NotLeader`, or `Refused` with the reason, such as another change in progress.
    pub async fn add_learner(&self, node: u64) -> Result<(), GroupError> {
        let _ = node;
        unimplemented!()
    }

    /// Makes these nodes the voters. New ones should be learners that have caught up. Nodes that no longer vote are removed.
    /// Returns once the change is committed.
    ///
    /// # Errors
    /// As [`add_learner`](Self::add_learner).
    pub async fn change_voters(&self, voters: BTreeSet<u64>) -> Result<(), GroupError> {
        let _ = voters;
        unimplemented!()
    }

    /// Removes a learner. Returns once the change is committed.
    ///
    /// # Errors
    /// As [`add_learner`](Self::add_learner).
    pub async fn remove_learner(&self, node: u64) -> Result<(), GroupError> {
        let _ = node;
        unimplemented!()
    }

    /// Hands the leadership to a node. The lease ends before the node is asked, and this replica proposes nothing more in
    /// its term. Returns once another node leads.
    ///
    /// # Errors
    /// `NotLeader`; `Refused` if the node is no voter or lags behind, or does not lead within a few elections.
    pub async fn transfer(&self, node: u64) -> Result<(), GroupError> {
        let _ = node;
        unimplemented!()
    }

    /// Registers a receiver of changes of readiness, for the life of the replica. It is called once with the current state.
    pub fn watch(&self, watch: Arc<dyn Readiness>) {
        let _ = watch;
        unimplemented!()
    }

    /// Returns the number of other voters on which everything that was proposed here before the call is durable. Waits
    /// until there are `wanted`, at most all, or until this node no longer leads.
    pub fn replicated(&self, wanted: usize) -> BoxFuture<'static, usize> {
        let _ = wanted;
        unimplemented!()
    }
}
