//! The task of a node that brings the members of its groups, their leaders and its own record to their intended states.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_seeded_bugs::{Bug, planted};
use parking_lot::Mutex;

use super::core::Node;
use super::plan::{Candidate, Members, Step, Target};
use crate::group::{Group, GroupStatus};
use crate::peers::{PeerRequest, PeerResponse};
use crate::place::leaders::preferred_leaders;
use crate::slots::META_GROUP;

/// Pauses of a group after a change that failed: the first, and the longest.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));
/// Number of rounds for which a node must be able to lead a group before it is handed to it.
const STEADY_ROUNDS: u32 = 10;
/// Pause of a group after a transfer that failed.
const AFTER_TRANSFER: Duration = Duration::from_secs(30);

/// Number of rounds between two reports, after which the placement is decided.
const REPORT_ROUNDS: u64 = 2;

/// State that the task keeps of a group.
#[derive(Default)]
struct Watched {
    /// True while a change is on its way.
    is_busy: bool,
    /// Time before which no change is begun, and the pause after the next failure.
    not_before: Duration,
    pause: Duration,
    /// Time before which the group is not handed over. Changes of its members do not wait for it.
    transfer_not_before: Duration,
    /// Rounds for which the same node could lead it and should.
    steady: u32,
}

impl Watched {
    /// Notes the end of a change. After a failure the group rests: twice as long each time.
    fn end_change(&mut self, has_failed: bool, now: Duration) {
        self.is_busy = false;
        self.pause = if has_failed { (self.pause * 2).clamp(BACKOFF.0, BACKOFF.1) } else { Duration::ZERO };
        self.not_before = now + self.pause;
    }

    /// Notes the end of a transfer.
    fn end_transfer(&mut self, has_failed: bool, now: Duration) {
        self.is_busy = false;
        self.transfer_not_before = now + if has_failed { AFTER_TRANSFER } else { Duration::ZERO };
    }

    fn can_change(&self, now: Duration) -> bool {
        !self.is_busy && now >= self.not_before
    }

    fn can_transfer(&self, now: Duration) -> bool {
        self.can_change(now) && now >= self.transfer_not_before
    }
}

type State = Arc<Mutex<BTreeMap<u8, Watched>>>;

/// Runs until the node stops.
pub(super) async fn run(node: Arc<Node>) {
    let state = State::default();
    let (mut meta_applied, mut round) = (0, 0_u64);
    let interval = node.settings.heartbeat * 2;
    while !node.has_stopped.load(Ordering::Relaxed) {
        node.runtime().sleep(interval).await;
        if let Some(error) = node.meta.failure().filter(|_| !planted(Bug::FailedStoreLeads)) {
            // It would refuse the writes of groups that other nodes can serve.
            node.replicas.values().for_each(|replica| replica.give_up(&error));
            return;
        }
        round += 1;
        let applied = node.replica(META_GROUP).map_or(0, |meta| meta.status().applied);
        if applied != meta_applied {
            match node.refresh().await {
                Ok(()) => meta_applied = applied,
                Err(error) => tracing::warn!("the nodes of the cluster cannot be read: {error}"),
            }
        }
        node.announce();
        if round % REPORT_ROUNDS == 0 {
            node.report();
            node.place();
        }
        for replica in node.replicas.values() {
            node.look_after(replica, &state);
        }
        node.save_sightings(round).await;
        node.ask_states(round);
    }
}

impl Node {
    /// Returns the maximum number of voters of a group.
    pub(super) fn replicas_max(&self) -> u8 {
        self.table.load().cluster.map_or(self.settings.replicas, |cluster| cluster.replicas).max(1)
    }

