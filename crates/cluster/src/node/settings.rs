//! Settings of a node.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use esker_device::Runtime;

use super::error::NodeError;
use crate::group::GroupSettings;
use crate::slots::DATA_GROUPS_MAX;

/// The way of a store into a cluster. A member may keep the setting with which it began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begin {
    /// Founds a cluster, with this number of data groups.
    Found {
        /// Number of data groups, 1 to [`DATA_GROUPS_MAX`].
        groups: u8,
    },
    /// Joins the cluster of the nodes at these addresses, `host:port`. For a member they have no effect, unless it knows none of
    /// them: then it checks that they are of its cluster.
    Join {
        /// Addresses for other nodes; one that answers suffices.
        addresses: Vec<String>,
    },
    /// The store is a member already.
    Member,
    /// The store is a member of a cluster whose majority is lost for good, and becomes the only node of a new one. Writes that
    /// only other nodes had are lost.
    Recover {
        /// Groups of which it has nothing, and which begin empty.
        without: Vec<u8>,
    },
}

/// Settings of a node.
#[derive(Clone)]
pub struct NodeSettings {
    /// Way into a cluster if the store is no member of one.
    pub begin: Begin,
    /// Address for other nodes, `host:port`, as they reach it.
    pub peers: String,
    /// Address for clients of the Redis protocol, `host:port`, as they reach it.
    pub resp: String,
    /// Address for gRPC clients.
    pub grpc: Option<String>,
    /// Address for clients of the Redis protocol that read from replicas, `host:port`, as they reach it.
    pub replica: Option<String>,
    /// Maximum time by which a replica that answers reads may be behind its leader.
    pub staleness: Duration,
    /// Zone of the node, or an empty text. Voters are in different zones where that is possible.
    pub zone: String,
    /// Maximum number of voters of a group: 1, 3 or 5.
    pub replicas: u8,
    /// Interval between heartbeats.
    pub heartbeat: Duration,
    /// Range of the time after which a follower that hears of no leader stands for election, in addition to its lease.
    pub election: (Duration, Duration),
    /// Limits of each replica; its heartbeat and election times are those above.
    pub group: GroupSettings,
    /// Time, randomness and tasks.
    pub runtime: Arc<dyn Runtime>,
}

impl NodeSettings {
    /// Returns settings with default times and three replicas.
    pub fn new(
        begin: Begin,
        peers: impl Into<String>,
        resp: impl Into<String>,
        runtime: Arc<dyn Runtime>,
    ) -> NodeSettings {
        NodeSettings {
            begin,
            peers: peers.into(),
            resp: resp.into(),
            grpc: None,
            replica: None,
            staleness: Duration::from_millis(500),
            zone: String::new(),
            replicas: 3,
            heartbeat: Duration::from_millis(100),
            election: (Duration::from_millis(500), Duration::from_millis(700)),
            group: GroupSettings::default(),
            runtime,
        }
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// [`NodeError::Settings`], which names the setting.
    pub fn check(&self) -> Result<(), NodeError> {
        let refused = |what: String| Err(NodeError::Settings(what));
        if ![1, 3, 5].contains(&self.replicas) {
            return refused(format!("replicas is {}; it must be 1, 3 or 5", self.replicas));
        }
        let (least, most) = self.election;
        if self.heartbeat.is_zero() || self.heartbeat * 3 > least || least >= most {
            return refused(format!(
                "the heartbeat of {:?} must be at most a third of the shortest election timeout, {least:?}, which must be \
                 shorter than the longest, {most:?}",
                self.heartbeat
            ));
        }
        if self.staleness < self.heartbeat * 2 {
            return refused(format!(
                "the staleness of {:?} must be at least two heartbeats, {:?}, because a replica hears of commits by them",
                self.staleness,
                self.heartbeat * 2
            ));
        }
        match &self.begin {
            Begin::Found { groups } if !(1..=DATA_GROUPS_MAX).contains(groups) => {
                refused(format!("groups is {groups}; it must be 1 to {DATA_GROUPS_MAX}"))
            }
            // The same list may be given to every node.
            Begin::Join { addresses }
                if !addresses.is_empty() && addresses.iter().all(|one| *one == self.peers) =>
            {
                Err(NodeError::JoinsItself(self.peers.clone()))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for NodeSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeSettings")
            .field("begin", &self.begin)
            .field("peers", &self.peers)
            .field("resp", &self.resp)
            .field("grpc", &self.grpc)
            .field("replica", &self.replica)
            .field("staleness", &self.staleness)
            .field("zone", &self.zone)
            .field("replicas", &self.replicas)
            .field("heartbeat", &self.heartbeat)
            .field("election", &self.election)
            .finish_non_exhaustive()
    }
}
