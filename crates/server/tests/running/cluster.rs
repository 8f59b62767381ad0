//! A cluster that a test directs: three groups, of which this node leads the first two.
//!
//! Keys: `b` is in group 1 (slot 3300), `c` in group 2 (slot 7365), `a` in group 3 (slot 15495).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use esker_cluster::place::report::Order;
use esker_cluster::slots::{Groups, META_GROUP};
use esker_cluster::view::{
    ClusterView, CopyPart, CopyStep, GroupInfo, KeptRecent, LeaderWatch, MessageWatch, Metric, NodeInfo,
    PlannedMove, ReadMark, Topology,
};
use esker_engine::ClusterError;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};

/// Number of this node, and of the leader of the third group.
pub(crate) const ME: u64 = 0xa1;
pub(crate) const OTHER: u64 = 0xb2;

/// Address of the other node.
pub(crate) const ELSEWHERE: &str = "10.0.0.2:7002";

#[derive(Default)]
pub(crate) struct State {
    /// Groups that are not led here, and why.
    pub(crate) refused: BTreeMap<u8, ClusterError>,
    /// Groups without a lease.
    pub(crate) without_lease: Vec<u8>,
    /// True if this node loses and regains a group before a lease is checked.
    pub(crate) changes_leader: bool,
    /// Number of checks of leases after which all fail, if set.
    pub(crate) leases_left: Option<usize>,
    /// Groups whose confirmations fail, and why.
    pub(crate) unconfirmed: BTreeMap<u8, ClusterError>,
    /// Confirmations so far.
    pub(crate) confirmations: Vec<u8>,
    /// Addresses of the nodes for reads from replicas, by number of the node.
    pub(crate) replicas: BTreeMap<u64, String>,
    /// Groups whose replicas here are not recent.
    pub(crate) stale: Vec<u8>,
    /// Groups without a copy here.
    pub(crate) not_held: Vec<u8>,
    /// Connections that read from replicas.
    pub(crate) readers: Arc<()>,
    /// True if the other node does not answer.
    pub(crate) is_alone: bool,
    /// Groups without a known leader.
    pub(crate) without_leader: Vec<u8>,
    /// Groups that this node receives, so that it knows nothing of them.
    pub(crate) installing: Vec<u8>,
    /// Reason why groups are not served, or replicas have stopped.
    pub(crate) unserved: Option<String>,
    /// Transfers and removals that were asked for.
    pub(crate) asked: Vec<String>,
    /// Messages for other nodes.
    pub(crate) published: Vec<String>,
    messages: Option<Arc<dyn MessageWatch>>,
    watches: Vec<Arc<dyn LeaderWatch>>,
}

#[derive(Default)]
pub(crate) struct Directed(Mutex<State>);

pub(crate) fn elsewhere(slot: u16) -> ClusterError {
    ClusterError::Elsewhere { slot, to: ELSEWHERE.to_owned() }
}

impl Directed {
    pub(crate) fn new() -> Arc<Directed> {
        let cluster = Directed::default();
        cluster.state().refused.insert(3, elsewhere(10_923));
        Arc::new(cluster)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Reports a change of leadership.
    pub(crate) fn change_leader(&self, group: u8, leads: bool) {
        let watches = self.state().watches.clone();
        watches.iter().for_each(|watch| watch.leads(group, leads));
    }

    /// Delivers a message of another node.
    pub(crate) fn receive(&self, channel: &str, text: &str) {
        let watch = self.state().messages.clone().expect("the server listens");
        watch.published(channel.as_bytes(), text.as_bytes());
    }

    fn group(&self, number: u8) -> GroupInfo {
        let is_installing = self.state().installing.contains(&number);
        let is_led = !is_installing && !self.state().without_leader.contains(&number);
        let is_here = is_led && !self.state().refused.contains_key(&number);
        let slots = self.groups().slots(number);
        GroupInfo {
            number,
            slots,
            leader: is_led.then_some(if is_here { ME } else { OTHER }),
            is_served: is_led,
            term: u64::from(number),
            voters: if is_installing { Vec::new() } else { vec![ME, OTHER] },
            is_settled: true,
            learners: vec![0xc3],
            placed: vec![ME, OTHER, 0xc3],
            bytes: 1 << 20,
            last_index: 100,
            applied: 90,
            floor: 50,
            matched: if is_here { vec![(OTHER, 97), (0xc3, 40)] } else { Vec::new() },
        }
    }
}

impl ClusterView for Directed {
    fn groups(&self) -> Groups {
        Groups::new(3).unwrap()
    }

    fn topology(&self) -> Arc<Topology> {
        let is_alone = self.state().is_alone;
        let node = |id, resp: &str, peers: &str, grpc: Option<&str>| NodeInfo {
            id,
            resp: resp.to_owned(),
            peers: peers.to_owned(),
            grpc: grpc.map(str::to_owned),
            zone: String::new(),
            is_reachable: id != 0xc3 && (id == ME || !is_alone),
            replica: self.state().replicas.get(&id).cloned(),
            ..NodeInfo::default()
        };
        let nodes = vec![
            node(ME, "10.0.0.1:7001", "10.0.0.1:8001", None),
            node(OTHER, ELSEWHERE, "10.0.0.2:8002", Some("10.0.0.2:9002")),
            node(0xc3, "[::1]:7003", "[::1]:8003", None),
        ];
        let meta = GroupInfo { slots: 0..0, term: 9, ..self.group(META_GROUP) };
        let groups = (1..=3).map(|number| self.group(number)).chain([meta]).collect();
        Arc::new(Topology { epoch: 7, me: ME, nodes, groups, replicas: 3, ..Topology::default() })
    }

