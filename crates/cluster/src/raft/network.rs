//! Requests between the replicas of a group, for openraft. How they travel is up to a [`Transport`].

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use openraft::EntryPayload;
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::storage::Snapshot;

use super::codec::{decode_log_id, encode_proof};
use super::types::{Change, Entry, LeaderId, LogId, TypeConfig, Vote};

type Shot = Snapshot<LeaderId, u64, (), Bytes>;

/// A request to a replica.
#[derive(Clone, Debug)]
pub enum RaftRequest {
    /// Entries of the leader's log, or a heartbeat.
    Append(AppendEntriesRequest<TypeConfig>),
    /// Asks for a vote.
    Vote(VoteRequest<TypeConfig>),
    /// Asks whether a vote would be granted.
    PreVote(VoteRequest<TypeConfig>),
    /// The whole state.
    Snapshot(Vote, Shot),
    /// Asks a follower to become the leader.
    Transfer(TransferLeaderRequest<TypeConfig>),
}

impl RaftRequest {
    /// Returns the number of entries that the request adds to the log, and their bytes.
    pub(crate) fn entries(&self) -> (usize, usize) {
        let RaftRequest::Append(request) = self else { return (0, 0) };
        (request.entries.len(), request.entries.iter().map(entry_bytes).sum())
    }

    /// Cuts off entries beyond a number of bytes; at least one stays. Returns the end of the others if some were cut off.
    pub(crate) fn shorten(&mut self, bytes_max: usize) -> Option<Cut> {
        let RaftRequest::Append(request) = self else { return None };
        shorten(request, bytes_max).map(Cut)
    }

    /// Returns true if the request may add to the log: entries, or a heartbeat, whose answer says up to where the log is equal.
    pub(crate) fn is_append(&self) -> bool {
        matches!(self, RaftRequest::Append(_))
    }

    /// Returns the term and the node of the leader that sends entries or a heartbeat; `None` for another request.
    pub(crate) fn appending_leader(&self) -> Option<(u64, u64)> {
        let RaftRequest::Append(request) = self else { return None };
        Some((request.vote.leader_id.term, request.vote.leader_id.node_id))
    }

    /// Returns true if it is the request of a candidate whose log ends before an entry with this id, as bytes of the log.
    pub(crate) fn is_of_candidate_before(&self, id: &[u8]) -> bool {
        let (RaftRequest::Vote(request) | RaftRequest::PreVote(request)) = self else { return false };
        decode_log_id(id).is_ok_and(|id| request.last_log_id < Some(id))
    }

    /// Returns the proof that each part of a snapshot carries, and the index up to which it has applied the log; `None` for
    /// another request.
    pub(crate) fn snapshot_proof(&self) -> Option<(Bytes, u64)> {
        let RaftRequest::Snapshot(vote, snapshot) = self else { return None };
        let id = snapshot.meta.last_log_id.as_ref()?;
        Some((encode_proof(vote, id), id.index))
    }

    /// Returns the answer to a snapshot that was installed.
    pub(crate) fn snapshot_answer(&self) -> Option<RaftResponse> {
        let RaftRequest::Snapshot(vote, _) = self else { return None };
        Some(RaftResponse::Snapshot(SnapshotResponse::new(*vote)))
    }

    /// Returns true if it asks for a vote, or whether one would be granted.
    pub(crate) fn asks_for_vote(&self) -> bool {
        matches!(self, RaftRequest::Vote(_) | RaftRequest::PreVote(_))
    }

    /// Makes a request for a vote subject to the lease of the leader that the voter knows, though the candidate was asked
    /// to lead. A leader that hands over tells all voters so, which ends its lease there.
    pub(crate) fn respect_lease(&mut self) {
        if let RaftRequest::Vote(request) = self {
            request.leadership_transfer = false;
        }
    }
}

