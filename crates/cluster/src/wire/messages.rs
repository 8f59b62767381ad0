//! Requests and answers as bytes of a frame. See the documentation of [`wire`](super).

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes};

use crate::changes::{changes_bytes, get_changes, put_changes};
use crate::input::{get_bool, get_bytes, get_number, get_text, put_bytes, put_number, put_text};
use crate::levels::Program;
use crate::peers::{KeyList, NodeDamage, PeerRecord, PeerRequest, PeerResponse, ReadIndex, ReplicaState};
use crate::place::report::{NodeReport, Order, get_reports, put_reports};
use crate::raft::messages;

const RAFT: u8 = 1;
const SNAPSHOT_PART: u8 = 2;
const JOIN: u8 = 3;
const TRANSFER: u8 = 4;
const REMOVE: u8 = 5;
const ORDER: u8 = 6;
const REPORT: u8 = 7;
const MEMBERS: u8 = 8;
const PUBLISH: u8 = 9;
const STATES: u8 = 10;
const PROGRAM: u8 = 11;
const FINALIZE: u8 = 12;
const READ_INDEXES: u8 = 13;
const REWRITE: u8 = 14;
const KEYS: u8 = 15;
const DAMAGE: u8 = 16;

const OF_RAFT: u8 = 1;
const DONE: u8 = 2;
const JOINED: u8 = 3;
const ASK: u8 = 4;
const REFUSED: u8 = 5;
const REPORTS: u8 = 6;
const OF_MEMBERS: u8 = 7;
const STATES_ARE: u8 = 8;
const PROGRAM_IS: u8 = 9;
const READ_INDEXES_ARE: u8 = 10;
const KEYS_ARE: u8 = 11;
const DAMAGE_IS: u8 = 12;

/// Bytes of the shortest record of a node: two numbers, three empty texts, and the bytes of two absent ones.
const RECORD_BYTES_MIN: usize = 8 + 8 + 3 + 2;

