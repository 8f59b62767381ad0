//! Requests and answers as bytes of a frame. See the documentation of [`wire`](super).

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes};

use crate::changes::{changes_bytes, get_changes, put_changes};
use crate::input::{get_bool, get_bytes, get_number, get_text, put_bytes, put_number, put_text};
use crate::levels::Program;
use crate::peers::{PeerRecord, PeerRequest, PeerResponse, ReadIndex, ReplicaState};
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
mod tests {
    use esker_engine::{Codec, Compressed, StoredChange, StoredValue};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::levels::Levels;
    use crate::place::report::GroupReport;
    use crate::raft::messages::tests as raft;

    fn blobs() -> impl Strategy<Value = Bytes> + Clone {
        vec(any::<u8>(), 0..200).prop_map(Bytes::from)
    }

    fn texts() -> impl Strategy<Value = String> + Clone {
        "[a-z0-9.:äß]{0,60}"
    }

    fn changes() -> impl Strategy<Value = StoredChange> {
        let codec = prop_oneof![Just(Codec::Lz4), Just(Codec::Zstd)];
        let compressed = (codec, any::<u32>()).prop_map(|(codec, raw_bytes)| Compressed { codec, raw_bytes });
        let value = (blobs(), proptest::option::of(compressed), proptest::option::of(any::<u64>()))
            .prop_map(|(bytes, compressed, expires_at_ms)| StoredValue { bytes, compressed, expires_at_ms });
        (blobs(), proptest::option::of(value)).prop_map(|(key, value)| StoredChange { key, value, origin: 0 })
    }

    fn records() -> impl Strategy<Value = PeerRecord> + Clone {
        let others = (proptest::option::of(texts()), proptest::option::of(texts()));
        let parts = (any::<u64>(), any::<u64>(), texts(), texts(), others, texts());
        parts.prop_map(|(node, store, peers, resp, (grpc, replica), zone)| PeerRecord {
            node,
            store,
            peers,
            resp,
            grpc,
            replica,
            zone,
        })
    }

    fn orders() -> impl Strategy<Value = Order> {
        prop_oneof![
            any::<(u64, bool)>().prop_map(|(node, begins)| Order::Drain { node, begins }),
            any::<(u8, u64, u64)>().prop_map(|(group, from, to)| Order::Move { group, from, to }),
            any::<u8>().prop_map(Order::Replicas),
            any::<bool>().prop_map(Order::Pause),
            Just(Order::Rebalance),
        ]
    }

    fn reports() -> impl Strategy<Value = NodeReport> {
        let nodes = || vec(any::<u64>(), 0..4);
        let group = (any::<(u8, u64, u64, bool, u64, u64)>(), nodes(), nodes());
        let group =
            group.prop_map(|((group, term, leader, is_settled, last_index, bytes), voters, learners)| {
                GroupReport { group, term, leader, is_settled, last_index, bytes, voters, learners }
            });
        (any::<(u64, u64, u64, u64, u16)>(), vec(group, 0..4)).prop_map(|(numbers, groups)| {
            let (node, live_bytes, limit_bytes, copied_bytes, held) = numbers;
            NodeReport { node, live_bytes, limit_bytes, copied_bytes, held, groups }
        })
    }

    fn requests() -> impl Strategy<Value = PeerRequest> {
        let part = (any::<(u8, u64, u32, bool)>(), blobs(), vec(changes(), 0..6));
        let part = part.prop_map(|((group, transfer, part, is_last), vote, changes)| {
            PeerRequest::SnapshotPart { group, transfer, part, vote, changes, is_last }
        });
        prop_oneof![
            4 => (any::<u8>(), raft::requests()).prop_map(|(group, request)| PeerRequest::Raft { group, request }),
            2 => part,
            1 => records().prop_map(PeerRequest::Join),
            1 => any::<(u8, u64)>().prop_map(|(group, node)| PeerRequest::Transfer { group, node }),
            1 => any::<u64>().prop_map(|node| PeerRequest::Remove { node }),
            1 => orders().prop_map(PeerRequest::Order),
            1 => reports().prop_map(PeerRequest::Report),
            1 => any::<u8>().prop_map(|group| PeerRequest::Members { group }),
            1 => vec((blobs(), blobs()), 0..6).prop_map(PeerRequest::Publish),
            1 => Just(PeerRequest::States),
            1 => Just(PeerRequest::Program),
            1 => Just(PeerRequest::Finalize),
            1 => any::<u16>().prop_map(PeerRequest::ReadIndexes),
            1 => (any::<u8>(), blobs()).prop_map(|(group, key)| PeerRequest::Rewrite { group, key }),
        ]
    }

    fn states() -> impl Strategy<Value = BTreeMap<u8, ReplicaState>> {
        let state = (1..=4_u8).prop_map(|number| ReplicaState::of(number).expect("a state"));
        proptest::collection::btree_map(any::<u8>(), state, 0..17)
    }

    fn programs() -> impl Strategy<Value = Program> {
        (any::<u8>(), any::<u8>(), texts()).prop_map(|(one, other, version)| {
            let levels = Levels { lowest: one.min(other), highest: one.max(other) };
            Program { levels, version }
        })
    }

    fn read_indexes() -> impl Strategy<Value = BTreeMap<u8, ReadIndex>> {
        let found = any::<(u64, u64)>().prop_map(|(index, now_ms)| ReadIndex { index, now_ms });
        proptest::collection::btree_map(any::<u8>(), found, 0..17)
    }

