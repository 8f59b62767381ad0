//! The part of `esker calc` about the nodes of a cluster. Placement and moves are those of the function that places the groups of a
//! running cluster ([`Forecast`]).

use std::fmt::Write;

use esker_cluster::place::forecast::{Change, Forecast, Moves};
use esker_cluster::slots::{DATA_GROUPS, DATA_GROUPS_MAX, NODES_MAX};
use esker_cluster::wire::{HEARTBEAT_ANSWER_BYTES, HEARTBEAT_BYTES};
use esker_command::parse_capacity;
use esker_engine::sizing::EMPTY_INDEX_BYTES;
use serde::Serialize;

use super::model::{Estimate, Plan};
use super::seconds;
use crate::top::text::bytes;

/// Heartbeats of a leader to each other member, per second (`NodeSettings::heartbeat`).
const HEARTBEATS_PER_S: u64 = 10;
/// Bytes of Ethernet, IP and TCP around a frame.
const PACKET_BYTES: u64 = 66;
/// Reports of each node to the leader of the meta group per second, and the bytes of the answer for each node and each group.
const REPORTS_PER_S: f64 = 2.5;
const REPORT_NODE_BYTES: u64 = 35;
const REPORT_GROUP_BYTES: u64 = 80;
/// Bytes of a node and of a group in the meta group, with usual addresses.
const TABLE_NODE_BYTES: u64 = 100;
const TABLE_GROUP_BYTES: u64 = 40;
/// Least memory of a node, and that of the log and of requests of other nodes in work, in bytes.
const MEMORY_LEAST: u64 = 256 << 20;
const BESIDE_STORE_BYTES: u64 = 176 << 20;
/// Longest gap of writes after a kill in seconds (docs/benchmarks.md, failover).
const FAILOVER_SECONDS: f64 = 1.4;
/// Data groups per node for even loads: fewer differ by more than a quarter.
const EVEN_GROUPS: u64 = 4;

/// The nodes of a cluster.
#[derive(clap::Args)]
pub(super) struct Nodes {
    /// Number of nodes of a cluster; --keys are those of the cluster, drives and memory those of a node.
    #[arg(long, value_name = "NUMBER")]
    nodes: Option<u16>,
    /// Groups of the cluster (cluster-groups), 1 to 14.
    #[arg(long, value_name = "NUMBER", default_value_t = DATA_GROUPS, requires = "nodes",
        value_parser = clap::value_parser!(u8).range(1..=i64::from(DATA_GROUPS_MAX)))]
    groups: u8,
    /// Copies of each group (cluster-replicas): 1, 3 or 5.
    #[arg(long, value_name = "NUMBER", default_value_t = 3, requires = "nodes", value_parser = copies)]
    replicas: u8,
    /// Bytes a second at which a node sends or receives a copy of a group.
    #[arg(long, value_name = "SIZE", default_value = "100MB", requires = "nodes", value_parser = parse_capacity)]
    copy_rate: u64,
}

fn copies(text: &str) -> Result<u8, String> {
    let known = [1, 3, 5].into_iter().find(|copies: &u8| copies.to_string() == text);
    known.ok_or_else(|| format!("'{text}' copies are not possible; it must be 1, 3 or 5"))
}

/// Copies of groups that a change makes, and their time.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Moved {
    pub(super) copies: usize,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
}

