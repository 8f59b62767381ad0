//! Identities: the nodes of the cluster, their live connections, and the rules by which a node is accepted.

use std::collections::BTreeMap;

use esker_seeded_bugs::{Bug, planted};
use tokio::sync::oneshot;

use super::hello::{Lane, Who};
use super::refusal::{Refusal, RefusalReason as Reason};
use crate::levels::FIRST_LEVEL;
use crate::peers::NodeIdentity;
use crate::peers::PeerRecord;
use crate::sightings::Sightings;

/// Nodes, their sightings, and live connections.
pub(super) struct Members {
    pub(super) me: NodeIdentity,
    /// Random number of this process.
    pub(super) instance: u64,
    pub(super) nodes: BTreeMap<u64, PeerRecord>,
    pub(super) sightings: Sightings,
    /// Level that the cluster uses.
    pub(super) level: u8,
    live: Vec<Live>,
    next: u64,
}

/// An authenticated connection.
struct Live {
    number: u64,
    way: Way,
    who: Who,
    /// Level of its frames.
    version: u8,
    /// Closes the connection, with a refusal for the peer.
    kick: Option<oneshot::Sender<Refusal>>,
}

/// Direction and purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    In(Lane),
    Out(Lane),
}

/// An accepted connection.
pub(super) struct Admitted {
    /// Number of the connection, for [`Members::leave`].
    pub(super) number: u64,
    /// Node of the peer, if it is a member.
    pub(super) node: Option<u64>,
    /// Completes when the connection has to end.
    pub(super) kicked: oneshot::Receiver<Refusal>,
}

fn refuse<T>(reason: Reason, text: String) -> Result<T, Refusal> {
    Err(Refusal::new(reason, text))
}

impl Members {
    pub(super) fn new(me: NodeIdentity, instance: u64) -> Members {
        Members {
            me,
            instance,
            nodes: BTreeMap::new(),
            sightings: Sightings::default(),
            level: FIRST_LEVEL,
            live: Vec::new(),
            next: 0,
        }
    }

    /// Accepts an authenticated peer, or returns why not. Its connections that this one replaces are closed.
    pub(super) fn admit(&mut self, who: &Who, way: Way, version: u8) -> Result<Admitted, Refusal> {
        if version < self.level && !planted(Bug::LowerLevelAdmitted) {
            return refuse(Reason::Version, self.lower_level(version));
        }
        let node = self.check(who, way).inspect_err(|refusal| {
            if refusal.reason == Reason::OldStarts {
                self.sightings.note_refused(&who.identity);
            }
        })?;
        if let Some(node) = node {
            self.check_copy(node, who)?;
            self.sightings.note_start(&who.identity);
            let is_replaced = |live: &Live| {
                let is_same = live.who.identity.node == node && live.who.identity.cluster != 0;
                is_same && (live.who.instance != who.instance || (live.way == way && way.is_replaced()))
            };
            let text = format!("replaced by a later connection of node {node}");
            self.kick(is_replaced, &Refusal::new(Reason::Copy, text));
        }
        self.next += 1;
        let (kick, kicked) = oneshot::channel();
        self.live.push(Live { number: self.next, way, who: who.clone(), version, kick: Some(kick) });
        Ok(Admitted { number: self.next, node, kicked })
    }

    /// Forgets a connection that ended.
    pub(super) fn leave(&mut self, number: u64) {
        self.live.retain(|live| live.number != number);
    }

    /// Returns the number of the member that the peer is, or `None` if it is none and may ask nevertheless.
    fn check(&self, who: &Who, way: Way) -> Result<Option<u64>, Refusal> {
        let (me, peer, address) = (self.me, who.identity, &who.address);
        if who.instance == self.instance {
            return refuse(Reason::Oneself, format!("the address {address} leads back to the node itself"));
        }
        if peer.store == me.store {
            let text = format!(
                "the node at {address} has a copy of the store of node {}; stop one of them, wipe it and let it join",
                me.node
            );
            return refuse(Reason::Copy, text);
        }
        match (me.cluster, peer.cluster, way) {
            (0, _, Way::In(_)) => {
                let text = format!("node {} is not a member of a cluster yet", me.node);
                return refuse(Reason::NotMember, text);
            }
            (_, 0, Way::Out(_)) => {
                return refuse(
                    Reason::NotMember,
                    format!("the node at {address} is not a member of a cluster yet"),
                );
            }
            (0, _, Way::Out(_)) | (_, 0, Way::In(_)) => return Ok(None),
            (ours, theirs, _) if ours != theirs => {
                let text = format!(
                    "the node at {address} is a member of the cluster {theirs:016x}, and node {} of {ours:016x}",
                    me.node
                );
                return refuse(Reason::OtherCluster, text);
            }
            _ => {}
        }
        self.check_member(who, way)
    }

