//! Changes of the cluster's nodes, made by the leader of the meta group.

use std::collections::BTreeSet;

use esker_engine::{Batch, ClusterError, Error};

use super::core::Node;
use crate::levels::Levels;
use crate::meta::codec::check_record;
use crate::meta::table::{
    CLUSTER_KEY, ClusterRecord, LEVEL_KEY, drain_key, gone_key, level_bytes, node_key, place_bytes,
    place_key, record_bytes,
};
use crate::peers::{PeerRecord, PeerRequest, PeerResponse};
use crate::slots::{META_GROUP, NODES_MAX};

impl Node {
    /// Makes a node a member, or notes its new addresses. Answers with all nodes.
    pub(super) async fn admit(&self, record: PeerRecord) -> PeerResponse {
        if let Err(why) = check_record(&record) {
            return PeerResponse::Refused(why);
        }
        if record.store == self.identity.store && record.node != self.identity.node {
            return PeerResponse::Refused(
                "the node would join itself; name another node of the cluster".into(),
            );
        }
        if let Some(elsewhere) = self.meta_elsewhere() {
            return elsewhere;
        }
        let _alone = self.changing.lock().await;
        match self.add(&record).await {
            Ok(nodes) => {
                PeerResponse::Joined { cluster: self.identity.cluster, groups: self.groups.count(), nodes }
            }
            Err(answer) => answer,
        }
    }

    async fn add(&self, record: &PeerRecord) -> Result<Vec<PeerRecord>, PeerResponse> {
        let refused = |why: String| Err(PeerResponse::Refused(why));
        self.refresh().await.map_err(|error| self.not_written(error))?;
        let table = self.table.load_full();
        let node = record.node;
        if table.gone.contains_key(&node) {
            return refused(format!(
                "node {node:016x} was removed; join with an empty directory to become a new node"
            ));
        }
        let known = table.nodes.get(&node);
        if known.is_some_and(|known| known.store != record.store) {
            return refused(format!(
                "node {node:016x} is known with another store: its disk was replaced; join with an empty directory, and \
                 remove the node"
            ));
        }
        if known.is_none() && table.nodes.len() >= NODES_MAX {
            return refused(format!(
                "the cluster has {NODES_MAX} nodes, which is the limit; remove one first"
            ));
        }
        if known != Some(record) {
            let written = self.meta.put(node_key(node), record_bytes(record)).await;
            written.map_err(|error| self.not_written(error))?;
            tracing::info!("node {node:016x} at {} is a member now", record.peers);
            self.refresh().await.map_err(|error| self.not_written(error))?;
        } else if let Some(meta) = self.replica(META_GROUP) {
            // The answer is that of the leader, also if nothing is to be written.
            meta.confirm().await.map_err(|error| PeerResponse::Refused(error.to_string()))?;
        }
        let mut nodes = self.table.load().nodes.clone();
        nodes.insert(self.identity.node, self.record());
        Ok(nodes.into_values().collect())
    }

    /// Writes the settings of a cluster that this node founds, and its own record.
    ///
    /// # Errors
    /// The error of the write.
    pub(super) async fn write_settings(&self) -> esker_engine::Result<()> {
        let (cluster, groups) = (self.identity.cluster, self.groups.count());
        let record = ClusterRecord { cluster, groups, replicas: self.settings.replicas };
        let mut batch = Batch::new();
        batch.put(CLUSTER_KEY, record.encode());
        batch.put(LEVEL_KEY, level_bytes(Levels::supported().highest));
        batch.put(node_key(self.identity.node), record_bytes(&self.record()));
        let alone = place_bytes(&BTreeSet::from([self.identity.node]));
        for group in self.replicas.keys() {
            batch.put(place_key(*group), alone.clone());
        }
        self.meta.write(batch).await?;
        self.refresh().await
    }

    /// Returns the answer to a request that another node must handle; `None` if this one leads the meta group.
    pub(super) fn meta_elsewhere(&self) -> Option<PeerResponse> {
        if self.leads_meta() {
            return None;
        }
        let leader = self.leader(META_GROUP).filter(|leader| *leader != self.identity.node);
        Some(match leader.and_then(|leader| self.known(leader)) {
            Some(leader) => PeerResponse::Ask(leader.peers),
            None => PeerResponse::Refused(
                "the cluster has no leader of its nodes at the moment; try again".into(),
            ),
        })
    }

