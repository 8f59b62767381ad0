//! Requests and answers as bytes of a frame. See the documentation of [`wire`](super).

use bytes::{Buf, BufMut, Bytes};

use super::changes::{changes_bytes, get_changes, put_changes};
use super::input::{get_bool, get_bytes, get_number, get_text, put_bytes, put_number, put_text};
use crate::peers::{PeerRecord, PeerRequest, PeerResponse};
use crate::raft::messages;

const RAFT: u8 = 1;
const SNAPSHOT_PART: u8 = 2;
const JOIN: u8 = 3;
const TRANSFER: u8 = 4;
const REMOVE: u8 = 5;

const OF_RAFT: u8 = 1;
const DONE: u8 = 2;
const JOINED: u8 = 3;
const ASK: u8 = 4;
const REFUSED: u8 = 5;

/// Bytes of the shortest record of a node: two numbers, three empty texts, and the byte of an absent one.
const RECORD_BYTES_MIN: usize = 8 + 8 + 3 + 1;

/// Appends a request to a buffer.
pub(super) fn put_request(to: &mut Vec<u8>, request: &PeerRequest) {
    match request {
        PeerRequest::Raft { group, request } => {
            to.put_slice(&[RAFT, *group]);
            messages::put_request(to, request);
        }
        PeerRequest::SnapshotPart { group, transfer, part, vote, changes, is_last } => {
            to.reserve(64 + vote.len() + changes_bytes(changes));
            to.put_slice(&[SNAPSHOT_PART, *group]);
            to.put_u64_le(*transfer);
            to.put_u32_le(*part);
            put_bytes(to, vote);
            to.put_u8((*is_last).into());
            put_changes(to, changes);
        }
        PeerRequest::Join(record) => {
            to.put_u8(JOIN);
            put_record(to, record);
        }
        PeerRequest::Transfer { group, node } => {
            to.put_slice(&[TRANSFER, *group]);
            to.put_u64_le(*node);
        }
        PeerRequest::Remove { node } => {
            to.put_u8(REMOVE);
            to.put_u64_le(*node);
        }
    }
}

/// Returns the request that a frame holds, or `None` if it is damaged or of an unknown kind.
pub(super) fn decode_request(mut from: Bytes) -> Option<PeerRequest> {
    let request = match from.try_get_u8().ok()? {
        RAFT => {
            let group = from.try_get_u8().ok()?;
            PeerRequest::Raft { group, request: messages::get_request(&mut from)? }
        }
        SNAPSHOT_PART => PeerRequest::SnapshotPart {
            group: from.try_get_u8().ok()?,
            transfer: from.try_get_u64_le().ok()?,
            part: from.try_get_u32_le().ok()?,
            vote: get_bytes(&mut from)?,
            is_last: get_bool(&mut from)?,
            changes: get_changes(&mut from)?,
        },
        JOIN => PeerRequest::Join(get_record(&mut from)?),
        TRANSFER => {
            PeerRequest::Transfer { group: from.try_get_u8().ok()?, node: from.try_get_u64_le().ok()? }
        }
        REMOVE => PeerRequest::Remove { node: from.try_get_u64_le().ok()? },
        _ => return None,
    };
    from.is_empty().then_some(request)
}

/// Appends an answer to a buffer.
pub(super) fn put_response(to: &mut Vec<u8>, response: &PeerResponse) {
    match response {
        PeerResponse::Raft(response) => {
            to.put_u8(OF_RAFT);
            messages::put_response(to, response);
        }
        PeerResponse::Done => to.put_u8(DONE),
        PeerResponse::Joined { cluster, groups, nodes } => {
            to.put_u8(JOINED);
            to.put_u64_le(*cluster);
            to.put_u8(*groups);
            put_number(to, nodes.len() as u64);
            nodes.iter().for_each(|record| put_record(to, record));
        }
        PeerResponse::Ask(address) => {
            to.put_u8(ASK);
            put_text(to, address);
        }
        PeerResponse::Refused(why) => {
            to.put_u8(REFUSED);
            put_text(to, why);
        }
    }
}

/// Returns the answer that a frame holds, or `None` if it is damaged or of an unknown kind.
pub(super) fn decode_response(mut from: Bytes) -> Option<PeerResponse> {
    let response = match from.try_get_u8().ok()? {
        OF_RAFT => PeerResponse::Raft(messages::get_response(&mut from)?),
        DONE => PeerResponse::Done,
        JOINED => {
            let (cluster, groups) = (from.try_get_u64_le().ok()?, from.try_get_u8().ok()?);
            let count = usize::try_from(get_number(&mut from)?).ok()?;
            if count > from.len() / RECORD_BYTES_MIN {
                return None;
            }
            let nodes = (0..count).map(|_| get_record(&mut from)).collect::<Option<Vec<_>>>()?;
            PeerResponse::Joined { cluster, groups, nodes }
        }
        ASK => PeerResponse::Ask(get_text(&mut from)?),
        REFUSED => PeerResponse::Refused(get_text(&mut from)?),
        _ => return None,
    };
    from.is_empty().then_some(response)
}

fn put_record(to: &mut Vec<u8>, record: &PeerRecord) {
    to.put_u64_le(record.node);
    to.put_u64_le(record.store);
    put_text(to, &record.peers);
    put_text(to, &record.resp);
    to.put_u8(record.grpc.is_some().into());
    if let Some(grpc) = &record.grpc {
        put_text(to, grpc);
    }
    put_text(to, &record.zone);
}

fn get_record(from: &mut Bytes) -> Option<PeerRecord> {
    Some(PeerRecord {
        node: from.try_get_u64_le().ok()?,
        store: from.try_get_u64_le().ok()?,
        peers: get_text(from)?,
        resp: get_text(from)?,
        grpc: if get_bool(from)? { Some(get_text(from)?) } else { None },
        zone: get_text(from)?,
    })
}
