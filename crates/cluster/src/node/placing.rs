//! The placement, decided by the leader of the meta group, and the orders of administrators.

use std::sync::atomic::Ordering;

use esker_engine::Batch;

use super::core::Node;
use crate::meta::table::{
    BALANCE_KEY, CLUSTER_KEY, ClusterRecord, PAUSED_KEY, drain_key, place_bytes, place_key,
};
use crate::peers::PeerResponse;
use crate::place::fleet::Fleet;
use crate::place::next::Decision;
use crate::place::report::Order;
use crate::view::PlannedMove;

/// Maximum number of decisions that are written at once, and of moves that are planned.
const DECISIONS_MAX: usize = 32;
const PLANNED_MAX: usize = 1024;

impl Node {
    /// Decides about the placement, if this node leads the meta group and no decision is on its way.
    pub(super) fn place(&self) {
        if !self.leads_meta() || self.fleet().next().is_none() {
            return;
        }
        if self.is_placing.swap(true, Ordering::Relaxed) {
            return;
        }
        let node = self.shared();
        let task = async move {
            if let Err(why) = node.place_now().await {
                tracing::info!("the placement of groups is put off: {why}");
            }
            node.is_placing.store(false, Ordering::Relaxed);
        };
        self.runtime().spawn("placement", Box::pin(task));
    }

    async fn place_now(&self) -> esker_engine::Result<()> {
        let _alone = self.changing.lock().await;
        // An order may have changed the table since.
        self.refresh().await?;
        let (mut fleet, mut batch) = (self.fleet(), Batch::new());
        for _ in 0..DECISIONS_MAX {
            let Some(decision) = fleet.next() else { break };
            fleet.decide(&decision);
            match decision {
                Decision::Place { group, nodes } => {
                    tracing::info!("group {group} belongs on nodes {nodes:016x?}");
                    batch.put(place_key(group), place_bytes(&nodes));
                }
                Decision::Balanced => {
                    tracing::info!("the groups of the nodes are even");
                    batch.delete(BALANCE_KEY);
                }
            }
        }
        if batch.is_empty() {
            return Ok(());
        }
        self.meta.write(batch).await?;
        self.refresh().await
    }

    /// Executes an order, if this node leads the meta group: checks it, and makes it durable.
    pub(super) async fn order_here(&self, order: Order) -> PeerResponse {
        if let Some(elsewhere) = self.meta_elsewhere() {
            return elsewhere;
        }
        let _alone = self.changing.lock().await;
        if let Err(error) = self.refresh().await {
            return self.not_written(error);
        }
        let fleet = self.fleet();
        if let Err(why) = fleet.check(order) {
            return PeerResponse::Refused(why);
        }
        if let Err(error) = self.meta.write(self.changes_of(order, &fleet)).await {
            return self.not_written(error);
        }
        tracing::info!("{order:x?} was ordered");
        match self.refresh().await {
            Ok(()) => PeerResponse::Done,
            Err(error) => self.not_written(error),
        }
    }

    fn changes_of(&self, order: Order, fleet: &Fleet) -> Batch {
        let mut batch = Batch::new();
        match order {
            Order::Drain { node, begins: true } => batch.put(drain_key(node), Vec::new()),
            Order::Drain { node, begins: false } => batch.delete(drain_key(node)),
            Order::Move { group, from, to } => {
                batch.put(place_key(group), place_bytes(&fleet.moved(group, from, to)))
            }
            Order::Replicas(replicas) => {
                let (cluster, groups) = (self.identity.cluster, self.groups.count());
                batch.put(CLUSTER_KEY, ClusterRecord { cluster, groups, replicas }.encode())
            }
            Order::Pause(true) => batch.put(PAUSED_KEY, Vec::new()),
            Order::Pause(false) => batch.delete(PAUSED_KEY),
            Order::Rebalance => batch.put(BALANCE_KEY, Vec::new()),
        };
        batch
    }

    /// Returns the changes that would follow if balancing were ordered now.
    pub(super) fn plan_moves(&self) -> Vec<PlannedMove> {
        let mut fleet = self.fleet();
        (fleet.is_balancing, fleet.is_paused) = (true, false);
        let mut moves = Vec::new();
        while moves.len() < PLANNED_MAX {
            // As if each change were complete before the next.
            for shard in fleet.shards.values_mut().filter(|shard| !shard.placed.is_empty()) {
                (shard.voters, shard.is_settled) = (shard.placed.clone(), true);
                shard.leader = shard.leader.or(shard.placed.first().copied());
            }
            let Some(decision) = fleet.next() else { break };
            let Decision::Place { group, nodes } = &decision else { break };
            let (before, bytes) =
                fleet.shards.get(group).map(|shard| (shard.placed.clone(), shard.bytes)).unwrap_or_default();
            let from = before.difference(nodes).next().copied();
            let to = nodes.difference(&before).next().copied();
            moves.push(PlannedMove { group: *group, from, to, bytes });
            fleet.decide(&decision);
        }
        moves
    }
}