    fn check_leads(&self, slot: u16) -> Result<(), ClusterError> {
        let refused = self.state().refused.get(&self.groups().of_slot(slot)).cloned();
        refused.map_or(Ok(()), |error| {
            Err(match error {
                ClusterError::Elsewhere { to, .. } => ClusterError::Elsewhere { slot, to },
                ClusterError::NoLeader { why, .. } => ClusterError::NoLeader { slot, why },
                _ => ClusterError::NotReady { slot },
            })
        })
    }

    fn has_lease(&self, group: u8) -> bool {
        if std::mem::take(&mut self.state().changes_leader) {
            self.change_leader(group, false);
            self.change_leader(group, true);
        }
        let mut state = self.state();
        let is_left = state.leases_left.is_none_or(|left| left > 0);
        state.leases_left = state.leases_left.map(|left| left.saturating_sub(1));
        is_left && !state.without_lease.contains(&group)
    }

    fn confirm(&self, group: u8) -> BoxFuture<'static, Result<(), ClusterError>> {
        let mut state = self.state();
        state.confirmations.push(group);
        let failed = state.unconfirmed.get(&group).cloned();
        // Not at once, as a majority needs a round trip.
        async move {
            tokio::task::yield_now().await;
            failed.map_or(Ok(()), Err)
        }
        .boxed()
    }

    fn keep_recent(&self) -> BoxFuture<'static, KeptRecent> {
        let kept: KeptRecent = Box::new(self.state().readers.clone());
        ready(kept).boxed()
    }

    fn mark(&self, group: u8) -> Option<ReadMark> {
        let is_held = !self.state().not_held.contains(&group);
        is_held.then_some(ReadMark { member: u64::from(group), applied: 90, now_ms: 1 })
    }

    fn is_recent(&self, group: u8, mark: &ReadMark) -> bool {
        assert_eq!(mark.member, u64::from(group), "it is a mark of the group");
        !self.state().stale.contains(&group)
    }

    fn watch_leaders(&self, watch: Arc<dyn LeaderWatch>) {
        self.state().watches.push(watch);
    }

    fn replicated(&self, wanted: usize) -> BoxFuture<'static, usize> {
        // One other node has everything, and the second never will.
        if wanted > 1 { futures_util::future::pending().boxed() } else { ready(1).boxed() }
    }

    fn transfer(&self, group: u8, node: u64) -> BoxFuture<'static, Result<(), String>> {
        self.state().asked.push(format!("transfer {group} {node:x}"));
        ready(if node == ME { Err("it has it".to_owned()) } else { Ok(()) }).boxed()
    }

    fn remove(&self, node: u64) -> BoxFuture<'static, Result<(), String>> {
        self.state().asked.push(format!("remove {node:x}"));
        ready(Ok(())).boxed()
    }

    fn order(&self, order: Order) -> BoxFuture<'static, Result<(), String>> {
        self.state().asked.push(format!("{order:x?}"));
        ready(if order == Order::Replicas(5) { Err("it needs 5 nodes".to_owned()) } else { Ok(()) }).boxed()
    }

    fn finalize(&self) -> BoxFuture<'static, Result<(), String>> {
        self.state().asked.push("finalize".to_owned());
        ready(Ok(())).boxed()
    }

    fn planned_moves(&self) -> Vec<PlannedMove> {
        vec![PlannedMove { group: 1, from: Some(ME), to: Some(0xc3), bytes: 7 }]
    }

    fn copy(&self, group: u8, step: CopyStep) -> BoxFuture<'static, Result<CopyPart, String>> {
        self.state().asked.push(format!("copy {group} {step:?}"));
        ready(Ok(CopyPart { copy: 7, index: 9, next: Some(5), count: 1, ..CopyPart::default() })).boxed()
    }

    fn publish(&self, channel: Bytes, text: Bytes) {
        let text = format!("{}: {}", String::from_utf8_lossy(&channel), String::from_utf8_lossy(&text));
        self.state().published.push(text);
    }

    fn watch_messages(&self, watch: Arc<dyn MessageWatch>) {
        self.state().messages = Some(watch);
    }

    fn check_served(&self) -> Result<(), String> {
        self.state().unserved.clone().map_or(Ok(()), Err)
    }

    fn metrics(&self) -> Vec<Metric> {
        let metric =
            |name, is_counter, labels, value| Metric { name, help: "Help.", is_counter, labels, value };
        vec![
            metric("elections_total", true, (Some(1), None), 2.0),
            metric("nodes", false, (None, None), 3.0),
            metric("lag", false, (Some(1), Some(OTHER)), 3.0),
            metric("elections_total", true, (Some(2), None), 0.5),
        ]
    }
}
