//! Nodes and groups at one moment.

use std::sync::Arc;

use super::core::Node;
use crate::group::Group;
use crate::peers::ReplicaState;
use crate::view::{GroupInfo, NodeInfo, Topology};

impl Node {
    /// Returns nodes and groups now. The epoch rises if something has changed other than the progress of the logs.
    pub(super) fn current_topology(&self) -> Arc<Topology> {
        let me = self.identity.node;
        let node = |(id, record): (u64, crate::peers::PeerRecord)| NodeInfo {
            id,
            resp: record.resp,
            peers: record.peers,
            grpc: record.grpc,
            zone: record.zone,
            is_reachable: self.is_up(id),
            stopped: self.groups_in(id, ReplicaState::Stopped),
            installing: self.groups_in(id, ReplicaState::Installs),
        };
        let mut known = self.all_known();
        known.insert(me, self.record());
        let nodes = known.into_iter().map(node).collect();
        let groups = self.replicas.values().map(|replica| self.group_info(replica)).collect();
        let mut last = self.topology.lock();
        let mut now = Topology { epoch: last.epoch, me, nodes, groups };
        if now == **last {
            return last.clone();
        }
        if without_progress(&now) != without_progress(&last) {
            now.epoch += 1;
        }
        *last = Arc::new(now);
        last.clone()
    }

    fn group_info(&self, replica: &Group) -> GroupInfo {
        let (number, status) = (replica.number(), replica.status());
        GroupInfo {
            number,
            slots: self.groups.slots(number),
            leader: self.leader(number),
            is_served: self.is_served(number),
            term: status.term,
            voters: status.voters,
            learners: status.learners,
            last_index: status.last_index,
            applied: status.applied,
            floor: status.floor,
            matched: status.matched,
        }
    }
}

fn without_progress(topology: &Topology) -> Topology {
    let mut topology = topology.clone();
    for group in &mut topology.groups {
        (group.last_index, group.applied, group.floor) = (0, 0, 0);
        group.matched.clear();
    }
    topology
}
