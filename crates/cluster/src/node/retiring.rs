//! Gives the space of replicas back whose groups do not belong on this node any more. See `group/retiring.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;

use esker_seeded_bugs::{Bug, planted};

use super::core::Node;
use crate::group::Group;
use crate::peers::{PeerRequest, PeerResponse};
use crate::slots::META_GROUP;

impl Node {
    /// Returns the nodes that should vote in a group; `None` if that is not decided yet.
    pub(super) fn placed(&self, group: u8) -> Option<BTreeSet<u64>> {
        self.table.load().places.get(&group).cloned()
    }

    /// Returns true if the group belongs on this node, as far as is known.
    pub(super) fn is_placed(&self, group: u8) -> bool {
        let table = self.table.load();
        let placed = table.places.get(&group);
        group == META_GROUP || placed.is_none_or(|placed| placed.contains(&self.identity.node))
    }

    /// Returns true if the replica holds something of a group that does not belong here, and another node leads.
    pub(super) fn is_superfluous(&self, replica: &Group) -> bool {
        !self.is_placed(replica.number()) && replica.ready_term().is_err() && replica.holds()
    }

    /// Asks the leader of a group whether this node is a member still, and gives the space back if it is none.
    ///
    /// # Errors
    /// If it is a member, or that could not be found out.
    pub(super) async fn retire(&self, replica: &Arc<Group>) -> Result<(), String> {
        let (group, additions) = (replica.number(), replica.additions());
        let leader = self.leader(group).ok_or("the leader of the group is not known")?;
        let (nodes, id) = match self.call(leader, PeerRequest::Members { group }).await? {
            PeerResponse::Members { nodes, id } => (nodes, id),
            PeerResponse::Refused(why) => return Err(why),
            other => return Err(format!("node {leader:016x} answered {other:?}")),
        };
        if nodes.contains(&self.identity.node) && !planted(Bug::SpaceGivenBackEarly) {
            return Err("the node is a member still".into());
        }
        let additions = if planted(Bug::SpaceGivenBackEarly) { replica.additions() } else { additions };
        replica.retire(additions, &id).await?;
        tracing::info!("group {group} has left this node; its space is given back");
        Ok(())
    }
}
