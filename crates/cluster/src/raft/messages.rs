//! Requests between replicas and their answers, as bytes of a frame. Numbers are little-endian; `?` precedes an optional part
//! with a byte 0 or 1; log ids, votes, memberships and entries are as in the log.
//!
//! ```text
//! append      1 | vote | ? previous log id | ? committed log id | entries (4) of length (4), entry
//! vote        2 | vote | ? last log id | to a transferred leadership (1)         pre-vote: 3, otherwise the same
//! snapshot    4 | vote | ? log id | ? log id of the membership | membership | length (4), data
//! transfer    5 | vote of the leader | node (8) | ? last log id
//!
//! answers: the number of the request, then
//! append      0: success | 1: up to, ? log id | 2: conflict | 3: higher vote, vote
//! vote        vote | granted (1) | ? last log id
//! snapshot    vote
//! transfer    0: done | 1: another vote, expected vote, vote | 2: not flushed, ? expected log id, ? log id
//! ```

use bytes::{Buf, BufMut, Bytes};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderError,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::storage::{Snapshot, SnapshotMeta};

use super::codec::{
    decode_entry, get_log_id, get_membership, get_vote, put_entry, put_log_id, put_membership, put_vote,
};
use super::network::{RaftRequest, RaftResponse};
use super::types::{Entry, LogId, StoredMembership, TypeConfig};

const APPEND: u8 = 1;
const VOTE: u8 = 2;
const PRE_VOTE: u8 = 3;
const SNAPSHOT: u8 = 4;
const TRANSFER: u8 = 5;

/// Bytes of the shortest entry in a request: its length, a log id and its kind.
const ENTRY_BYTES_MIN: usize = 4 + 24 + 1;

/// Appends a request to a buffer.
pub(crate) fn put_request(to: &mut Vec<u8>, request: &RaftRequest) {
    match request {
        RaftRequest::Append(request) => {
            to.put_u8(APPEND);
            put_append(to, request);
        }
        RaftRequest::Vote(request) => {
            to.put_u8(VOTE);
            put_vote_request(to, request);
        }
        RaftRequest::PreVote(request) => {
            to.put_u8(PRE_VOTE);
            put_vote_request(to, request);
        }
        RaftRequest::Snapshot(vote, snapshot) => {
            to.put_u8(SNAPSHOT);
            put_vote(to, vote);
            put_optional_id(to, snapshot.meta.last_log_id.as_ref());
            put_optional_id(to, snapshot.meta.last_membership.log_id().as_ref());
            put_membership(to, snapshot.meta.last_membership.membership());
            to.put_u32_le(snapshot.snapshot.len() as u32);
            to.put_slice(&snapshot.snapshot);
        }
        RaftRequest::Transfer(request) => {
            to.put_u8(TRANSFER);
            put_vote(to, request.from_leader());
            to.put_u64_le(*request.to_node_id());
            put_optional_id(to, request.last_log_id());
        }
    }
}

/// Takes a request from a buffer. Returns `None` if there is none, or one of an unknown kind. Bytes of entries are shared.
pub(crate) fn get_request(from: &mut Bytes) -> Option<RaftRequest> {
    Some(match from.try_get_u8().ok()? {
        APPEND => RaftRequest::Append(get_append(from)?),
        VOTE => RaftRequest::Vote(get_vote_request(from)?),
        PRE_VOTE => RaftRequest::PreVote(get_vote_request(from)?),
        SNAPSHOT => {
            let vote = get_vote(from)?;
            let last_log_id = get_optional_id(from)?;
            let membership_id = get_optional_id(from)?;
            let last_membership = StoredMembership::new(membership_id, get_membership(from)?);
            let meta = SnapshotMeta { last_log_id, last_membership };
            RaftRequest::Snapshot(vote, Snapshot { meta, snapshot: get_bytes(from)? })
        }
        TRANSFER => {
            let (vote, node) = (get_vote(from)?, from.try_get_u64_le().ok()?);
            RaftRequest::Transfer(TransferLeaderRequest::new(vote, node, get_optional_id(from)?))
        }
        _ => return None,
    })
}