/// The estimate of a cluster.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Cluster {
    pub(super) nodes: u16,
    pub(super) groups: u8,
    pub(super) replicas: u8,
    /// Keys of a group, and their keys and values in bytes.
    pub(super) group_keys: u64,
    pub(super) group_bytes: u64,
    /// Groups that a node holds: the least, the most, and the most after one loss.
    pub(super) held_least: u64,
    pub(super) held_most: u64,
    pub(super) held_after_loss: u64,
    /// Most groups that a node leads, and so fails over.
    pub(super) led_most: usize,
    /// Nodes that may be lost at the same time without loss of a write.
    pub(super) losses_survived: u8,
    /// Memory of a node in bytes, at least.
    pub(super) memory_bytes: u64,
    /// Moves after the loss of a node, an added node, and a drain; none if it is not possible.
    pub(super) loss: Option<Moved>,
    pub(super) addition: Option<Moved>,
    pub(super) drain: Option<Moved>,
    /// Heartbeats of all nodes with their answers.
    pub(super) heartbeats_per_s: u64,
    pub(super) heartbeat_bytes_per_s: u64,
    /// Reports and their answers at the leader of the meta group.
    pub(super) report_bytes_per_s: u64,
    /// Table of nodes and groups, which every node has.
    pub(super) table_bytes: u64,
    pub(super) warnings: Vec<String>,
}

impl Nodes {
    /// Returns the estimate of a cluster, and changes the plan to that of one node after the loss of another; `None` if the call is
    /// about one store.
    ///
    /// # Errors
    /// A text that names the value, the limit and the remedy.
    pub(super) fn estimate(&self, plan: &mut Plan) -> Result<Option<Cluster>, String> {
        let Some(nodes) = self.nodes else { return Ok(None) };
        if nodes == 0 || usize::from(nodes) > NODES_MAX {
            return Err(format!("--nodes is {nodes}; a cluster has 1 to {NODES_MAX} nodes"));
        }
        if nodes < u16::from(self.replicas) {
            let replicas = self.replicas;
            return Err(format!(
                "--replicas {replicas} needs at least {replicas} nodes, and --nodes is {nodes}"
            ));
        }
        if self.copy_rate == 0 {
            return Err("--copy-rate is 0; it must be more than 0, such as 100MB".into());
        }
        let group_keys = plan.keys.div_ceil(self.groups.into());
        let group_bytes = group_keys.saturating_mul(plan.key_bytes.saturating_add(plan.value_bytes));
        let forecast =
            || Forecast::new(nodes, self.groups, self.replicas, group_bytes).ok_or("there is no node");
        let placed = forecast()?;
        let (held_least, held_most) = placed.held();
        let mut lost = placed.clone();
        let loss = lost.change(Change::Loss);
        let held_after_loss = lost.held().1.max(held_most);
        let all = plan.keys;
        plan.keys = group_keys.saturating_mul(held_after_loss).min(all);
        plan.writes_per_day = plan.writes_per_day.map(|writes| {
            (u128::from(writes) * u128::from(held_after_loss) / u128::from(self.groups)) as u64
        });
        let moved = |moves: Moves| Moved {
            copies: moves.copies,
            bytes: group_bytes.saturating_mul(moves.copies as u64),
            seconds: moves.rounds as f64 * group_bytes as f64 / self.copy_rate as f64,
        };
        let changed = |change| placed.clone().change(change).map(moved);
        let (members, others) = (u64::from(self.replicas) - 1, u64::from(nodes) - 1);
        let heartbeats_per_s = HEARTBEATS_PER_S * (u64::from(self.groups) * members + others);
        let around = HEARTBEAT_BYTES + HEARTBEAT_ANSWER_BYTES + 2 * PACKET_BYTES;
        let answer = u64::from(nodes) * REPORT_NODE_BYTES + u64::from(self.groups) * REPORT_GROUP_BYTES;
        let table = u64::from(nodes) * TABLE_NODE_BYTES + u64::from(self.groups + 1) * TABLE_GROUP_BYTES;
        let mut of = Cluster {
            nodes,
            groups: self.groups,
            replicas: self.replicas,
            group_keys,
            group_bytes,
            held_least,
            held_most,
            held_after_loss,
            led_most: placed.led(),
            losses_survived: self.replicas / 2,
            memory_bytes: 0,
            loss: loss.map(moved),
            addition: if usize::from(nodes) < NODES_MAX { changed(Change::Addition) } else { None },
            drain: changed(Change::Drain),
            heartbeats_per_s,
            heartbeat_bytes_per_s: heartbeats_per_s * around,
            report_bytes_per_s: (others as f64 * REPORTS_PER_S * answer as f64) as u64,
            table_bytes: table,
            warnings: Vec::new(),
        };
        of.warnings = of.found();
        Ok(Some(of))
    }
}

