//! Reports of nodes about themselves and the groups that they lead. Each node reports to the leader of the meta group, whose
//! answer has the reports of all: so every node knows the leader of each group, whether it holds a replica or not.
//!
//! Reports are advice: the members of a group are decided by its log, the placement by the log of the meta group.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::core::Node;
use crate::group::Group;
use crate::peers::{PeerRequest, PeerResponse};
use crate::place::fleet::{Fleet, Machine, Shard};
use crate::place::report::{GroupReport, NodeReport};
use crate::slots::META_GROUP;

impl Node {
    /// Takes over reports, and drops those of nodes that were removed.
    pub(super) fn note_reports(&self, later: Vec<NodeReport>) {
        let table = self.table.load();
        let is_known = |node| table.nodes.contains_key(&node) || node == self.identity.node;
        self.reports.rcu(|known| known.with(later.clone(), is_known));
        let copied = self.reports.load().copied_bytes();
        self.copy_rate.lock().note(self.runtime().now(), copied);
    }

    /// Answers a report of another node, if this one leads the meta group.
    pub(super) fn take_report(&self, from: u64, report: NodeReport) -> PeerResponse {
        if report.node != from {
            return PeerResponse::Refused(format!("node {from:016x} reports as node {:016x}", report.node));
        }
        if let Some(elsewhere) = self.meta_elsewhere() {
            return elsewhere;
        }
        self.note_reports(vec![report]);
        PeerResponse::Reports(self.reports.load().nodes.values().cloned().collect())
    }

    /// Sends the report of this node to the leader of the meta group, unless one is on its way.
    pub(super) fn report(&self) {
        if self.is_reporting.swap(true, Ordering::Relaxed) {
            return;
        }
        let node = self.shared();
        let task = async move {
            node.exchange_reports().await;
            node.is_reporting.store(false, Ordering::Relaxed);
        };
        self.runtime().spawn("report", Box::pin(task));
    }

    async fn exchange_reports(&self) {
        let own = self.own_report();
        // This node's own report counts here at once, whether another node receives it or not.
        self.note_reports(vec![own.clone()]);
        let leader = self.leader(META_GROUP).filter(|leader| *leader != self.identity.node);
        let Some(leader) = leader else { return };
        if let Ok(PeerResponse::Reports(reports)) = self.call(leader, PeerRequest::Report(own)).await {
            let of_others = reports.into_iter().filter(|report| report.node != self.identity.node);
            self.note_reports(of_others.collect());
        }
    }

    fn own_report(&self) -> NodeReport {
        let stats = self.meta.stats();
        let of_group = |replica: &Arc<Group>| self.group_report(replica, stats.live_bytes, stats.keys);
        let held = self.replicas.values().filter(|replica| replica.holds());
        NodeReport {
            node: self.identity.node,
            live_bytes: stats.live_bytes,
            limit_bytes: stats.user_limit_bytes,
            copied_bytes: self.replicas.values().map(|replica| replica.copied_bytes()).sum(),
            held: held.fold(0, |held, replica| held | 1 << replica.number()),
            groups: self.replicas.values().filter_map(of_group).collect(),
        }
    }

    /// Returns the report of a group that this node leads.
    fn group_report(&self, replica: &Arc<Group>, live_bytes: u64, keys: u64) -> Option<GroupReport> {
        let term = replica.ready_term().ok()?;
        let (status, share) = (replica.status(), u128::from(replica.keys()));
        let bytes = share * u128::from(live_bytes) / u128::from(keys.max(1));
        Some(GroupReport {
            group: replica.number(),
            term,
            leader: self.identity.node,
            is_settled: status.membership_is_settled,
            last_index: status.last_index,
            bytes: u64::try_from(bytes).unwrap_or(u64::MAX),
            voters: status.voters,
            learners: status.learners,
        })
    }

    /// Returns nodes and groups, as far as this node knows them.
    pub(super) fn fleet(&self) -> Fleet {
        let (table, reports) = (self.table.load(), self.reports.load());
        let nodes = table.nodes.iter().map(|(node, record)| {
            let report = reports.nodes.get(node);
            let machine = Machine {
                zone: record.zone.clone(),
                is_draining: table.draining.contains(node),
                is_reachable: self.is_up(*node),
                live_bytes: report.map_or(0, |report| report.live_bytes),
                limit_bytes: report.map_or(0, |report| report.limit_bytes),
            };
            (*node, machine)
        });
        let shards = self.replicas.keys().map(|group| {
            let report = reports.groups.get(group).cloned().unwrap_or_default();
            let shard = Shard {
                placed: table.places.get(group).cloned().unwrap_or_default(),
                voters: report.voters.into_iter().collect(),
                is_settled: report.is_settled,
                leader: Some(report.leader).filter(|leader| *leader != 0),
                bytes: report.bytes,
            };
            (*group, shard)
        });
        Fleet {
            nodes: nodes.collect(),
            shards: shards.collect(),
            replicas: usize::from(self.replicas_max()),
            is_paused: table.is_paused,
            is_balancing: table.is_balancing,
        }
    }
}