    /// Tells the leader of the meta group this node's addresses, once after each start and when they are not in the table.
    fn announce(&self) {
        let is_known = self.table.load().nodes.get(&self.identity.node) == Some(&self.record());
        if is_known && self.is_announced.load(Ordering::Relaxed) {
            return;
        }
        if self.is_announcing.swap(true, Ordering::Relaxed) {
            return;
        }
        let node = self.shared();
        let task = async move {
            match node.announced().await {
                Ok(()) => node.is_announced.store(true, Ordering::Relaxed),
                Err(why) => {
                    tracing::debug!(
                        "the leader of the meta group does not know the addresses of this node yet: {why}"
                    );
                    node.runtime().sleep(BACKOFF.0).await;
                }
            }
            node.is_announcing.store(false, Ordering::Relaxed);
        };
        self.runtime().spawn("announce", Box::pin(task));
    }

    async fn announced(&self) -> Result<(), String> {
        let record = self.record();
        let me = self.identity.node;
        let leader = self.leader(META_GROUP);
        let first = leader.or_else(|| self.another_node()).ok_or("no other node is known")?;
        let mut answer = match first == me {
            true => self.admit(record.clone()).await,
            false => self.call(first, PeerRequest::Join(record.clone())).await?,
        };
        if let PeerResponse::Ask(address) = &answer {
            answer = self.peers.ask(address, PeerRequest::Join(record)).await?;
        }
        match answer {
            PeerResponse::Joined { cluster, nodes, .. } if cluster == self.identity.cluster => {
                self.named.lock().extend(nodes.into_iter().map(|record| (record.node, record)));
                self.refresh().await.map_err(|error| error.to_string())
            }
            PeerResponse::Refused(why) => Err(why),
            other => Err(format!("it answered {other:?}")),
        }
    }

    /// Returns a node to ask when no leader is known: another one each time.
    fn another_node(&self) -> Option<u64> {
        let others: Vec<_> =
            self.all_known().into_keys().filter(|node| *node != self.identity.node).collect();
        let at = self.runtime().random() as usize % others.len().max(1);
        others.get(at).copied()
    }

    /// Begins the next change of a group that this node leads.
    fn look_after(&self, replica: &Arc<Group>, state: &State) {
        let group = replica.number();
        let mut all = state.lock();
        let watched = all.entry(group).or_default();
        let now = self.runtime().now();
        if replica.ready_term().is_err() {
            watched.steady = 0;
        }
        if !watched.can_change(now) {
            return;
        }
        if self.is_superfluous(replica) {
            watched.is_busy = true;
            let (node, replica, state) = (self.shared(), replica.clone(), state.clone());
            let task = async move { node.give_back(&replica, &state).await };
            self.runtime().spawn("retirement", Box::pin(task));
            return;
        }
        if replica.ready_term().is_err() {
            return;
        }
        let nodes = self.candidates();
        let members = members(self.identity.node, replica.status());
        let target = self.target(group);
        if let Some(step) = members.step(&nodes, &target) {
            (watched.is_busy, watched.steady) = (true, 0);
            let (node, replica, state) = (self.shared(), replica.clone(), state.clone());
            let task = async move { node.make(&replica, step, &state).await };
            self.runtime().spawn("membership", Box::pin(task));
            return;
        }
        let preferred = self.preferred_leader(group);
        let preferred = preferred.filter(|preferred| members.should_hand_over(*preferred, &nodes, &target));
        watched.steady = if preferred.is_some() { watched.steady + 1 } else { 0 };
        if watched.steady < STEADY_ROUNDS
            || !watched.can_transfer(now)
            || all.values().any(|watched| watched.is_busy)
        {
            return;
        }
        if let (Some(to), Some(watched)) = (preferred, all.get_mut(&group)) {
            (watched.is_busy, watched.steady) = (true, 0);
            let (node, replica, state) = (self.shared(), replica.clone(), state.clone());
            let task = async move { node.hand_over(&replica, to, &state).await };
            self.runtime().spawn("transfer", Box::pin(task));
        }
    }

    fn candidates(&self) -> BTreeMap<u64, Candidate> {
        let candidate = |node| (node, Candidate { is_reachable: self.is_up(node) });
        self.table.load().nodes.keys().copied().map(candidate).collect()
    }