/// Appends an answer to a buffer.
pub(crate) fn put_response(to: &mut Vec<u8>, response: &RaftResponse) {
    match response {
        RaftResponse::Append(response) => {
            to.put_u8(APPEND);
            put_append_response(to, response);
        }
        RaftResponse::Vote(response) => {
            to.put_u8(VOTE);
            put_vote_response(to, response);
        }
        RaftResponse::PreVote(response) => {
            to.put_u8(PRE_VOTE);
            put_vote_response(to, response);
        }
        RaftResponse::Snapshot(response) => {
            to.put_u8(SNAPSHOT);
            put_vote(to, &response.vote);
        }
        RaftResponse::Transfer(response) => {
            to.put_u8(TRANSFER);
            put_transfer_response(to, response);
        }
    }
}

/// Takes an answer from a buffer. Returns `None` if there is none, or one of an unknown kind.
pub(crate) fn get_response(from: &mut Bytes) -> Option<RaftResponse> {
    Some(match from.try_get_u8().ok()? {
        APPEND => RaftResponse::Append(match from.try_get_u8().ok()? {
            0 => AppendEntriesResponse::Success,
            1 => AppendEntriesResponse::PartialSuccess(get_optional_id(from)?),
            2 => AppendEntriesResponse::Conflict,
            3 => AppendEntriesResponse::HigherVote(get_vote(from)?),
            _ => return None,
        }),
        VOTE => RaftResponse::Vote(get_vote_response(from)?),
        PRE_VOTE => RaftResponse::PreVote(get_vote_response(from)?),
        SNAPSHOT => RaftResponse::Snapshot(SnapshotResponse::new(get_vote(from)?)),
        TRANSFER => RaftResponse::Transfer(match from.try_get_u8().ok()? {
            0 => Ok(()),
            1 => {
                let (expected, actual) = (get_vote(from)?, get_vote(from)?);
                Err(TransferLeaderError::VoteChanged { expected, actual })
            }
            2 => {
                let (expected, actual) = (get_optional_id(from)?, get_optional_id(from)?);
                Err(TransferLeaderError::LogNotFlushed { expected, actual })
            }
            _ => return None,
        }),
        _ => return None,
    })
}

fn put_append(to: &mut Vec<u8>, request: &AppendEntriesRequest<TypeConfig>) {
    put_vote(to, &request.vote);
    put_optional_id(to, request.prev_log_id.as_ref());
    put_optional_id(to, request.leader_commit.as_ref());
    to.put_u32_le(request.entries.len() as u32);
    for entry in &request.entries {
        let at = to.len();
        to.put_u32_le(0);
        put_entry(to, entry);
        let length = (to.len() - at - 4) as u32;
        to[at..at + 4].copy_from_slice(&length.to_le_bytes());
    }
}

fn get_append(from: &mut Bytes) -> Option<AppendEntriesRequest<TypeConfig>> {
    let vote = get_vote(from)?;
    let (prev_log_id, leader_commit) = (get_optional_id(from)?, get_optional_id(from)?);
    let count = from.try_get_u32_le().ok()? as usize;
    // The list of entries is allocated only if the message has bytes for all of them.
    if count > from.len() / ENTRY_BYTES_MIN {
        return None;
    }
    let entry = |from: &mut Bytes| -> Option<Entry> { decode_entry(&get_bytes(from)?).ok() };
    let entries = (0..count).map(|_| entry(from)).collect::<Option<Vec<_>>>()?;
    Some(AppendEntriesRequest { vote, prev_log_id, entries, leader_commit })
}

