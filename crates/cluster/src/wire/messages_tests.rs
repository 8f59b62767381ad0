//! Requests and answers survive encoding, and damaged ones are refused.

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
    let group = group.prop_map(|((group, term, leader, is_settled, last_index, bytes), voters, learners)| {
        GroupReport { group, term, leader, is_settled, last_index, bytes, voters, learners }
    });
    (any::<(u64, u64, u64, u64, u16)>(), vec(group, 0..4)).prop_map(|(numbers, groups)| {
        let (node, live_bytes, limit_bytes, copied_bytes, held) = numbers;
        NodeReport { node, live_bytes, limit_bytes, copied_bytes, held, groups }
    })
}

fn requests() -> impl Strategy<Value = PeerRequest> {
    let part = (any::<(u8, u64, u32, bool)>(), blobs(), vec(changes(), 0..6));
    let part = part.prop_map(|((group, transfer, part, is_last), vote, changes)| PeerRequest::SnapshotPart {
        group,
        transfer,
        part,
        vote,
        changes,
        is_last,
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
        1 => any::<(u8, u64, u64)>().prop_map(|(group, applied, cursor)| PeerRequest::Keys { group, applied, cursor }),
        1 => Just(PeerRequest::Damage),
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
        1 => (vec(blobs(), 0..6), any::<Option<u64>>(), any::<bool>()).prop_map(|(keys, next, is_damaged)| {
            PeerResponse::Keys(KeyList { keys, next, is_damaged })
        }),
        1 => any::<(u16, u64, bool, u32)>().prop_map(|(groups, keys, lacks_room, lost_segments)| {
            PeerResponse::Damage(NodeDamage { groups, keys, lacks_room, lost_segments })
        }),
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
fn count_beyond_message_bytes_is_refused() {
    // 2^32 - 1 entries, and 2^60 changes.
    let entries = [&[RAFT, 1, 1], &[0; 17][..], &[0, 0], &[0xFF; 4], &[0; 64]].concat();
    assert!(decode_request(entries.into()).is_none());
    let changes = [&[SNAPSHOT_PART, 1], &[0; 12][..], &[0, 0], &[0x80; 8], &[0x10], &[0; 64]].concat();
    assert!(decode_request(changes.into()).is_none());
    let messages = [&[PUBLISH], &[0xFF, 0xFF, 0xFF, 0xFF, 0x0F][..], &[0; 64]].concat();
    assert!(decode_request(messages.into()).is_none());
    let keys = [&[KEYS_ARE, 0, 0], &[0xFF, 0xFF, 0xFF, 0xFF, 0x0F][..], &[0; 64]].concat();
    assert!(decode_response(keys.into()).is_none());
    let nodes = [&[JOINED], &[0; 9][..], &[0xFF, 0xFF, 0xFF, 0xFF, 0x0F], &[0; 64]].concat();
    assert!(decode_response(nodes.into()).is_none());
}
