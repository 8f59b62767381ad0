//! The identity of a node, durable in the states of the store's log.
//!
//! ```text
//! identity: version (1) | phase (1) | founder (1) | cluster (8) | node (8) | store (8) | groups (1) | nodes (2) of records
//! ```
//!
//! The number of starts (8) and the last ones are a state of their own, durable before another node hears of this one. So are the
//! sightings of other nodes: node (8) | starts (8) | instance (8) | position (8) for each.

use bytes::{Buf, BufMut};
use esker_engine::GroupLog;
use esker_seeded_bugs::{Bug, planted};

use super::error::NodeError;
use crate::meta::codec::{get_record, put_record};
use crate::peers::PeerRecord;
use crate::sightings::{Sighting, Start, StartHistory};

/// Number of the group whose states hold the identity. No group has this number.
pub(super) const IDENTITY_GROUP: u8 = 255;
const IDENTITY: u8 = 0;
const STARTS: u8 = 1;
/// Number of the state with the sightings of other nodes.
const SEEN: u8 = 3;
const VERSION: u8 = 1;

/// The progress of a store on its way into a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It founds a cluster, and its groups may not have been founded yet.
    Founding,
    /// It asks to join, with the numbers that it drew.
    Joining,
    /// It is a member.
    Member,
    /// It was a member, and has lost records.
    Lost,
}

/// The identity of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    /// Progress of the store.
    pub(super) phase: Phase,
    /// True if the store founded its cluster.
    pub(super) is_founder: bool,
    /// Identity of the cluster; 0 while the node joins.
    pub(super) cluster: u64,
    /// Number of the node.
    pub(super) node: u64,
    /// Identity of the store.
    pub(super) store: u64,
    /// Number of data groups; 0 while the node joins.
    pub(super) groups: u8,
    /// The nodes of the cluster when this one joined. Used until the meta group has nodes.
    pub(super) nodes: Vec<PeerRecord>,
}

impl Identity {
    /// Reads the identity from a log; `None` if the store never had one.
    ///
    /// # Errors
    /// [`NodeError::Damaged`].
    pub(super) fn read(log: &GroupLog) -> Result<Option<Identity>, NodeError> {
        let state = log.state(IDENTITY_GROUP, IDENTITY);
        state.map(|bytes| Identity::decode(&bytes).ok_or(NodeError::Damaged)).transpose()
    }

    /// Writes the identity. Durable on return.
    ///
    /// # Errors
    /// The error of the log.
    pub(super) async fn write(&self, log: &GroupLog) -> Result<(), NodeError> {
        Ok(log.set_state(IDENTITY_GROUP, IDENTITY, &self.encode()).await?.durable().await?)
    }

    fn encode(&self) -> Vec<u8> {
        let phase = match self.phase {
            Phase::Founding => 0,
            Phase::Joining => 1,
            Phase::Member => 2,
            Phase::Lost => 3,
        };
        let mut bytes = vec![VERSION, phase, self.is_founder.into()];
        [self.cluster, self.node, self.store].into_iter().for_each(|number| bytes.put_u64_le(number));
        bytes.put_u8(self.groups);
        bytes.put_u16_le(self.nodes.len() as u16);
        self.nodes.iter().for_each(|record| put_record(&mut bytes, record));
        bytes
    }

    fn decode(mut bytes: &[u8]) -> Option<Identity> {
        if bytes.try_get_u8().ok()? != VERSION {
            return None;
        }
        let phase = match bytes.try_get_u8().ok()? {
            0 => Phase::Founding,
            1 => Phase::Joining,
            2 => Phase::Member,
            3 => Phase::Lost,
            _ => return None,
        };
        let is_founder = bytes.try_get_u8().ok()? == 1;
        let mut number = || bytes.try_get_u64_le().ok();
        let (cluster, node, store) = (number()?, number()?, number()?);
        let groups = bytes.try_get_u8().ok()?;
        let count = bytes.try_get_u16_le().ok()?;
        let nodes = (0..count).map(|_| get_record(&mut bytes)).collect::<Option<_>>()?;
        bytes.is_empty().then_some(Identity { phase, is_founder, cluster, node, store, groups, nodes })
    }
}

/// Returns the sightings of other nodes that the log holds.
pub(super) fn sightings(log: &GroupLog) -> Vec<Sighting> {
    let state = log.state(IDENTITY_GROUP, SEEN).unwrap_or_default();
    let (rows, _) = state.as_chunks::<32>();
    let read = |mut row: &[u8]| Sighting {
        node: row.get_u64_le(),
        starts: row.get_u64_le(),
        instance: row.get_u64_le(),
        position: row.get_u64_le(),
    };
    rows.iter().map(|row| read(row)).collect()
}

/// Writes the sightings of other nodes to the log. Durable on return.
///
/// # Errors
/// The error of the log.
pub(super) async fn note_sightings(log: &GroupLog, seen: &[Sighting]) -> Result<(), NodeError> {
    let mut bytes = Vec::with_capacity(32 * seen.len());
    for Sighting { node, starts, instance, position } in seen {
        [node, starts, instance, position].into_iter().for_each(|number| bytes.put_u64_le(*number));
    }
    Ok(log.set_state(IDENTITY_GROUP, SEEN, &bytes).await?.durable().await?)
}

/// Counts a start of the store with a random number, durably. Returns the number of starts, and the last ones.
///
/// # Errors
/// The error of the log.
pub(super) async fn count_start(log: &GroupLog, instance: u64) -> Result<(u64, StartHistory), NodeError> {
    let (before, history) = match log.state(IDENTITY_GROUP, STARTS) {
        None => (0, StartHistory::default()),
        Some(bytes) => {
            let mut bytes = &bytes[..];
            let before = bytes.try_get_u64_le().map_err(|_| NodeError::Damaged)?;
            // Stores of the first version of clusters have the number alone.
            let history = StartHistory::take(&mut bytes).unwrap_or_default();
            (before, history)
        }
    };
    let (starts, start) = (before + 1, Start { instance, position: log.found_records() });
    let history = history.with(start);
    let mut bytes = starts.to_le_bytes().to_vec();
    history.put(&mut bytes);
    let written = log.set_state(IDENTITY_GROUP, STARTS, &bytes).await?;
    if !planted(Bug::StartsNotDurable) {
        written.durable().await?;
    }
    Ok((starts, history))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_survives_encoding_and_a_cut_is_damage() {
        let record = |node| PeerRecord {
            node,
            store: 9,
            peers: "a:1".into(),
            resp: "a:2".into(),
            grpc: Some("a:3".into()),
            replica: Some("a:4".into()),
            zone: "z".into(),
        };
        for phase in [Phase::Founding, Phase::Joining, Phase::Member, Phase::Lost] {
            let nodes = vec![record(1), record(2)];
            let identity =
                Identity { phase, is_founder: true, cluster: 5, node: u64::MAX, store: 3, groups: 12, nodes };
            let bytes = identity.encode();
            assert_eq!(Identity::decode(&bytes), Some(identity));
            for end in 0..bytes.len() {
                assert_eq!(Identity::decode(&bytes[..end]), None, "cut at {end}");
            }
        }
    }
}
