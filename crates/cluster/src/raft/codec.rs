//! Entries, votes and log ids as bytes of the log. Numbers are little-endian.
//!
//! ```text
//! log id: term (8) | node (8) | index (8)         vote: term (8) | node (8) | committed (1)
//! entry:  log id | 0                              blank
//!                | 1 | change                     a change
//!                | 2 | membership
//! membership: configurations (2) of voters (2) with their nodes (8 each) | learners (2) with their nodes
//! base:   nothing                                 everything is in the log
//!         | 1 | log id | log id of the membership | membership      a floor
//!         | 2                                                       a snapshot is being installed
//! ```

use std::collections::BTreeSet;
use std::io;

use bytes::{Buf, BufMut, Bytes};
use openraft::{EntryPayload, Membership};

use super::types::{Change, Entry, LeaderId, LogId, StoredMembership, Vote};

const BLANK: u8 = 0;
const CHANGE: u8 = 1;
const MEMBERSHIP: u8 = 2;

pub(super) fn damaged(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("{what} of the group's log is damaged or of a later version"),
    )
}

pub(super) fn put_log_id(to: &mut Vec<u8>, id: &LogId) {
    to.put_u64_le(id.leader_id.term);
    to.put_u64_le(id.leader_id.node_id);
    to.put_u64_le(id.index);
}

pub(super) fn get_log_id(from: &mut impl Buf) -> Option<LogId> {
    let (term, node_id) = (from.try_get_u64_le().ok()?, from.try_get_u64_le().ok()?);
    Some(LogId::new(LeaderId { term, node_id }, from.try_get_u64_le().ok()?))
}

pub(super) fn encode_log_id(id: &LogId) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(24);
    put_log_id(&mut bytes, id);
    bytes
}

pub(super) fn decode_log_id(mut bytes: &[u8]) -> io::Result<LogId> {
    get_log_id(&mut bytes).filter(|_| bytes.is_empty()).ok_or_else(|| damaged("a log id"))
}

pub(super) fn encode_vote(vote: &Vote) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(17);
    put_vote(&mut bytes, vote);
    bytes
}

pub(super) fn put_vote(to: &mut Vec<u8>, vote: &Vote) {
    to.put_u64_le(vote.leader_id.term);
    to.put_u64_le(vote.leader_id.node_id);
    to.put_u8(vote.committed.into());
}

pub(super) fn get_vote(from: &mut impl Buf) -> Option<Vote> {
    let (term, node) = (from.try_get_u64_le().ok()?, from.try_get_u64_le().ok()?);
    match from.try_get_u8().ok()? {
        0 => Some(Vote::new(term, node)),
        1 => Some(Vote::new_committed(term, node)),
        _ => None,
    }
}

pub(super) fn decode_vote(mut bytes: &[u8]) -> io::Result<Vote> {
    get_vote(&mut bytes).filter(|_| bytes.is_empty()).ok_or_else(|| damaged("a vote"))
}

pub(super) fn encode_entry(entry: &Entry) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64);
    put_entry(&mut bytes, entry);
    bytes
}

pub(super) fn put_entry(to: &mut Vec<u8>, entry: &Entry) {
    put_log_id(to, &entry.log_id);
    match &entry.payload {
        EntryPayload::Blank => to.put_u8(BLANK),
        EntryPayload::Normal(Change(change)) => {
            to.put_u8(CHANGE);
            to.extend_from_slice(change);
        }
        EntryPayload::Membership(membership) => {
            to.put_u8(MEMBERSHIP);
            put_membership(to, membership);
        }
    }
}

pub(super) fn put_membership(to: &mut Vec<u8>, membership: &Membership<u64, ()>) {
    let configurations = membership.get_joint_config();
    to.put_u16_le(configurations.len() as u16);
    configurations.iter().for_each(|voters| put_nodes(to, voters));
    put_nodes(to, &membership.learner_ids().collect());
}

pub(super) fn get_membership(from: &mut impl Buf) -> Option<Membership<u64, ()>> {
    let configurations = from.try_get_u16_le().ok()?;
    let voters = (0..configurations).map(|_| get_nodes(from)).collect::<Option<Vec<_>>>()?;
    Some(Membership::new_with_defaults(voters, get_nodes(from)?))
}

fn put_nodes(to: &mut Vec<u8>, nodes: &BTreeSet<u64>) {
    to.put_u16_le(nodes.len() as u16);
    nodes.iter().for_each(|node| to.put_u64_le(*node));
}

fn get_nodes(from: &mut impl Buf) -> Option<BTreeSet<u64>> {
    let nodes = from.try_get_u16_le().ok()?;
    (0..nodes).map(|_| from.try_get_u64_le().ok()).collect()
}

