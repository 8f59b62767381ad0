//! The cluster as the server sees it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use esker_engine::ClusterError;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};

use super::core::Node;
use super::metrics::metrics;
use crate::peers::{PeerRequest, PeerResponse};
use crate::place::report::Order;
use crate::slots::{Groups, META_GROUP};
use crate::view::{
    ClusterView, CopyPart, CopyStep, KeptRecent, LeaderWatch, MessageWatch, Metric, PlannedMove, ReadMark,
    Topology,
};

impl ClusterView for Node {
    fn groups(&self) -> Groups {
        self.groups
    }

    fn topology(&self) -> Arc<Topology> {
        self.current_topology()
    }

    fn check_leads(&self, slot: u16) -> Result<(), ClusterError> {
        self.check_group(self.groups.of_slot(slot), slot).map(drop)
    }

    fn has_lease(&self, group: u8) -> bool {
        let has = self.replica(group).is_some_and(|replica| replica.has_lease());
        let count = if has { &self.lease_hits } else { &self.lease_misses };
        count.fetch_add(1, Ordering::Relaxed);
        has
    }

    fn confirm(&self, group: u8) -> BoxFuture<'static, Result<(), ClusterError>> {
        let node = self.shared();
        let Some(confirmed) = self.replica(group).map(|replica| replica.confirm()) else {
            let slot = self.first_slot(group);
            return Box::pin(std::future::ready(Err(ClusterError::NoLeader {
                slot,
                why: format!("there is no group {group}"),
            })));
        };
        Box::pin(async move { confirmed.await.map_err(|error| node.cluster_error(group, error)) })
    }

    fn keep_recent(&self) -> BoxFuture<'static, KeptRecent> {
        self.keep_replicas_recent()
    }

    fn mark(&self, group: u8) -> Option<ReadMark> {
        self.replica(group).filter(|replica| replica.holds())?.mark()
    }

    fn is_recent(&self, group: u8, mark: &ReadMark) -> bool {
        self.is_replica_recent(group, mark)
    }

    fn watch_leaders(&self, watch: Arc<dyn LeaderWatch>) {
        self.watches.lock().push(watch.clone());
        for group in self.groups.numbers().filter(|group| self.check_group(*group, 0).is_ok()) {
            watch.leads(group, true);
        }
    }

    fn replicated(&self, wanted: usize) -> BoxFuture<'static, usize> {
        let led = self.groups.numbers().filter(|group| self.check_group(*group, 0).is_ok());
        let counts: Vec<_> = led.filter_map(|group| Some(self.replica(group)?.replicated(wanted))).collect();
        let others =
            self.table.load().nodes.len().saturating_sub(1).min(usize::from(self.replicas_max()) - 1);
        async move { join_all(counts).await.into_iter().min().unwrap_or(others) }.boxed()
    }

    fn transfer(&self, group: u8, node: u64) -> BoxFuture<'static, Result<(), String>> {
        let this = self.shared();
        async move { this.move_lead(group, node).await }.boxed()
    }

    fn remove(&self, node: u64) -> BoxFuture<'static, Result<(), String>> {
        let this = self.shared();
        async move { this.ask_meta(PeerRequest::Remove { node }).await }.boxed()
    }

    fn order(&self, order: Order) -> BoxFuture<'static, Result<(), String>> {
        let this = self.shared();
        async move { this.ask_meta(PeerRequest::Order(order)).await }.boxed()
    }

    fn finalize(&self) -> BoxFuture<'static, Result<(), String>> {
        let this = self.shared();
        async move {
            // First here, because an earlier program that leads the meta group does not know the request.
            this.check_programs().await?;
            this.ask_meta(PeerRequest::Finalize).await
        }
        .boxed()
    }

    fn planned_moves(&self) -> Vec<PlannedMove> {
        self.plan_moves()
    }

    fn copy(&self, group: u8, step: CopyStep) -> BoxFuture<'static, Result<CopyPart, String>> {
        match self.replica(group) {
            Some(replica) => replica.copy(step),
            None => std::future::ready(Err(format!("there is no group {group}"))).boxed(),
        }
    }

    fn publish(&self, channel: Bytes, text: Bytes) {
        self.send_message(&channel, &text);
    }

    fn watch_messages(&self, watch: Arc<dyn MessageWatch>) {
        self.publishing.watch(watch);
    }

    fn check_served(&self) -> Result<(), String> {
        Node::check_served(self)
    }

    fn metrics(&self) -> Vec<Metric> {
        metrics(self)
    }
}

/// Number of nodes that are asked, one after the other: the leader changes if it is the one to be removed.
const ASKED_MAX: usize = 5;

impl Node {
    pub(super) async fn move_lead(&self, group: u8, node: u64) -> Result<(), String> {
        let replica = self.replica(group).ok_or_else(|| format!("there is no group {group}"))?;
        let me = self.identity.node;
        match self.leader(group) {
            None => Err(format!("group {group} has no leader at the moment; try again")),
            Some(leader) if leader == node => Ok(()),
            Some(leader) if leader == me => {
                let moved = replica.transfer(node).await.map_err(|error| error.to_string());
                self.transfers.fetch_add(u64::from(moved.is_ok()), Ordering::Relaxed);
                moved
            }
            Some(leader) => match self.call(leader, PeerRequest::Transfer { group, node }).await? {
                PeerResponse::Done => Ok(()),
                PeerResponse::Refused(why) => Err(why),
                other => Err(format!("node {leader:016x} answered a transfer with {other:?}")),
            },
        }
    }

    /// Asks the leader of the meta group, which may be this node or change, to remove a node or to execute an order.
    async fn ask_meta(&self, request: PeerRequest) -> Result<(), String> {
        let mut why = "the cluster has no leader of its nodes at the moment; try again".to_owned();
        for _ in 0..ASKED_MAX {
            let answer = match self.leader(META_GROUP) {
                Some(leader) if leader == self.identity.node => match request {
                    PeerRequest::Remove { node } => self.remove_here(node).await,
                    PeerRequest::Order(order) => self.order_here(order).await,
                    PeerRequest::Finalize => self.finalize_here().await,
                    _ => return Err("this is no request to the leader of the meta group".into()),
                },
                Some(leader) => match self.call(leader, request.clone()).await {
                    Ok(answer) => answer,
                    Err(failed) => PeerResponse::Ask(failed),
                },
                None => PeerResponse::Ask(why.clone()),
            };
            match answer {
                PeerResponse::Done => return Ok(()),
                PeerResponse::Refused(refused) => return Err(refused),
                PeerResponse::Ask(other) => why = other,
                other => return Err(format!("the leader of the meta group answered with {other:?}")),
            }
            self.runtime().sleep(self.settings.election.1).await;
        }
        Err(format!("no node that could do it has answered: {why}"))
    }
}
