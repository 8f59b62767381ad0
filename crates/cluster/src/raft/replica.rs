//! One member of a group on one node.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use esker_device::Runtime;
use openraft::errors::{ClientWriteError, RaftError};
use openraft::storage::RaftStateMachine;
use openraft::type_config::async_runtime::watch::WatchReceiver;
use openraft::{Config, Raft, ServerState, SnapshotPolicy};

use super::log_store::GroupStore;
use super::machine::{GroupMachine, MachineShell};
use super::network::{Network, RaftRequest, RaftResponse, Transport};
use super::runtime::enter;
use super::types::{Change, TypeConfig};

/// Times and limits of a replica.
#[derive(Clone, Debug)]
pub struct ReplicaSettings {
    /// Interval between heartbeats of the leader.
    pub heartbeat: Duration,
    /// Range of the time after which a follower that hears of no leader stands for election, in addition to the lease of
    /// the last leader, which is the upper bound.
    pub election: (Duration, Duration),
    /// Maximum number of entries in one request to a follower.
    pub entries_a_request: u64,
}

impl Default for ReplicaSettings {
    fn default() -> ReplicaSettings {
        let election = (Duration::from_millis(500), Duration::from_millis(700));
        ReplicaSettings { heartbeat: Duration::from_millis(100), election, entries_a_request: 300 }
    }
}

/// A replica of a group. Clones are handles to the same one.
pub struct Replica<M: GroupMachine> {
    raft: Raft<TypeConfig, MachineShell<M>>,
    runtime: Arc<dyn Runtime>,
    machine: MachineShell<M>,
}

impl<M: GroupMachine> Clone for Replica<M> {
    fn clone(&self) -> Replica<M> {
        Replica { raft: self.raft.clone(), runtime: self.runtime.clone(), machine: self.machine.clone() }
    }
}

/// The end of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// Durable on a majority, and applied here as this entry with this result.
    Applied(u64, Bytes),
    /// Certainly not done: another node leads the group, if its number is known.
    NotLeader(Option<u64>),
    /// It may be done now, or later, or never.
    Uncertain(String),
}

/// State of a replica at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// Term of the last election that it knows of.
    pub term: u64,
    /// True if it leads the group.
    pub is_leader: bool,
    /// Node of the leader that it knows of.
    pub leader: Option<u64>,
    /// Index of the last entry in its log.
    pub last_index: Option<u64>,
    /// Index of the last applied entry.
    pub applied: Option<u64>,
    /// The error that stopped it.
    pub stopped: Option<String>,
}

/// Returns openraft's configuration.
///
/// # Errors
/// `InvalidInput` if the settings contradict each other.
pub(super) fn config(settings: &ReplicaSettings) -> io::Result<Config> {
    let ms = |duration: Duration| duration.as_millis() as u64;
    let config = Config {
        cluster_name: "esker".into(),
        heartbeat_interval: ms(settings.heartbeat),
        election_timeout_min: ms(settings.election.0),
        election_timeout_max: ms(settings.election.1),
        max_payload_entries: settings.entries_a_request,
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: u64::MAX,
        enable_pre_vote: Some(true),
        // A restarted leader would not know which of its entries were acknowledged.
        enable_leader_restore: Some(false),
        allow_log_reversion: Some(false),
        ..Config::default()
    };
    config.validate().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

/// Handles a request of another replica.
///
/// # Errors
/// If the replica has stopped.
pub(super) async fn handle<SM>(
    raft: &Raft<TypeConfig, SM>,
    request: RaftRequest,
) -> Result<RaftResponse, String>
where
    SM: RaftStateMachine<TypeConfig, SnapshotData = Bytes>,
{
    let failed = |error: RaftError<TypeConfig>| error.to_string();
    match request {
        RaftRequest::Append(request) => {
            raft.append_entries(request).await.map(RaftResponse::Append).map_err(failed)
        }
        RaftRequest::Vote(request) => raft.vote(request).await.map(RaftResponse::Vote).map_err(failed),
        RaftRequest::PreVote(request) => {
            raft.pre_vote(request).await.map(RaftResponse::PreVote).map_err(failed)
        }
        RaftRequest::Snapshot(vote, snapshot) => {
            let installed = raft.install_full_snapshot(vote, snapshot).await;
            installed.map(RaftResponse::Snapshot).map_err(|error| error.to_string())
        }
        RaftRequest::Transfer(request) => {
            let handled = raft.handle_transfer_leader(request).await;
            handled.map(RaftResponse::Transfer).map_err(|error| error.to_string())
        }
    }
}

impl<M: GroupMachine> Replica<M> {
    /// Starts the replica of a node with the log that it has, if any.
    ///
    /// # Errors
    /// `InvalidInput` if the settings contradict each other; otherwise the error of the log.
    pub async fn start(
        node: u64,
        settings: &ReplicaSettings,
        log: GroupStore,
        machine: MachineShell<M>,
        transport: Arc<dyn Transport>,
        runtime: Arc<dyn Runtime>,
    ) -> io::Result<Replica<M>> {
        let config = config(settings)?;
        let started = Raft::new(node, Arc::new(config), Network(transport), log, machine.clone());
        let raft = enter(runtime.clone(), started).await.map_err(io::Error::other)?;
        Ok(Replica { raft, runtime, machine })
    }

    /// Founds the group with these nodes. Called once in the life of a group, on one of them.
    ///
    /// # Errors
    /// If the replica has a log already.
    pub async fn found(&self, nodes: BTreeSet<u64>) -> io::Result<()> {
        let nodes: std::collections::BTreeMap<u64, ()> = nodes.into_iter().map(|node| (node, ())).collect();
        enter(self.runtime.clone(), self.raft.initialize(nodes)).await.map_err(io::Error::other)
    }

    /// Replicates a change, and waits until it is applied here.
    pub async fn write(&self, change: Bytes) -> WriteOutcome {
        match enter(self.runtime.clone(), self.raft.client_write(Change(change))).await {
            Ok(response) => WriteOutcome::Applied(response.log_id.index, response.data.0),
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(forward))) => {
                WriteOutcome::NotLeader(forward.leader_id)
            }
            Err(error) => WriteOutcome::Uncertain(error.to_string()),
        }
    }

    /// Handles a request of another replica.
    ///
    /// # Errors
    /// If the replica has stopped.
    pub async fn handle(&self, request: RaftRequest) -> Result<RaftResponse, String> {
        enter(self.runtime.clone(), handle(&self.raft, request)).await
    }

    /// Returns the state at this moment.
    pub fn status(&self) -> ReplicaStatus {
        let metrics = self.raft.metrics().borrow_watched().clone();
        ReplicaStatus {
            term: metrics.current_term,
            is_leader: metrics.state == ServerState::Leader,
            leader: metrics.current_leader,
            last_index: metrics.last_log_index,
            applied: metrics.last_applied.map(|id| id.index),
            stopped: metrics.running_state.err().map(|fatal| fatal.to_string()),
        }
    }

    /// Reads the machine, together with the index of the last applied entry. Not linearizable: another node may lead.
    pub fn read<T>(&self, look: impl FnOnce(&M, Option<u64>) -> T) -> T {
        self.machine.read(look)
    }

    /// Stops the replica. Its log stays.
    pub async fn stop(&self) {
        let _stopped_already = enter(self.runtime.clone(), self.raft.shutdown()).await;
    }
}
