//! A running member of a group, on a keyspace that is whole.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use esker_device::Runtime;
use esker_seeded_bugs::{Bug, planted};
use openraft::errors::{ClientWriteError, LinearizableReadError, RaftError};
use openraft::raft::ReadPolicy;
use openraft::type_config::async_runtime::watch::WatchReceiver;
use openraft::{ChangeMembers, Raft, RaftMetrics, ServerState};

use super::codec::{Base, decode_proof, encode_log_id};
use super::error::{GroupError, NotReady};
use super::keyspace::{Applied, Keyspace};
use super::log_store::GroupStore;
use super::member::{Brief, Machine, Role, WriteEnd};
use super::network::{Network, RaftRequest, RaftResponse, Transport};
use super::replica::{ReplicaSettings, config, handle};
use super::runtime::enter;
use super::types::{Change, LeaderId, Reply, TypeConfig, Vote};

type Metrics = RaftMetrics<TypeConfig>;

/// A running member of a group.
pub(crate) struct Instance {
    raft: Raft<TypeConfig, Keyspace>,
    keyspace: Keyspace,
    runtime: Arc<dyn Runtime>,
    node: u64,
    /// Number among the members that the node started for the group.
    number: u64,
}

/// The state of a member, with all that metrics show.
pub(crate) struct Observed {
    pub(crate) brief: Brief,
    pub(crate) voters: Vec<u64>,
    pub(crate) learners: Vec<u64>,
    pub(crate) is_settled: bool,
    pub(crate) last_index: u64,
    pub(crate) purged: u64,
    /// Index up to which openraft may purge.
    pub(crate) built: u64,
    pub(crate) matched: Vec<(u64, u64)>,
    pub(crate) stopped: Option<String>,
}

/// Returns true if the log notes that a snapshot is not complete.
pub(crate) fn is_installing(store: &GroupStore) -> io::Result<bool> {
    Ok(store.base()? == Base::Installing && !planted(Bug::PartTakenForKeyspace))
}

fn role(metrics: &Metrics) -> Role {
    match metrics.state {
        ServerState::Leader => Role::Leader,
        ServerState::Follower => Role::Follower,
        ServerState::Candidate => Role::Candidate,
        ServerState::Learner => Role::Learner,
        ServerState::Shutdown => Role::Stopped,
    }
}

fn brief(metrics: &Metrics, node: u64) -> Brief {
    let is_leader = metrics.state == ServerState::Leader && metrics.running_state.is_ok();
    let leader = LeaderId { term: metrics.current_term, node_id: node };
    let applied = metrics.last_applied.as_ref();
    let mut voters = metrics.membership_config.membership().voter_ids();
    Brief {
        role: role(metrics),
        term: metrics.current_term,
        leader: metrics.current_leader,
        // The term begins with a blank entry of this leader.
        is_ready: is_leader && applied.is_some_and(|id| id.leader_id == leader),
        is_alone: voters.next() == Some(node) && voters.next().is_none(),
        acked: metrics.last_quorum_acked.map(|at| at.since_start()),
    }
}