/// Bytes of the shortest message of PUBLISH: two lengths.
const MESSAGE_BYTES_MIN: usize = 2;

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
        PeerRequest::Order(order) => {
            to.put_u8(ORDER);
            order.put(to);
        }
        PeerRequest::Report(report) => {
            to.put_u8(REPORT);
            report.put(to);
        }
        PeerRequest::Members { group } => to.put_slice(&[MEMBERS, *group]),
        PeerRequest::Publish(messages) => {
            to.put_u8(PUBLISH);
            put_number(to, messages.len() as u64);
            for (channel, text) in messages {
                put_bytes(to, channel);
                put_bytes(to, text);
            }
        }
        PeerRequest::States => to.put_u8(STATES),
        PeerRequest::Program => to.put_u8(PROGRAM),
        PeerRequest::Finalize => to.put_u8(FINALIZE),
        PeerRequest::Rewrite { group, key } => {
            to.put_slice(&[REWRITE, *group]);
            put_bytes(to, key);
        }
        PeerRequest::Keys { group, applied, cursor } => {
            to.put_slice(&[KEYS, *group]);
            to.put_u64_le(*applied);
            to.put_u64_le(*cursor);
        }
        PeerRequest::Damage => to.put_u8(DAMAGE),
        PeerRequest::ReadIndexes(groups) => {
            to.put_u8(READ_INDEXES);
            to.put_u16_le(*groups);
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
        ORDER => PeerRequest::Order(Order::get(&mut from)?),
        REPORT => PeerRequest::Report(NodeReport::get(&mut from)?),
        MEMBERS => PeerRequest::Members { group: from.try_get_u8().ok()? },
        PUBLISH => {
            let count = usize::try_from(get_number(&mut from)?).ok()?;
            if count > from.len() / MESSAGE_BYTES_MIN {
                return None;
            }
            let message = |from: &mut Bytes| Some((get_bytes(from)?, get_bytes(from)?));
            PeerRequest::Publish((0..count).map(|_| message(&mut from)).collect::<Option<_>>()?)
        }
        STATES => PeerRequest::States,
        PROGRAM => PeerRequest::Program,
        FINALIZE => PeerRequest::Finalize,
        REWRITE => PeerRequest::Rewrite { group: from.try_get_u8().ok()?, key: get_bytes(&mut from)? },
        KEYS => PeerRequest::Keys {
            group: from.try_get_u8().ok()?,
            applied: from.try_get_u64_le().ok()?,
            cursor: from.try_get_u64_le().ok()?,
        },
        DAMAGE => PeerRequest::Damage,
        READ_INDEXES => PeerRequest::ReadIndexes(from.try_get_u16_le().ok()?),
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
        PeerResponse::Reports(reports) => {
            to.put_u8(REPORTS);
            put_reports(to, reports);
        }
        PeerResponse::Members { nodes, id } => {
            to.put_u8(OF_MEMBERS);
            put_number(to, nodes.len() as u64);
            nodes.iter().for_each(|node| to.put_u64_le(*node));
            put_bytes(to, id);
        }
        PeerResponse::Ask(address) => {
            to.put_u8(ASK);
            put_text(to, address);
        }
        PeerResponse::States(states) => {
            to.put_slice(&[STATES_ARE, states.len() as u8]);
            states.iter().for_each(|(group, state)| to.put_slice(&[*group, *state as u8]));
        }
        PeerResponse::Program(program) => {
            to.put_u8(PROGRAM_IS);
            program.put(to);
        }
        PeerResponse::ReadIndexes(found) => {
            to.put_slice(&[READ_INDEXES_ARE, found.len() as u8]);
            for (group, ReadIndex { index, now_ms }) in found {
                to.put_u8(*group);
                to.put_u64_le(*index);
                to.put_u64_le(*now_ms);
            }
        }
        PeerResponse::Keys(KeyList { keys, next, is_damaged }) => {
            to.put_slice(&[KEYS_ARE, (*is_damaged).into(), next.is_some().into()]);
            next.iter().for_each(|next| to.put_u64_le(*next));
            put_number(to, keys.len() as u64);
            keys.iter().for_each(|key| put_bytes(to, key));
        }
        PeerResponse::Damage(NodeDamage { groups, keys, lacks_room, lost_segments }) => {
            to.put_u8(DAMAGE_IS);
            to.put_u16_le(*groups);
            to.put_u64_le(*keys);
            to.put_u8((*lacks_room).into());
            to.put_u32_le(*lost_segments);
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
        REPORTS => PeerResponse::Reports(get_reports(&mut from)?),
        OF_MEMBERS => {
            let count = usize::try_from(get_number(&mut from)?).ok()?;
            if count > from.len() / 8 {
                return None;
            }
            let nodes = (0..count).map(|_| from.try_get_u64_le().ok()).collect::<Option<Vec<_>>>()?;
            PeerResponse::Members { nodes, id: get_bytes(&mut from)? }
        }
        ASK => PeerResponse::Ask(get_text(&mut from)?),
        REFUSED => PeerResponse::Refused(get_text(&mut from)?),
        PROGRAM_IS => PeerResponse::Program(Program::get(&mut from)?),
        STATES_ARE => {
            PeerResponse::States(get_by_group(&mut from, |from| ReplicaState::of(from.try_get_u8().ok()?))?)
        }
        KEYS_ARE => {
            let (is_damaged, has_next) = (get_bool(&mut from)?, get_bool(&mut from)?);
            let next = if has_next { Some(from.try_get_u64_le().ok()?) } else { None };
            let count = usize::try_from(get_number(&mut from)?).ok()?;
            // Each key has a length of at least one byte.
            if count > from.len() {
                return None;
            }
            let keys = (0..count).map(|_| get_bytes(&mut from)).collect::<Option<Vec<_>>>()?;
            PeerResponse::Keys(KeyList { keys, next, is_damaged })
        }
        DAMAGE_IS => PeerResponse::Damage(NodeDamage {
            groups: from.try_get_u16_le().ok()?,
            keys: from.try_get_u64_le().ok()?,
            lacks_room: get_bool(&mut from)?,
            lost_segments: from.try_get_u32_le().ok()?,
        }),
        READ_INDEXES_ARE => PeerResponse::ReadIndexes(get_by_group(&mut from, |from| {
            Some(ReadIndex { index: from.try_get_u64_le().ok()?, now_ms: from.try_get_u64_le().ok()? })
        })?),
        _ => return None,
    };
    from.is_empty().then_some(response)
}

/// Takes values in the order of their groups.
fn get_by_group<T>(from: &mut Bytes, get: impl Fn(&mut Bytes) -> Option<T>) -> Option<BTreeMap<u8, T>> {
    let count = from.try_get_u8().ok()?;
    let mut found = BTreeMap::new();
    for _ in 0..count {
        let group = from.try_get_u8().ok()?;
        if found.last_key_value().is_some_and(|(last, _)| *last >= group) {
            return None;
        }
        found.insert(group, get(from)?);
    }
    Some(found)
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
    to.put_u8(record.replica.is_some().into());
    if let Some(replica) = &record.replica {
        put_text(to, replica);
    }
}

fn get_record(from: &mut Bytes) -> Option<PeerRecord> {
    Some(PeerRecord {
        node: from.try_get_u64_le().ok()?,
        store: from.try_get_u64_le().ok()?,
        peers: get_text(from)?,
        resp: get_text(from)?,
        grpc: if get_bool(from)? { Some(get_text(from)?) } else { None },
        zone: get_text(from)?,
        replica: if get_bool(from)? { Some(get_text(from)?) } else { None },
    })
}

#[cfg(test)]
#[path = "messages_tests.rs"]
mod tests;