pub(super) fn decode_entry(bytes: &Bytes) -> io::Result<Entry> {
    let mut rest = &bytes[..];
    let mut read = || {
        let log_id = get_log_id(&mut rest)?;
        let payload = match rest.try_get_u8().ok()? {
            BLANK => EntryPayload::Blank,
            CHANGE => EntryPayload::Normal(Change(bytes.slice_ref(std::mem::take(&mut rest)))),
            MEMBERSHIP => EntryPayload::Membership(get_membership(&mut rest)?),
            _ => return None,
        };
        rest.is_empty().then_some(Entry { log_id, payload })
    };
    read().ok_or_else(|| damaged("an entry"))
}

/// Content of the keyspace of a group before the log is applied to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// Nothing that is known: everything is in the log.
    Empty,
    /// All entries up to the id, with the membership there.
    Floor(LogId, StoredMembership),
    /// A part of a snapshot.
    Installing,
}

const FLOOR: u8 = 1;
const INSTALLING: u8 = 2;

pub(super) fn encode_base(base: &Base) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(96);
    match base {
        Base::Empty => (),
        Base::Floor(id, membership) => {
            bytes.put_u8(FLOOR);
            put_log_id(&mut bytes, id);
            put_log_id(&mut bytes, membership.log_id().as_ref().unwrap_or(id));
            put_membership(&mut bytes, membership.membership());
        }
        Base::Installing => bytes.put_u8(INSTALLING),
    }
    bytes
}

pub(super) fn decode_base(mut bytes: &[u8]) -> io::Result<Base> {
    let mut read = || {
        if bytes.is_empty() {
            return Some(Base::Empty);
        }
        let base = match bytes.try_get_u8().ok()? {
            FLOOR => {
                let (id, of_membership) = (get_log_id(&mut bytes)?, get_log_id(&mut bytes)?);
                Base::Floor(id, StoredMembership::new(Some(of_membership), get_membership(&mut bytes)?))
            }
            INSTALLING => Base::Installing,
            _ => return None,
        };
        bytes.is_empty().then_some(base)
    };
    read().ok_or_else(|| damaged("the floor"))
}

/// Encodes a leader's vote and the id of its snapshot, which every part of the snapshot carries.
pub(super) fn encode_proof(vote: &Vote, id: &LogId) -> Bytes {
    [encode_vote(vote), encode_log_id(id)].concat().into()
}

pub(super) fn decode_proof(bytes: &[u8]) -> io::Result<(Vote, LogId)> {
    let (vote, id) = bytes.split_at_checked(17).ok_or_else(|| damaged("a snapshot's id"))?;
    Ok((decode_vote(vote)?, decode_log_id(id)?))
}

/// Returns the term and the node of the leader of a proof. A later leader compares as greater.
///
/// # Errors
/// `InvalidData` if it does not decode.
pub(crate) fn leader_of_proof(bytes: &[u8]) -> io::Result<(u64, u64)> {
    let (vote, _) = decode_proof(bytes)?;
    Ok((vote.leader_id.term, vote.leader_id.node_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codec_round_trips_and_refuses_cut_bytes() {
        let log_id = LogId::new(LeaderId { term: 7, node_id: 2 }, 1 << 40);
        let voters = vec![BTreeSet::from([1, 2, 3]), BTreeSet::from([2, 3, u64::MAX])];
        for payload in [
            EntryPayload::Blank,
            EntryPayload::Normal(Change(Bytes::from_static(b"change"))),
            EntryPayload::Membership(Membership::new_with_defaults(voters, [9])),
        ] {
            let entry = Entry { log_id, payload };
            let bytes = Bytes::from(encode_entry(&entry));
            assert_eq!(decode_entry(&bytes).unwrap(), entry);
            let is_change = matches!(entry.payload, EntryPayload::Normal(_));
            for end in (0..bytes.len()).filter(|end| !is_change || *end < 25) {
                assert!(decode_entry(&bytes.slice(..end)).is_err(), "{entry:?} cut at {end}");
            }
        }
        assert_eq!(decode_log_id(&encode_log_id(&log_id)).unwrap(), log_id);
        let membership = Membership::new_with_defaults(vec![BTreeSet::from([1, 2])], [9]);
        let floor = Base::Floor(log_id, StoredMembership::new(Some(log_id), membership));
        for base in [Base::Empty, Base::Installing, floor] {
            let bytes = encode_base(&base);
            assert_eq!(decode_base(&bytes).unwrap(), base);
            assert!((1..bytes.len()).all(|end| decode_base(&bytes[..end]).is_err()), "{base:?}");
        }
        assert!(decode_base(&[3]).is_err() && decode_base(&[2, 0]).is_err());
        let proof = encode_proof(&Vote::new_committed(3, 4), &log_id);
        assert_eq!(decode_proof(&proof).unwrap(), (Vote::new_committed(3, 4), log_id));
        assert!((0..proof.len()).all(|end| decode_proof(&proof[..end]).is_err()));
        for vote in [Vote::new(1, 2), Vote::new_committed(3, 4)] {
            assert_eq!(decode_vote(&encode_vote(&vote)).unwrap(), vote);
        }
        assert!(decode_vote(&[0; 16]).is_err() && decode_vote(&[2; 17]).is_err());
    }
}