impl Instance {
    /// Starts the member on its log and keyspace. It stands for no election until [`allow_elections`](Self::allow_elections).
    /// `number`: among the members that the node started for the group.
    pub(crate) async fn start(
        (node, number): (u64, u64),
        settings: &ReplicaSettings,
        store: GroupStore,
        machine: Arc<dyn Machine>,
        transport: Arc<dyn Transport>,
        runtime: Arc<dyn Runtime>,
    ) -> io::Result<Instance> {
        let keyspace = Keyspace::open(machine, store.clone())?;
        let mut config = config(settings)?;
        config.enable_elect = false;
        let started = Raft::new(node, Arc::new(config), Network(transport), store, keyspace.clone());
        let raft = enter(runtime.clone(), started).await.map_err(io::Error::other)?;
        Ok(Instance { raft, keyspace, runtime, node, number })
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn allow_elections(&self) {
        self.raft.runtime_config().elect(true);
    }

    pub(crate) async fn found(&self) -> Result<(), GroupError> {
        let nodes = std::collections::BTreeMap::from([(self.node, ())]);
        let founded = enter(self.runtime.clone(), self.raft.initialize(nodes)).await;
        founded.map_err(|error| GroupError::Refused(format!("the group cannot be founded: {error}")))
    }

    /// Appends an entry, if this node is the leader of `term` still. `on_commit` gets its index; `on_end` its outcome.
    pub(crate) async fn write(
        &self,
        term: u64,
        entry: Bytes,
        on_commit: impl FnOnce(u64) + Send + 'static,
        on_end: impl FnOnce(WriteEnd) + Send + 'static,
    ) {
        let end = |result: Option<Result<openraft::raft::ClientWriteResponse<TypeConfig>, _>>| match result {
            None => WriteEnd::Uncertain("the replica has stopped".into()),
            Some(Ok(response)) => WriteEnd::Applied(response.data.0),
            Some(Err(ClientWriteError::ForwardToLeader(forward))) => {
                WriteEnd::Refused(NotReady { leader: forward.leader_id })
            }
            Some(Err(ClientWriteError::LogEntryDiscarded(forward))) if planted(Bug::DiscardedIsNotDone) => {
                WriteEnd::Refused(NotReady { leader: forward.leader_id })
            }
            Some(Err(error)) => WriteEnd::Uncertain(error.to_string()),
        };
        let reply = Reply::new(on_commit, move |result| on_end(end(result)));
        let write = self.raft.write(Change(entry)).responder(reply);
        let write = write.with_leader(LeaderId { term, node_id: self.node });
        // If the replica has stopped, the reply was dropped, which ended the write.
        let _stopped = enter(self.runtime.clone(), write.into_future()).await;
    }

    pub(crate) async fn confirm(&self) -> Result<(), GroupError> {
        let confirmed =
            enter(self.runtime.clone(), self.raft.ensure_linearizable(ReadPolicy::ReadIndex)).await;
        confirmed.map(drop).map_err(|error| match error {
            RaftError::APIError(LinearizableReadError::ForwardToLeader(forward)) => {
                GroupError::NotReady(NotReady { leader: forward.leader_id })
            }
            RaftError::APIError(error) => GroupError::NoMajority(error.to_string()),
            RaftError::Fatal(error) => GroupError::Refused(format!("the replica has stopped: {error}")),
        })
    }

    /// Returns the index of the last entry that this member knows to be committed, at a moment after the call.
    pub(crate) async fn committed(&self) -> Result<u64, GroupError> {
        let read = self.raft.with_raft_state(|state| state.local_committed().map_or(0, |id| id.index));
        let committed = enter(self.runtime.clone(), read).await;
        let committed =
            committed.map_err(|error| GroupError::Refused(format!("the replica has stopped: {error}")))?;
        // The machine is ahead of the state for a moment, and entries that it has applied may be acknowledged.
        Ok(committed.max(self.applied().index))
    }

    pub(crate) async fn handle(&self, request: RaftRequest) -> Result<RaftResponse, String> {
        enter(self.runtime.clone(), handle(&self.raft, request)).await
    }

    async fn change(&self, changes: ChangeMembers<u64, ()>, retain: bool) -> Result<(), GroupError> {
        let changed = enter(self.runtime.clone(), self.raft.change_membership(changes, retain)).await;
        changed.map(drop).map_err(|error| match error {
            RaftError::APIError(ClientWriteError::ForwardToLeader(forward)) => {
                GroupError::NotReady(NotReady { leader: forward.leader_id })
            }
            RaftError::APIError(ClientWriteError::LogEntryDiscarded(_)) | RaftError::Fatal(_) => {
                GroupError::Uncertain(error.to_string())
            }
            RaftError::APIError(error) => GroupError::Refused(error.to_string()),
        })
    }

    pub(crate) async fn add_learner(&self, node: u64) -> Result<(), GroupError> {
        self.change(ChangeMembers::AddNodes([(node, ())].into()), true).await
    }

    pub(crate) async fn remove_learner(&self, node: u64) -> Result<(), GroupError> {
        self.change(ChangeMembers::RemoveNodes([node].into()), true).await
    }

    pub(crate) async fn change_voters(&self, voters: BTreeSet<u64>) -> Result<(), GroupError> {
        self.change(ChangeMembers::ReplaceAllVoters(voters), false).await
    }

    pub(crate) async fn ask_to_lead(&self, node: u64) {
        let _stopped = enter(self.runtime.clone(), self.raft.trigger().transfer_leader(node)).await;
    }

    /// Lets the log of a follower begin anew once, because it gets a snapshot.
    pub(crate) async fn allow_reversion(&self, node: u64) {
        let _refused = enter(self.runtime.clone(), self.raft.trigger().allow_next_revert(&node, true)).await;
    }

    /// Checks that a snapshot with this proof is of a leader that is not deposed, as far as this node knows.
    ///
    /// # Errors
    /// If it is not, or the replica has stopped.
    pub(crate) async fn check_leader(&self, proof: &[u8]) -> Result<(), String> {
        let (vote, id) = decode_proof(proof).map_err(|error| error.to_string())?;
        let checked = self.raft.with_raft_state(move |state| {
            let held: &Vote = state.vote_ref();
            let is_new = !planted(Bug::HeldEntriesVoided) || Some(&id) > state.local_committed();
            vote.is_committed() && vote >= *held && is_new
        });
        match enter(self.runtime.clone(), checked).await {
            Ok(true) => Ok(()),
            Ok(false) => Err("the snapshot is of a leader that is deposed".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Returns the short state, with no allocation.
    pub(crate) fn brief(&self) -> Brief {
        brief(&self.raft.metrics().borrow_watched(), self.node)
    }

    pub(crate) fn observe(&self) -> Observed {
        let receiver = self.raft.metrics();
        let metrics = receiver.borrow_watched();
        let membership = metrics.membership_config.membership();
        let matched = metrics.replication.iter().flatten();
        Observed {
            brief: brief(&metrics, self.node),
            voters: membership.voter_ids().collect(),
            learners: membership.learner_ids().collect(),
            is_settled: membership.get_joint_config().len() < 2
                && *metrics.membership_config.log_id() <= metrics.local_committed,
            last_index: metrics.last_log_index.unwrap_or(0),
            purged: metrics.purged.map_or(0, |id| id.index),
            built: metrics.snapshot.map_or(0, |id| id.index),
            matched: matched
                .filter(|(node, _)| **node != self.node)
                .map(|(node, id)| (*node, id.as_ref().map_or(0, |id| id.index)))
                .collect(),
            stopped: metrics.running_state.as_ref().err().map(ToString::to_string),
        }
    }

    /// Returns all members and the id of the entry with them, as bytes of the log; `None` while a change is in progress.
    pub(crate) fn settled_members(&self) -> Option<(Vec<u64>, Bytes)> {
        let metrics = self.raft.metrics().borrow_watched().clone();
        let (membership, id) = (metrics.membership_config.membership(), metrics.membership_config.log_id());
        let is_settled = membership.get_joint_config().len() < 2 && *id <= metrics.local_committed;
        let id = id.as_ref().filter(|_| is_settled)?;
        let nodes = membership.voter_ids().chain(membership.learner_ids()).collect();
        Some((nodes, encode_log_id(id).into()))
    }

    pub(crate) fn applied(&self) -> Applied {
        self.keyspace.figures()
    }

    /// Calls `look` with the state now and after each change, until it returns a result or the member has stopped.
    pub(crate) async fn wait<T>(&self, mut look: impl FnMut(&Instance) -> Option<T>) -> Option<T> {
        let mut metrics = self.raft.metrics();
        loop {
            // Marks the state as seen before it is looked at.
            drop(metrics.borrow_and_update());
            if let Some(found) = look(self) {
                return Some(found);
            }
            if enter(self.runtime.clone(), metrics.changed()).await.is_err() {
                return None;
            }
        }
    }

    /// Advances the floor, and lets openraft purge up to there.
    pub(crate) async fn advance_floor(&self) -> io::Result<()> {
        self.keyspace.advance_floor().await?;
        let _stopped = enter(self.runtime.clone(), self.raft.trigger().snapshot()).await;
        Ok(())
    }

    /// Purges the log up to an index that is not above the floor.
    pub(crate) async fn purge(&self, through: u64) {
        let _stopped = enter(self.runtime.clone(), self.raft.trigger().purge_log(through)).await;
    }

    /// Stops the member. Returns once nothing is applied any more.
    pub(crate) async fn stop(&self) {
        self.keyspace.close().await;
        let _stopped_already = enter(self.runtime.clone(), self.raft.shutdown()).await;
    }
}