/// The answer to a request of the same kind.
#[derive(Clone, Debug)]
pub enum RaftResponse {
    /// To entries.
    Append(AppendEntriesResponse<TypeConfig>),
    /// To a vote.
    Vote(VoteResponse<TypeConfig>),
    /// To a question about a vote.
    PreVote(VoteResponse<TypeConfig>),
    /// To a snapshot.
    Snapshot(SnapshotResponse<TypeConfig>),
    /// To a transfer.
    Transfer(TransferLeaderResponse<TypeConfig>),
}

/// An answer on its way; the text says why there is none.
pub type TransportFuture = BoxFuture<'static, Result<RaftResponse, String>>;

/// The way from one replica to the others of its group. A request may be lost, delayed or delivered twice.
pub trait Transport: Send + Sync + 'static {
    /// Sends a request to the replica on a node. Dropping the future ends the wait for the answer.
    fn call(&self, node: u64, request: RaftRequest) -> TransportFuture;
}

/// Connects the replica of one node to all others.
#[derive(Clone)]
pub(crate) struct Network(pub(crate) Arc<dyn Transport>);

/// The way to one other replica.
pub(crate) struct Peer {
    transport: Arc<dyn Transport>,
    node: u64,
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Peer;

    async fn new_client(&mut self, node: u64, _: &()) -> Peer {
        Peer { transport: self.0.clone(), node }
    }
}

/// Maximum bytes of the entries in one request, unless one alone is longer. Heartbeats of other groups wait behind it.
const APPEND_BYTES_MAX: usize = 4 << 20;

/// The last entry of a request that was cut.
pub(crate) struct Cut(LogId);

impl RaftResponse {
    /// Returns the answer to a request of which only a part was handled.
    pub(crate) fn of_part(self, cut: Option<Cut>) -> RaftResponse {
        match (self, cut) {
            (RaftResponse::Append(AppendEntriesResponse::Success), Some(Cut(last))) => {
                RaftResponse::Append(AppendEntriesResponse::PartialSuccess(Some(last)))
            }
            (answer, _) => answer,
        }
    }
}

fn entry_bytes(entry: &Entry) -> usize {
    if let EntryPayload::Normal(Change(change)) = &entry.payload { change.len() } else { 0 }
}

/// Cuts the request to this many bytes of entries. Returns the id of its last entry if others were cut off.
fn shorten(request: &mut AppendEntriesRequest<TypeConfig>, bytes_max: usize) -> Option<LogId> {
    let mut bytes = 0;
    let fits = request.entries.iter().take_while(|entry| {
        bytes += entry_bytes(entry);
        bytes <= bytes_max
    });
    let fitting = fits.count().max(1);
    if fitting >= request.entries.len() {
        return None;
    }
    request.entries.truncate(fitting);
    request.entries.last().map(|entry| entry.log_id)
}

impl Peer {
    async fn call<T>(
        &self,
        request: RaftRequest,
        answer: impl Fn(RaftResponse) -> Option<T>,
    ) -> Result<T, Unreachable<TypeConfig>> {
        let unreachable = |why: String| Unreachable::from_string(format!("node {}: {why}", self.node));
        let response = self.transport.call(self.node, request).await.map_err(unreachable)?;
        answer(response).ok_or_else(|| unreachable("it answered another kind of request".into()))
    }
}

impl RaftNetworkV2<TypeConfig> for Peer {
    type SnapshotData = Bytes;