fn put_vote_request(to: &mut Vec<u8>, request: &VoteRequest<TypeConfig>) {
    put_vote(to, &request.vote);
    put_optional_id(to, request.last_log_id.as_ref());
    to.put_u8(request.leadership_transfer.into());
}

fn get_vote_request(from: &mut Bytes) -> Option<VoteRequest<TypeConfig>> {
    let (vote, last_log_id) = (get_vote(from)?, get_optional_id(from)?);
    Some(VoteRequest { vote, last_log_id, leadership_transfer: get_bool(from)? })
}

fn put_vote_response(to: &mut Vec<u8>, response: &VoteResponse<TypeConfig>) {
    put_vote(to, &response.vote);
    to.put_u8(response.vote_granted.into());
    put_optional_id(to, response.last_log_id.as_ref());
}

fn get_vote_response(from: &mut Bytes) -> Option<VoteResponse<TypeConfig>> {
    let (vote, vote_granted) = (get_vote(from)?, get_bool(from)?);
    Some(VoteResponse { vote, vote_granted, last_log_id: get_optional_id(from)? })
}

fn put_append_response(to: &mut Vec<u8>, response: &AppendEntriesResponse<TypeConfig>) {
    match response {
        AppendEntriesResponse::Success => to.put_u8(0),
        AppendEntriesResponse::PartialSuccess(id) => {
            to.put_u8(1);
            put_optional_id(to, id.as_ref());
        }
        AppendEntriesResponse::Conflict => to.put_u8(2),
        AppendEntriesResponse::HigherVote(vote) => {
            to.put_u8(3);
            put_vote(to, vote);
        }
    }
}

fn put_transfer_response(to: &mut Vec<u8>, response: &TransferLeaderResponse<TypeConfig>) {
    match response {
        Ok(()) => to.put_u8(0),
        Err(TransferLeaderError::VoteChanged { expected, actual }) => {
            to.put_u8(1);
            put_vote(to, expected);
            put_vote(to, actual);
        }
        Err(TransferLeaderError::LogNotFlushed { expected, actual }) => {
            to.put_u8(2);
            put_optional_id(to, expected.as_ref());
            put_optional_id(to, actual.as_ref());
        }
    }
}

fn put_optional_id(to: &mut Vec<u8>, id: Option<&LogId>) {
    to.put_u8(id.is_some().into());
    if let Some(id) = id {
        put_log_id(to, id);
    }
}

fn get_optional_id(from: &mut Bytes) -> Option<Option<LogId>> {
    if get_bool(from)? { get_log_id(from).map(Some) } else { Some(None) }
}