    fn responses() -> impl Strategy<Value = PeerResponse> {
        let joined = (any::<(u64, u8)>(), vec(records(), 0..5))
            .prop_map(|((cluster, groups), nodes)| PeerResponse::Joined { cluster, groups, nodes });
        prop_oneof![
            4 => raft::responses().prop_map(PeerResponse::Raft),
            1 => Just(PeerResponse::Done),
            1 => vec(reports(), 0..4).prop_map(PeerResponse::Reports),
            1 => (vec(any::<u64>(), 0..5), blobs()).prop_map(|(nodes, id)| PeerResponse::Members { nodes, id }),
            1 => joined,
            1 => states().prop_map(PeerResponse::States),
            1 => programs().prop_map(PeerResponse::Program),
            1 => read_indexes().prop_map(PeerResponse::ReadIndexes),
            1 => texts().prop_map(PeerResponse::Ask),
            1 => texts().prop_map(PeerResponse::Refused),
        ]
    }

    fn request_bytes(request: &PeerRequest) -> Bytes {
        let mut bytes = Vec::new();
        put_request(&mut bytes, request);
        bytes.into()
    }

    fn response_bytes(response: &PeerResponse) -> Bytes {
        let mut bytes = Vec::new();
        put_response(&mut bytes, response);
        bytes.into()
    }

    fn shown(value: &impl std::fmt::Debug) -> String {
        format!("{value:?}")
    }

    proptest! {
        #[test]
        fn request_survives_encoding(request in requests()) {
            let bytes = request_bytes(&request);
            let decoded = decode_request(bytes.clone());
            prop_assert_eq!(decoded.as_ref().map(shown), Some(shown(&request)));
            // Every byte belongs to the message.
            for end in 0..bytes.len() {
                prop_assert!(decode_request(bytes.slice(..end)).is_none(), "cut at {}", end);
            }
            prop_assert!(decode_request([&bytes[..], &[0]].concat().into()).is_none());
        }

        #[test]
        fn response_survives_encoding(response in responses()) {
            let bytes = response_bytes(&response);
            let decoded = decode_response(bytes.clone());
            prop_assert_eq!(decoded.as_ref().map(shown), Some(shown(&response)));
            for end in 0..bytes.len() {
                prop_assert!(decode_response(bytes.slice(..end)).is_none(), "cut at {}", end);
            }
            prop_assert!(decode_response([&bytes[..], &[0]].concat().into()).is_none());
        }

        #[test]
        fn changed_bytes_decode_to_a_message_or_to_none(
            request in requests(),
            response in responses(),
            changes in vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..6),
        ) {
            let [mut of_request, mut of_response] =
                [request_bytes(&request), response_bytes(&response)].map(|bytes| bytes.to_vec());
            for (at, byte, is_inserted) in changes {
                for bytes in [&mut of_request, &mut of_response] {
                    let at = at.index(bytes.len());
                    if is_inserted { bytes.insert(at, byte) } else { bytes[at] = byte }
                }
            }
            if let Some(request) = decode_request(of_request.into()) {
                prop_assert_eq!(decode_request(request_bytes(&request)).as_ref().map(shown), Some(shown(&request)));
            }
            if let Some(response) = decode_response(of_response.into()) {
                prop_assert_eq!(decode_response(response_bytes(&response)).as_ref().map(shown), Some(shown(&response)));
            }
        }

        #[test]
        fn any_bytes_decode_to_a_message_or_to_none(bytes in vec(any::<u8>(), 0..200)) {
            let _ = decode_request(bytes.clone().into());
            let _ = decode_response(bytes.into());
        }
    }

    #[test]
    fn heartbeat_has_the_length_that_estimates_use() {
        use super::super::frame::HEAD_BYTES;
        use super::super::{HEARTBEAT_ANSWER_BYTES, HEARTBEAT_BYTES};
        let (request, response) = raft::heartbeat();
        let request = request_bytes(&PeerRequest::Raft { group: 1, request });
        assert_eq!((HEAD_BYTES + request.len()) as u64, HEARTBEAT_BYTES);
        let position = 8;
        let response = response_bytes(&PeerResponse::Raft(response));
        assert_eq!((HEAD_BYTES + position + response.len()) as u64, HEARTBEAT_ANSWER_BYTES);
    }

    #[test]
    fn counts_beyond_the_bytes_are_refused_before_a_list_is_allocated() {
        // 2^32 - 1 entries, and 2^60 changes.
        let entries = [&[RAFT, 1, 1], &[0; 17][..], &[0, 0], &[0xFF; 4], &[0; 64]].concat();
        assert!(decode_request(entries.into()).is_none());
        let changes = [&[SNAPSHOT_PART, 1], &[0; 12][..], &[0, 0], &[0x80; 8], &[0x10], &[0; 64]].concat();
        assert!(decode_request(changes.into()).is_none());
        let messages = [&[PUBLISH], &[0xFF, 0xFF, 0xFF, 0xFF, 0x0F][..], &[0; 64]].concat();
        assert!(decode_request(messages.into()).is_none());
        let nodes = [&[JOINED], &[0; 9][..], &[0xFF, 0xFF, 0xFF, 0xFF, 0x0F], &[0; 64]].concat();
        assert!(decode_response(nodes.into()).is_none());
    }
}
