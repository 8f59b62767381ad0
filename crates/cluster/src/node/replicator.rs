//! The cluster as the engine sees it.

use std::sync::{Arc, OnceLock, Weak};

use esker_engine::{ClusterError, Error, Proposal, Replicator, Result};
use futures_util::future::BoxFuture;

use super::core::Node;
use crate::group::Group;
use crate::slots::Groups;

/// The joint between a store and its node. The store is opened first, and the node holds the store: so this does not hold the
/// node.
pub(super) struct Joint {
    groups: Groups,
    node: OnceLock<Weak<Node>>,
}

impl Joint {
    pub(super) fn new(groups: Groups) -> Arc<Joint> {
        Arc::new(Joint { groups, node: OnceLock::new() })
    }

    /// Connects the node. Before it, and after its end, all groups are without a leader.
    pub(super) fn connect(&self, node: &Arc<Node>) {
        let is_first = self.node.set(Arc::downgrade(node)).is_ok();
        debug_assert!(is_first, "a store has one node");
    }

    fn none(&self, group: u8, why: String) -> Error {
        Error::Cluster(ClusterError::NoLeader { slot: self.groups.slots(group).start, why })
    }

    fn node(&self, group: u8) -> Result<Arc<Node>> {
        let node = self.node.get().and_then(Weak::upgrade);
        node.ok_or_else(|| self.none(group, "the node starts or stops".into()))
    }

    fn replica(&self, group: u8) -> Result<(Arc<Node>, Arc<Group>)> {
        let node = self.node(group)?;
        let replica = node.replica(group).cloned();
        Ok((node, replica.ok_or_else(|| self.none(group, format!("there is no group {group}")))?))
    }
}

impl Replicator for Joint {
    fn group_of(&self, key: &[u8]) -> u8 {
        self.groups.of_key(key)
    }

    fn term(&self, group: u8) -> Result<u64> {
        let node = self.node(group)?;
        node.check_group(group, node.first_slot(group)).map_err(Error::Cluster)
    }

    fn propose(&self, proposal: Proposal) -> BoxFuture<'static, Result<u64>> {
        let group = proposal.group;
        let (node, outcome) = match self.replica(group) {
            Ok((node, replica)) => (node, replica.propose(proposal)),
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        Box::pin(
            async move { outcome.await.map_err(|error| Error::Cluster(node.cluster_error(group, error))) },
        )
    }

    fn clear(&self, group: u8, held: Box<dyn Send>) -> BoxFuture<'static, Result<()>> {
        let (node, outcome) = match self.replica(group) {
            Ok((node, replica)) => (node, replica.clear(held)),
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        Box::pin(
            async move { outcome.await.map_err(|error| Error::Cluster(node.cluster_error(group, error))) },
        )
    }
}