fn get_bool(from: &mut Bytes) -> Option<bool> {
    match from.try_get_u8().ok()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn get_bytes(from: &mut Bytes) -> Option<Bytes> {
    let length = from.try_get_u32_le().ok()? as usize;
    (length <= from.len()).then(|| from.split_to(length))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;

    use openraft::{EntryPayload, Membership};
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    use super::super::types::{Change, LeaderId, Vote};
    use super::*;

    /// Returns a heartbeat and its answer.
    pub(crate) fn heartbeat() -> (RaftRequest, RaftResponse) {
        let id = LogId::new(LeaderId { term: 1, node_id: 2 }, 3);
        let vote = Vote::new_committed(1, 2);
        let request = AppendEntriesRequest {
            vote,
            prev_log_id: Some(id),
            entries: Vec::new(),
            leader_commit: Some(id),
        };
        (RaftRequest::Append(request), RaftResponse::Append(AppendEntriesResponse::Success))
    }

    fn log_ids() -> impl Strategy<Value = LogId> + Clone {
        let id = |(term, node_id, index)| LogId::new(LeaderId { term, node_id }, index);
        any::<(u64, u64, u64)>().prop_map(id)
    }

    fn votes() -> impl Strategy<Value = Vote> + Clone {
        let vote = |(term, node, is_committed)| match is_committed {
            true => Vote::new_committed(term, node),
            false => Vote::new(term, node),
        };
        any::<(u64, u64, bool)>().prop_map(vote)
    }

    fn memberships() -> impl Strategy<Value = Membership<u64, ()>> + Clone {
        let parts = (vec(btree_set(0..9_u64, 1..4), 1..3), btree_set(9..20_u64, 0..4));
        parts.prop_map(|(voters, learners): (Vec<BTreeSet<u64>>, _)| {
            Membership::new_with_defaults(voters, learners)
        })
    }

    fn blobs() -> impl Strategy<Value = Bytes> + Clone {
        vec(any::<u8>(), 0..300).prop_map(Bytes::from)
    }

    fn entries() -> impl Strategy<Value = Entry> + Clone {
        let payload = prop_oneof![
            Just(EntryPayload::Blank),
            blobs().prop_map(|bytes| EntryPayload::Normal(Change(bytes))),
            memberships().prop_map(EntryPayload::Membership),
        ];
        (log_ids(), payload).prop_map(|(log_id, payload)| Entry { log_id, payload })
    }

    /// Every kind of request.
    pub(crate) fn requests() -> impl Strategy<Value = RaftRequest> {
        let (id, optional) = (log_ids(), proptest::option::of(log_ids()));
        let append = (votes(), optional.clone(), vec(entries(), 0..5), optional.clone());
        let append = append.prop_map(|(vote, prev_log_id, entries, leader_commit)| {
            RaftRequest::Append(AppendEntriesRequest { vote, prev_log_id, entries, leader_commit })
        });
        let vote = (votes(), optional.clone(), any::<bool>()).prop_map(
            |(vote, last_log_id, leadership_transfer)| VoteRequest { vote, last_log_id, leadership_transfer },
        );
        let snapshot = (votes(), optional.clone(), optional.clone(), memberships(), blobs());
        let snapshot = snapshot.prop_map(|(vote, last_log_id, of, membership, snapshot)| {
            let last_membership = StoredMembership::new(of, membership);
            RaftRequest::Snapshot(
                vote,
                Snapshot { meta: SnapshotMeta { last_log_id, last_membership }, snapshot },
            )
        });
        let transfer = (votes(), any::<u64>(), proptest::option::of(id));
        let transfer = transfer.prop_map(|(vote, node, last)| {
            RaftRequest::Transfer(TransferLeaderRequest::new(vote, node, last))
        });
        prop_oneof![
            append,
            vote.clone().prop_map(RaftRequest::Vote),
            vote.prop_map(RaftRequest::PreVote),
            snapshot,
            transfer,
        ]
    }

    /// Every kind of answer.
    pub(crate) fn responses() -> impl Strategy<Value = RaftResponse> {
        let optional = proptest::option::of(log_ids());
        let append = prop_oneof![
            Just(AppendEntriesResponse::Success),
            optional.clone().prop_map(AppendEntriesResponse::PartialSuccess),
            Just(AppendEntriesResponse::Conflict),
            votes().prop_map(AppendEntriesResponse::HigherVote),
        ];
        let vote = (votes(), any::<bool>(), optional.clone())
            .prop_map(|(vote, vote_granted, last_log_id)| VoteResponse { vote, vote_granted, last_log_id });
        let transfer = prop_oneof![
            Just(Ok(())),
            (votes(), votes())
                .prop_map(|(expected, actual)| Err(TransferLeaderError::VoteChanged { expected, actual })),
            (optional.clone(), optional)
                .prop_map(|(expected, actual)| Err(TransferLeaderError::LogNotFlushed { expected, actual })),
        ];
        prop_oneof![
            append.prop_map(RaftResponse::Append),
            vote.clone().prop_map(RaftResponse::Vote),
            vote.prop_map(RaftResponse::PreVote),
            votes().prop_map(|vote| RaftResponse::Snapshot(SnapshotResponse::new(vote))),
            transfer.prop_map(RaftResponse::Transfer),
        ]
    }
}