    /// Returns the members that a group should have. All nodes have the log of the meta group.
    fn target(&self, group: u8) -> Target {
        let table = self.table.load();
        let voters = table.places.get(&group).cloned().unwrap_or_default();
        let others = table.nodes.keys().copied().filter(|node| group == META_GROUP && !voters.contains(node));
        Target { learners: others.collect(), voters }
    }

    /// Returns the node that leads the group if all voters are up.
    fn preferred_leader(&self, group: u8) -> Option<u64> {
        let table = self.table.load();
        preferred_leaders(&table.places, &table.draining).get(&group).copied()
    }

    async fn give_back(&self, replica: &Arc<Group>, state: &State) {
        let group = replica.number();
        let retired = self.retire(replica).await;
        if let Err(why) = &retired {
            tracing::debug!("group {group} does not leave this node yet: {why}");
        }
        let now = self.runtime().now();
        state.lock().entry(group).or_default().end_change(retired.is_err(), now);
    }

    async fn make(&self, replica: &Group, step: Step, state: &State) {
        let done = match step.clone() {
            Step::AddLearner(node) => replica.add_learner(node).await,
            Step::SetVoters(voters) => replica.change_voters(voters).await,
            Step::RemoveLearner(node) => replica.remove_learner(node).await,
            Step::Leave(node) => replica.transfer(node).await,
        };
        let group = replica.number();
        match &done {
            Ok(()) => {
                self.changes.fetch_add(1, Ordering::Relaxed);
                tracing::info!("group {group}: {step:?} is done");
            }
            Err(error) => tracing::info!("group {group}: {step:?} is put off: {error}"),
        }
        let now = self.runtime().now();
        state.lock().entry(group).or_default().end_change(done.is_err(), now);
    }

    async fn hand_over(&self, replica: &Group, to: u64, state: &State) {
        let group = replica.number();
        if let Some(damage) = self.ask_damage(to).await
            && damage.groups >> group & 1 == 1
            && !planted(Bug::DamagedNodeLeadsAgain)
        {
            tracing::info!("group {group} stays here until the copy on node {to:016x} is healed");
            let now = self.runtime().now();
            return state.lock().entry(group).or_default().end_transfer(true, now);
        }
        let done = replica.transfer(to).await;
        match &done {
            Ok(()) => _ = self.transfers.fetch_add(1, Ordering::Relaxed),
            Err(error) => {
                tracing::info!("group {group} stays here, and is not handed to node {to:016x}: {error}")
            }
        }
        let now = self.runtime().now();
        state.lock().entry(group).or_default().end_transfer(done.is_err(), now);
    }
}

fn members(leader: u64, status: GroupStatus) -> Members {
    Members {
        leader,
        voters: status.voters.into_iter().collect(),
        learners: status.learners.into_iter().collect(),
        is_settled: status.membership_is_settled,
        last_index: status.last_index,
        matched: status.matched.into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The node to which the group was to be handed may have been lost: the change that replaces it is due.
    #[test]
    fn members_change_at_once_after_a_transfer_that_failed() {
        let (mut watched, now) = (Watched { is_busy: true, ..Watched::default() }, Duration::from_secs(100));
        assert!(!watched.can_change(now));
        watched.end_transfer(true, now);
        assert!(watched.can_change(now) && !watched.can_transfer(now));
        assert!(watched.can_transfer(now + AFTER_TRANSFER));
        watched.end_transfer(false, now);
        assert!(watched.can_transfer(now));
    }

    #[test]
    fn group_rests_twice_as_long_after_each_change_that_failed() {
        let (mut watched, mut now) = (Watched::default(), Duration::from_secs(100));
        for pause_ms in [500, 1000, 2000, 4000, 8000, 10_000, 10_000] {
            watched.end_change(true, now);
            now += Duration::from_millis(pause_ms);
            assert!(!watched.can_change(now - Duration::from_millis(1)) && watched.can_change(now));
        }
        watched.end_change(false, now);
        assert!(watched.can_change(now));
    }
}