    /// Returns the answer to a request whose write failed.
    pub(super) fn not_written(&self, error: Error) -> PeerResponse {
        match error {
            Error::Cluster(ClusterError::Elsewhere { .. }) => self
                .meta_elsewhere()
                .unwrap_or_else(|| PeerResponse::Refused("the leader has changed; try again".into())),
            error => PeerResponse::Refused(error.to_string()),
        }
    }

    /// Removes a node, if this one leads the meta group.
    pub(super) async fn remove_here(&self, node: u64) -> PeerResponse {
        if let Some(elsewhere) = self.meta_elsewhere() {
            return elsewhere;
        }
        let _alone = self.changing.lock().await;
        if let Err(error) = self.refresh().await {
            return self.not_written(error);
        }
        let table = self.table.load_full();
        if table.gone.contains_key(&node) {
            return PeerResponse::Done;
        }
        let Some(record) = table.nodes.get(&node) else {
            return PeerResponse::Refused(format!("the cluster has no node {node:016x}"));
        };
        if let Err(why) = self.can_remove(node, &table.nodes.keys().copied().collect()) {
            return PeerResponse::Refused(why);
        }
        self.take_leads(node).await;
        if node == self.identity.node && self.leads_meta() {
            return PeerResponse::Refused(
                "the node leads the meta group, and could not hand it to another; try again".into(),
            );
        }
        if node == self.identity.node {
            return self.meta_elsewhere().unwrap_or_else(|| PeerResponse::Refused("try again".into()));
        }
        let mut batch = Batch::new();
        batch.put(gone_key(node), record.store.to_le_bytes().to_vec());
        batch.delete(node_key(node));
        batch.delete(drain_key(node));
        if let Err(error) = self.meta.write(batch).await {
            return self.not_written(error);
        }
        tracing::info!("node {node:016x} at {} was removed", record.peers);
        match self.refresh().await {
            Ok(()) => PeerResponse::Done,
            Err(error) => self.not_written(error),
        }
    }

    /// Checks that the node is drained, or does not answer, and that its groups keep a majority of voters that are reachable.
    fn can_remove(&self, node: u64, nodes: &BTreeSet<u64>) -> Result<(), String> {
        if nodes.len() < 2 {
            return Err("it is the only node of the cluster".into());
        }
        let topology = self.current_topology();
        let data = topology.groups.iter().filter(|group| group.number != META_GROUP);
        let copies =
            data.filter(|group| group.placed.contains(&node) || group.voters.contains(&node)).count();
        if self.is_up(node) && copies > 0 {
            return Err(format!(
                "node {node:016x} answers, and has copies of {copies} groups; drain it first (esker cluster drain), or stop it \
                 if it is to be given up"
            ));
        }
        let concerned = topology.groups.iter().filter(|group| group.voters.contains(&node));
        for group in concerned {
            let (number, voters) = (group.number, &group.voters);
            let left: Vec<_> =
                voters.iter().filter(|voter| **voter != node && nodes.contains(voter)).collect();
            let reachable = left.iter().filter(|voter| self.is_up(***voter)).count();
            if reachable * 2 <= left.len() {
                return Err(format!(
                    "group {number} would be left with {} voters, of which {reachable} are reachable: not a majority; \
                     start the others first",
                    left.len()
                ));
            }
        }
        Ok(())
    }

    /// Returns true if a node is this one, or answered within the last seconds.
    pub(super) fn is_up(&self, node: u64) -> bool {
        node == self.identity.node || self.peers.is_reachable(node)
    }

    /// Moves the groups that a node leads to others, as far as it answers: so that they need no election later.
    async fn take_leads(&self, node: u64) {
        for (number, replica) in &self.replicas {
            if self.leader(*number) != Some(node) {
                continue;
            }
            let voters = replica.status().voters;
            let Some(to) = voters.into_iter().find(|voter| *voter != node && self.is_up(*voter)) else {
                continue;
            };
            let moved = if node == self.identity.node {
                replica.transfer(to).await.map_err(|error| error.to_string())
            } else {
                self.call(node, PeerRequest::Transfer { group: *number, node: to }).await.map(drop)
            };
            if let Err(why) = moved {
                tracing::info!(
                    "group {number} is not handed over by node {node:016x}, which is being removed: {why}"
                );
            }
        }
    }
}