impl Cluster {
    /// Sets the memory of a node from the estimate of its store.
    pub(super) fn set_memory(&mut self, node: &Estimate) {
        let indexes = (self.held_after_loss + 1) * EMPTY_INDEX_BYTES;
        let needed = node.memory_bytes.saturating_add(indexes).saturating_add(BESIDE_STORE_BYTES);
        self.memory_bytes = needed.max(MEMORY_LEAST);
    }

    fn found(&self) -> Vec<String> {
        let (nodes, copies) = (u64::from(self.nodes), u64::from(self.groups) * u64::from(self.replicas));
        let mut warnings = Vec::new();
        let mut warn = |is: bool, text: String| warnings.extend(is.then_some(text));
        warn(self.replicas == 1, "with one copy the loss of a node loses the keys of its groups".into());
        warn(
            self.replicas > 1 && u64::from(self.replicas) == nodes,
            format!("after a loss there is no node for copy {}: start another node then", self.replicas),
        );
        warn(
            nodes > copies,
            format!(
                "{} nodes hold nothing: {copies} copies of groups are fewer than the nodes",
                nodes - copies.min(nodes)
            ),
        );
        warn(
            nodes <= copies && copies < EVEN_GROUPS * nodes && self.held_least < self.held_most,
            format!(
                "loads are uneven: nodes hold {} to {} groups; take at most {} nodes, or up to {DATA_GROUPS_MAX} groups",
                self.held_least,
                self.held_most,
                (copies / EVEN_GROUPS).max(1)
            ),
        );
        warnings
    }

    /// Appends the lines about the cluster, which precede those about one node.
    pub(super) fn show(&self, text: &mut String) {
        let mut line = |name: &str, value: String, about: String| {
            let _ = writeln!(text, "{name:<22} {value:>12}   {about}");
        };
        let size = |number: u64| bytes(number as f64);
        let (nodes, groups, replicas) = (self.nodes, self.groups, self.replicas);
        line("nodes", nodes.to_string(), format!("{groups} groups with {replicas} copies"));
        line("a group", size(self.group_bytes), format!("keys and values of {} keys", self.group_keys));
        let held = match self.held_least == self.held_most {
            true => self.held_most.to_string(),
            false => format!("{} to {}", self.held_least, self.held_most),
        };
        let after = self.held_after_loss;
        line("groups of a node", held, format!("{after} after a loss, for which the lines about a node are"));
        line(
            "memory of a node",
            size(self.memory_bytes),
            "setting memory at least, with the log and the wire".into(),
        );
        line(
            "losses survived",
            self.losses_survived.to_string(),
            "nodes lost at the same time, without loss of a write".into(),
        );
        line(
            "failover",
            seconds(FAILOVER_SECONDS),
            format!("for the keys of at most {} of {groups} groups (docs/benchmarks.md)", self.led_most),
        );
        let changes =
            [("node lost", &self.loss), ("node added", &self.addition), ("node drained", &self.drain)];
        for (name, moved) in changes {
            match moved {
                Some(moved) => line(
                    name,
                    seconds(moved.seconds),
                    format!("{} copies, {} over the network", moved.copies, size(moved.bytes)),
                ),
                None => line(name, "-".into(), "not possible with these nodes and copies".into()),
            }
        }
        line(
            "heartbeats",
            format!("{}/s", self.heartbeats_per_s),
            format!("{} a second, all nodes together, idle", size(self.heartbeat_bytes_per_s)),
        );
        line(
            "reports",
            size(self.report_bytes_per_s),
            "a second, sent by the leader of the meta group".into(),
        );
        line("table of the nodes", size(self.table_bytes), "on every node".into());
        for warning in &self.warnings {
            let _ = writeln!(text, "\nwarning: {warning}");
        }
        text.push('\n');
    }
}