    async fn append_entries(
        &mut self,
        mut request: AppendEntriesRequest<TypeConfig>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
        let shortened = shorten(&mut request, APPEND_BYTES_MAX);
        let follows_none = request.prev_log_id.is_none();
        let answer = |response| match response {
            // openraft panics at this one, which no follower sends: nothing is before the first entry.
            RaftResponse::Append(AppendEntriesResponse::Conflict) if follows_none => None,
            RaftResponse::Append(answer) => Some(answer),
            _ => None,
        };
        let answer = self.call(RaftRequest::Append(request), answer).await?;
        Ok(match answer {
            AppendEntriesResponse::Success if shortened.is_some() => {
                AppendEntriesResponse::PartialSuccess(shortened)
            }
            answer => answer,
        })
    }

    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        _: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        let answer = |response| if let RaftResponse::Vote(answer) = response { Some(answer) } else { None };
        Ok(self.call(RaftRequest::Vote(request), answer).await?)
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        _: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        let answer =
            |response| if let RaftResponse::PreVote(answer) = response { Some(answer) } else { None };
        Ok(self.call(RaftRequest::PreVote(request), answer).await?)
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Shot,
        _cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let answer =
            |response| if let RaftResponse::Snapshot(answer) = response { Some(answer) } else { None };
        Ok(self.call(RaftRequest::Snapshot(vote, snapshot), answer).await?)
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        _: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RPCError<TypeConfig>> {
        let answer =
            |response| if let RaftResponse::Transfer(answer) = response { Some(answer) } else { None };
        Ok(self.call(RaftRequest::Transfer(request), answer).await?)
    }
}

#[cfg(test)]
mod tests {
    use openraft::entry::RaftEntry;

    use super::*;

    fn request(lengths: &[usize]) -> AppendEntriesRequest<TypeConfig> {
        let entry = |(index, length): (u64, &usize)| {
            let log_id = LogId::new(LeaderId { term: 1, node_id: 1 }, index);
            Entry::new(log_id, EntryPayload::Normal(Change(vec![0; *length].into())))
        };
        let entries = (1..).zip(lengths).map(entry).collect();
        AppendEntriesRequest {
            vote: Vote::new_committed(1, 1),
            prev_log_id: None,
            entries,
            leader_commit: None,
        }
    }

    #[test]
    fn long_append_is_cut_and_keeps_at_least_one_entry() {
        const MIB: usize = 1 << 20;
        let cases: [(&[usize], usize); 6] = [
            (&[], 0),
            (&[100, 200], 2),
            (&[MIB; 4], 4),
            (&[MIB; 300], 4),
            (&[20 * MIB, 1], 1),
            (&[1, 20 * MIB, 1], 1),
        ];
        for (lengths, fitting) in cases {
            let mut request = request(lengths);
            let last = shorten(&mut request, APPEND_BYTES_MAX);
            assert_eq!(request.entries.len(), fitting, "{lengths:?}");
            let expected = (fitting < lengths.len()).then_some(fitting as u64);
            assert_eq!(last.map(|id| id.index), expected, "{lengths:?}");
        }
    }

    /// Answers appends with a conflict if they have no entries, and otherwise with a success.
    struct Follower;

    impl Transport for Follower {
        fn call(&self, _: u64, request: RaftRequest) -> TransportFuture {
            let RaftRequest::Append(request) = request else { panic!("only appends are sent") };
            let is_conflict = request.entries.is_empty();
            let answer =
                if is_conflict { AppendEntriesResponse::Conflict } else { AppendEntriesResponse::Success };
            Box::pin(std::future::ready(Ok(RaftResponse::Append(answer))))
        }
    }

    #[tokio::test]
    async fn cut_append_succeeds_in_part_and_impossible_conflict_fails() {
        let mut peer = Peer { transport: Arc::new(Follower), node: 2 };
        let option = || RPCOption::new(std::time::Duration::from_secs(1));
        let whole = peer.append_entries(request(&[1, 2]), option()).await;
        assert!(matches!(whole, Ok(AppendEntriesResponse::Success)), "{whole:?}");
        let cut = peer.append_entries(request(&[3 << 20; 3]), option()).await;
        assert!(
            matches!(cut, Ok(AppendEntriesResponse::PartialSuccess(Some(last))) if last.index == 1),
            "{cut:?}"
        );
        let conflict = peer.append_entries(request(&[]), option()).await;
        assert!(conflict.is_err(), "{conflict:?}");
    }
}
