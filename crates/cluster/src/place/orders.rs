//! The conditions of an order.

use std::collections::BTreeSet;

use esker_seeded_bugs::{Bug, planted};

use super::fleet::{Fleet, Machine, Shard};
use super::report::Order;
use crate::slots::META_GROUP;

const REPLICAS: [u8; 3] = [1, 3, 5];

impl Fleet {
    /// Checks an order.
    ///
    /// # Errors
    /// A text that names the numbers and the remedy.
    pub(crate) fn check(&self, order: Order) -> Result<(), String> {
        match order {
            Order::Drain { node, begins } => self.check_drain(node, begins),
            Order::Move { group, from, to } => self.check_move(group, from, to),
            Order::Replicas(replicas) => self.check_replicas(replicas),
            Order::Rebalance if self.is_paused => Err(PAUSED.into()),
            Order::Rebalance | Order::Pause(_) => Ok(()),
        }
    }

    fn machine(&self, node: u64) -> Result<&Machine, String> {
        self.nodes.get(&node).ok_or_else(|| format!("the cluster has no node {node:016x}"))
    }

    fn check_drain(&self, node: u64, begins: bool) -> Result<(), String> {
        let machine = self.machine(node)?;
        if !begins || machine.is_draining || planted(Bug::DrainBelowReplicas) {
            return Ok(());
        }
        let (in_use, replicas) = (self.in_use().count(), self.replicas);
        if in_use > replicas {
            return Ok(());
        }
        Err(format!(
            "draining node {node:016x} would leave {} nodes in use for {replicas} copies of each group; start another node \
             first (esker cluster add), or lower the number of copies (esker cluster replicas)",
            in_use - 1
        ))
    }

    fn check_move(&self, group: u8, from: u64, to: u64) -> Result<(), String> {
        let shard = self.shards.get(&group).filter(|_| group != META_GROUP);
        let shard = shard.ok_or_else(|| format!("{group} is no group of keys"))?;
        self.machine(from)?;
        let receiver = self.machine(to)?;
        if shard.placed.contains(&to) && !shard.placed.contains(&from) {
            return Ok(());
        }
        if self.is_paused {
            return Err(PAUSED.into());
        }
        if !shard.placed.contains(&from) {
            return Err(format!("node {from:016x} has no copy of group {group}"));
        }
        if shard.placed.contains(&to) {
            return Err(format!("node {to:016x} has a copy of group {group} already"));
        }
        if receiver.is_draining {
            return Err(format!(
                "node {to:016x} is being drained; end that first (esker cluster drain --cancel)"
            ));
        }
        if !receiver.is_reachable {
            return Err(format!("node {to:016x} does not answer; start it first"));
        }
        if shard.is_changing() {
            return Err(format!(
                "the members of group {group} are being changed; try again when esker cluster status shows it at rest"
            ));
        }
        self.check_room(group, shard, to, receiver)
    }

    fn check_room(&self, group: u8, shard: &Shard, to: u64, receiver: &Machine) -> Result<(), String> {
        let free = receiver.limit_bytes.saturating_sub(receiver.live_bytes);
        let needed = shard.bytes / 4 * 5;
        if receiver.limit_bytes == 0 || needed <= free {
            return Ok(());
        }
        Err(format!(
            "node {to:016x} has {free} bytes free, and group {group} needs about {needed}; choose another node, or raise its \
             capacity"
        ))
    }

    fn check_replicas(&self, replicas: u8) -> Result<(), String> {
        if !REPLICAS.contains(&replicas) {
            return Err(format!("the number of copies is {replicas}; it must be 1, 3 or 5"));
        }
        let (in_use, wanted) = (self.in_use().count(), usize::from(replicas));
        if wanted <= in_use || wanted <= self.replicas {
            return Ok(());
        }
        Err(format!(
            "{replicas} copies of each group need {replicas} nodes, and {in_use} are in use; start {} more first (esker \
             cluster add)",
            wanted - in_use
        ))
    }

    /// Returns the nodes of a group after a move.
    pub(crate) fn moved(&self, group: u8, from: u64, to: u64) -> BTreeSet<u64> {
        let placed = self.shards.get(&group).map(|shard| shard.placed.clone()).unwrap_or_default();
        placed.into_iter().filter(|node| *node != from).chain([to]).collect()
    }
}

const PAUSED: &str = "copies are paused; end that first (esker cluster resume)";