    fn check_member(&self, who: &Who, way: Way) -> Result<Option<u64>, Refusal> {
        let (peer, address) = (who.identity, &who.address);
        let node = peer.node;
        if node == self.me.node {
            let text = format!("the node at {address} has the number {node}, too, with another store");
            return refuse(Reason::Copy, text);
        }
        match self.nodes.get(&node) {
            None if way == Way::Out(Lane::Once) => return Ok(None),
            None if planted(Bug::RemovedNodeAdmitted) => {}
            None => {
                let text = format!(
                    "node {node} at {address} is no member of the cluster: it was removed, or this node does not know \
                     it yet; a removed node joins again with an empty directory"
                );
                return refuse(Reason::UnknownNode, text);
            }
            Some(record) if record.store != peer.store && !planted(Bug::OtherStoreAdmitted) => {
                let text = format!(
                    "node {node} at {address} has the store {:016x} and joined with {:016x}: its disk was wiped or \
                     replaced; remove the node, and let it join as a new one",
                    peer.store, record.store
                );
                return refuse(Reason::OtherStore, text);
            }
            Some(_) => {}
        }
        match self.sightings.check(&peer) {
            Ok(()) => Ok(Some(node)),
            Err(why) => refuse(Reason::OldStarts, format!("node {node} at {address} {why}")),
        }
    }

    /// Refuses a second process of a node while the first is connected, unless it is a restart at the same address.
    fn check_copy(&self, node: u64, who: &Who) -> Result<(), Refusal> {
        let others = self.live.iter().filter(|live| {
            let is_same = live.who.identity.node == node && live.who.identity.cluster != 0;
            is_same && live.who.instance != who.instance
        });
        for Live { who: other, .. } in others {
            let is_copy = other.identity.starts == who.identity.starts || other.address != who.address;
            if is_copy && !planted(Bug::CopiedDiskAdmitted) {
                let text = format!(
                    "node {node} is connected from {} (start {}), and again from {} (start {}): its disk was copied; \
                     stop one of them",
                    other.address, other.identity.starts, who.address, who.identity.starts
                );
                return refuse(Reason::Copy, text);
            }
        }
        Ok(())
    }

    fn kick(&mut self, is_it: impl Fn(&Live) -> bool, refusal: &Refusal) {
        for live in self.live.iter_mut().filter(|live| is_it(live)) {
            if let Some(kick) = live.kick.take() {
                // The connection may have ended by itself.
                let _ = kick.send(refusal.clone());
            }
        }
        self.live.retain(|live| live.kick.is_some());
    }

    /// Sets the nodes, and closes connections of peers that are no longer accepted.
    pub(super) fn set_nodes(&mut self, nodes: impl Iterator<Item = PeerRecord>) {
        let me = self.me.node;
        self.nodes = nodes.filter(|record| record.node != me).map(|record| (record.node, record)).collect();
        let refused = self.live.iter().filter_map(|live| {
            let refusal = self.check(&live.who, live.way).err()?;
            Some((live.number, refusal))
        });
        let refused: Vec<_> = refused.collect();
        refused.iter().for_each(|(number, refusal)| self.kick(|live| live.number == *number, refusal));
    }

    fn lower_level(&self, version: u8) -> String {
        let level = self.level;
        format!(
            "the cluster uses level {level} of the protocol between nodes now, and the connection has level {version}"
        )
    }

    /// Raises the level that the cluster uses, and closes the connections of lower ones. They are opened anew, at the level, if the
    /// program of the other node has it.
    pub(super) fn set_level(&mut self, level: u8) {
        self.level = self.level.max(level);
        let lower: Vec<_> = self.live.iter().map(|live| live.version).filter(|it| *it < self.level).collect();
        if let Some(version) = lower.first().filter(|_| !planted(Bug::LowerLevelAdmitted)) {
            let (level, refusal) = (self.level, Refusal::new(Reason::Version, self.lower_level(*version)));
            self.kick(|live| live.version < level, &refusal);
        }
    }

    /// Sets the identity, and closes all connections, which were opened with another one.
    pub(super) fn set_identity(&mut self, me: NodeIdentity) {
        self.me = me;
        self.nodes.remove(&me.node);
        let text = format!("node {} has another identity now", me.node);
        self.kick(|_| true, &Refusal::new(Reason::NotMember, text));
    }

    /// Returns the number of authenticated connections of nodes that are no members.
    pub(super) fn guests(&self) -> usize {
        let is_guest = |live: &&Live| matches!(live.way, Way::In(_)) && live.who.identity.cluster == 0;
        self.live.iter().filter(is_guest).count()
    }

    /// Returns the number of authenticated connections.
    pub(super) fn connections(&self) -> usize {
        self.live.len()
    }
}

impl Way {
    /// Returns true if a node has one connection of this kind at a time.
    fn is_replaced(self) -> bool {
        matches!(self, Way::In(lane) | Way::Out(lane) if lane != Lane::Once)
    }
}
