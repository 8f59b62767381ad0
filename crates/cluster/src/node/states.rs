//! States of the replicas of all nodes, so that each node shows the failures of other ones.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::Mutex;

use super::core::Node;
use crate::group::{Group, Role};
use crate::levels::HEALING_LEVEL;
use crate::levels::Program;
use crate::peers::{NodeDamage, PeerRequest, PeerResponse, ReplicaState};

/// Rounds between two questions for the states of another node.
const ROUNDS: u64 = 5;
/// Age above which an answer counts no longer.
const AGE_MAX: Duration = Duration::from_secs(5);

/// The answers of other nodes.
#[derive(Default)]
pub(super) struct PeerStates(Mutex<Answers>);

#[derive(Default)]
struct Answers {
    /// With the time of each.
    of_node: BTreeMap<u64, (Duration, BTreeMap<u8, ReplicaState>)>,
    /// Damage of other nodes.
    damage: BTreeMap<u64, NodeDamage>,
    /// Programs of other nodes.
    programs: BTreeMap<u64, Program>,
    /// Nodes that are being asked.
    asked: BTreeSet<u64>,
}

fn state_of(replica: &Group) -> ReplicaState {
    let status = replica.status();
    match status.role {
        Role::Stopped => ReplicaState::Stopped,
        Role::Installing => ReplicaState::Installs,
        _ if replica.is_followed() => ReplicaState::Leads,
        _ => ReplicaState::Follows,
    }
}

impl Node {
    /// Returns the states of this node's replicas.
    pub(super) fn states(&self) -> BTreeMap<u8, ReplicaState> {
        self.replicas.iter().map(|(group, replica)| (*group, state_of(replica))).collect()
    }

    /// Returns the states of a node's replicas; `None` if it has not answered for a while.
    pub(super) fn states_of(&self, node: u64) -> Option<BTreeMap<u8, ReplicaState>> {
        if node == self.identity.node {
            return Some(self.states());
        }
        let answers = self.peer_states.0.lock();
        let (at, states) = answers.of_node.get(&node)?;
        (self.runtime().now().saturating_sub(*at) <= AGE_MAX).then(|| states.clone())
    }

    /// Asks a node for its damage that is not healed yet. `None` if it does not answer, or the level in use has no such request.
    pub(super) async fn ask_damage(&self, other: u64) -> Option<NodeDamage> {
        if self.table.load().level() < HEALING_LEVEL {
            return None;
        }
        match self.call(other, PeerRequest::Damage).await {
            Ok(PeerResponse::Damage(damage)) => Some(damage),
            _ => None,
        }
    }

    /// Returns the damage of a node that is not healed yet, as it said when it last answered.
    pub(super) fn known_damage(&self, node: u64) -> NodeDamage {
        match node == self.identity.node {
            true => self.own_damage(),
            false => self.peer_states.0.lock().damage.get(&node).copied().unwrap_or_default(),
        }
    }

    /// Returns the program of a node, as it said when it last answered.
    pub(super) fn known_program(&self, node: u64) -> Option<Program> {
        match node == self.identity.node {
            true => Some(Program::own()),
            false => self.peer_states.0.lock().programs.get(&node).cloned(),
        }
    }

    /// Returns the groups of which a node's replica is in a state.
    pub(super) fn groups_in(&self, node: u64, state: ReplicaState) -> Vec<u8> {
        let states = self.states_of(node).unwrap_or_default();
        states.into_iter().filter(|(_, is)| *is == state).map(|(group, _)| group).collect()
    }

    /// Returns true if a group has a leader that a majority answers, as far as this node can know.
    pub(super) fn is_served(&self, group: u8) -> bool {
        let leads = |states: BTreeMap<u8, ReplicaState>| states.get(&group) == Some(&ReplicaState::Leads);
        match self.leader(group) {
            Some(leader) if leader == self.identity.node => {
                self.replica(group).is_some_and(|replica| replica.is_followed())
            }
            // No answer yet, or none of a version that has no states: its connection tells.
            Some(leader) => self.states_of(leader).map_or_else(|| self.is_up(leader), leads),
            None => false,
        }
    }

    /// Asks the other nodes for their states.
    pub(super) fn ask_states(&self, round: u64) {
        if !round.is_multiple_of(ROUNDS) {
            return;
        }
        let others = self.all_known().into_keys().filter(|node| *node != self.identity.node);
        for other in others {
            if !self.peer_states.0.lock().asked.insert(other) {
                continue;
            }
            let node = self.shared();
            let task = async move {
                let answer = node.call(other, PeerRequest::States).await;
                // Rarely, because each node asks each other one.
                let is_known = node.peer_states.0.lock().programs.contains_key(&other);
                let program = match is_known && !round.is_multiple_of(ROUNDS * 8) {
                    true => Err(String::new()),
                    false => node.program_of(other).await,
                };
                let damage = match round.is_multiple_of(ROUNDS * 4) {
                    true => node.ask_damage(other).await,
                    false => None,
                };
                let mut answers = node.peer_states.0.lock();
                answers.asked.remove(&other);
                if let Some(damage) = damage {
                    answers.damage.insert(other, damage);
                }
                if answer.is_err() {
                    // It may come back with another program.
                    answers.programs.remove(&other);
                }
                if let Ok(program) = program {
                    answers.programs.insert(other, program);
                }
                if let Ok(PeerResponse::States(states)) = answer {
                    answers.of_node.insert(other, (node.runtime().now(), states));
                }
            };
            self.runtime().spawn("states", Box::pin(task));
        }
    }

    /// Checks that every group is served, and that no replica of this node has stopped.
    ///
    /// # Errors
    /// A text that names the groups.
    pub(super) fn check_served(&self) -> Result<(), String> {
        let names = |groups: Vec<u8>| groups.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
        let stopped = self.groups_in(self.identity.node, ReplicaState::Stopped);
        if !stopped.is_empty() {
            return Err(format!(
                "the replicas of the groups {} have stopped after an error; see the log, remove the cause, and restart the \
                 node",
                names(stopped)
            ));
        }
        let groups = self.replicas.keys().copied();
        let lost: Vec<u8> = groups.filter(|group| !self.is_served(*group)).collect();
        match lost.is_empty() {
            true => Ok(()),
            false => Err(format!("no leader with a majority is reachable for the groups {}", names(lost))),
        }
    }
}
