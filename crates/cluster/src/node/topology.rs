//! Nodes and groups at one moment.

use std::sync::Arc;

use super::core::Node;
use crate::group::Group;
use crate::peers::{NodeDamage, ReplicaState};
use crate::slots::META_GROUP;
use crate::view::{GroupInfo, NodeInfo, Topology};

impl Node {
    /// Returns nodes and groups now. The epoch rises if something has changed other than the progress of the logs.
    pub(super) fn current_topology(&self) -> Arc<Topology> {
        let me = self.identity.node;
        let (table, reports) = (self.table.load(), self.reports.load());
        let node = |(id, record): (u64, crate::peers::PeerRecord)| NodeInfo {
            id,
            resp: record.resp,
            peers: record.peers,
            grpc: record.grpc,
            replica: record.replica,
            zone: record.zone,
            program: self.known_program(id),
            is_reachable: self.is_up(id),
            is_draining: table.draining.contains(&id),
            holds: reports
                .nodes
                .get(&id)
                .map_or(0, |report| (report.held & !(1 << META_GROUP)).count_ones() as usize),
            live_bytes: reports.nodes.get(&id).map_or(0, |report| report.live_bytes),
            limit_bytes: reports.nodes.get(&id).map_or(0, |report| report.limit_bytes),
            stopped: self.groups_in(id, ReplicaState::Stopped),
            installing: self.groups_in(id, ReplicaState::Installs),
            damage: self.known_damage(id),
        };
        let mut known = self.all_known();
        known.insert(me, self.record());
        let nodes = known.into_iter().map(node).collect();
        let groups = self.replicas.values().map(|replica| self.group_info(replica)).collect();
        let mut last = self.topology.lock();
        let mut now = Topology {
            epoch: last.epoch,
            me,
            nodes,
            groups,
            replicas: usize::from(self.replicas_max()),
            level: table.level(),
            is_paused: table.is_paused,
            is_balancing: table.is_balancing,
            copied_bytes_per_s: self.copy_rate.lock().bytes_per_s(),
        };
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
        let report = self.reports.load().groups.get(&number).cloned().unwrap_or_default();
        let info = GroupInfo {
            number,
            slots: self.groups.slots(number),
            placed: self.placed(number).into_iter().flatten().collect(),
            bytes: report.bytes,
            leader: self.leader(number),
            is_served: self.is_served(number),
            term: status.term,
            voters: status.voters,
            is_settled: status.membership_is_settled,
            learners: status.learners,
            last_index: status.last_index,
            applied: status.applied,
            floor: status.floor,
            matched: status.matched,
        };
        let is_member = !info.voters.is_empty() || report.voters.contains(&self.identity.node);
        match self.is_placed(number) && (is_member || report.voters.is_empty()) {
            true => info,
            // The replica is empty, gets its first copy, or has not heard that it left the group.
            false => GroupInfo {
                term: report.term,
                voters: report.voters,
                is_settled: report.is_settled,
                learners: report.learners,
                last_index: report.last_index,
                applied: 0,
                floor: 0,
                ..info
            },
        }
    }
}

fn without_progress(topology: &Topology) -> Topology {
    let mut topology = topology.clone();
    topology.copied_bytes_per_s = 0;
    for node in &mut topology.nodes {
        (node.live_bytes, node.limit_bytes, node.damage) = (0, 0, NodeDamage::default());
    }
    for group in &mut topology.groups {
        (group.last_index, group.applied, group.floor, group.bytes) = (0, 0, 0, 0);
        group.matched.clear();
    }
    topology
}
