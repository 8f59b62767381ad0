//! The state of a cluster as text.

use std::fmt::Write;

use crate::inspect::show::bytes as size;

use super::state::{Group, State};
use super::{progress, upgrade};

/// Entries that a voter may lack without being reported.
const LAG_MAX: u64 = 10_000;

/// Returns the problems of the cluster, a line each: groups without a leader, missing copies, paused copies, lagging voters, and
/// nodes that do not answer, have stopped replicas, receive copies that count, or have damage.
pub(super) fn problems(state: &State) -> Vec<String> {
    let mut problems = Vec::new();
    let copies = state.replicas;
    let in_use = state.nodes.iter().filter(|node| !node.draining).count();
    if in_use < copies {
        let missing = copies - in_use;
        problems.push(format!(
            "the cluster has {in_use} of {copies} nodes: a lost node would lose data or service; start {missing} more (esker cluster add)"
        ));
    }
    if state.paused {
        problems.push("copies are paused: missing copies are not made (esker cluster resume)".to_owned());
    }
    for node in state.nodes.iter().filter(|node| !node.reachable) {
        problems.push(format!("node {} at {} does not answer", node.id, node.peers));
    }
    for node in state.nodes.iter().filter(|node| !node.stopped.is_empty()) {
        let remedy = match node.lost_segments {
            0 => "start it again, or, if its drives are lost, ",
            _ => "",
        };
        problems.push(format!(
            "the replicas of groups {} on node {} have stopped after an error: its log says why; {remedy}remove it (--dead) and let an \
             empty one join",
            numbers(&node.stopped),
            node.id
        ));
    }
    for node in &state.nodes {
        let receives: Vec<u8> = state.received_by(node).collect();
        if !receives.is_empty() {
            problems.push(format!("node {} receives its copy of groups {}", node.id, numbers(&receives)));
        }
    }
    for node in state.nodes.iter().filter(|node| node.lost_segments > 0) {
        let (says, remedy) = match node.reachable {
            true => (
                "serves, but will not start again",
                "add a node, and drain this one, or remove it (--dead) once it is stopped",
            ),
            false => ("will not start again", "remove it (--dead)"),
        };
        problems.push(format!(
            "node {} {says}: segments lost as a whole: {}, and deletes in them are not known; {remedy} and let an empty one join",
            node.id, node.lost_segments
        ));
    }
    for node in state.nodes.iter().filter(|node| node.reachable && !node.damaged_groups.is_empty()) {
        let (id, groups, keys) = (&node.id, numbers(&node.damaged_groups), node.damaged_keys);
        problems.push(match node.damaged_lacks_room {
            true => format!(
                "node {id} has lost more than its other devices have room for (groups {groups}): remove it (esker cluster remove \
                 --dead), and let an empty node join"
            ),
            false => format!(
                "node {id} heals damage from the other copies: groups {groups}, {keys} keys that are known wait"
            ),
        });
    }
    for group in &state.groups {
        let number = name(group);
        if group.leader.is_none() {
            problems.push(format!("{number} has no known leader: its keys are not served"));
        }
        // A replica that receives its copy, or has stopped, knows no voters.
        if !group.voters.is_empty() && group.voters.len() < copies.min(in_use) {
            problems.push(format!("{number} has {} of {copies} copies", group.voters.len()));
        }
        let behind = group.matched.iter().filter(|one| one.index + LAG_MAX < group.last_index);
        for one in behind.filter(|one| group.voters.contains(&one.node)) {
            let lag = group.last_index - one.index;
            problems.push(format!("{number}: {} lacks {lag} entries", state.address(&one.node)));
        }
    }
    problems
}

fn numbers(groups: &[u8]) -> String {
    groups.iter().map(u8::to_string).collect::<Vec<_>>().join(", ")
}

fn name(group: &Group) -> String {
    match group.slots {
        Some(_) => format!("group {}", group.group),
        None => "the meta group".to_owned(),
    }
}

/// Returns the answer to `status`.
pub(super) fn status(state: &State) -> String {
    let problems = problems(state);
    let (nodes, groups) =
        (state.nodes.len(), state.groups.iter().filter(|group| group.slots.is_some()).count());
    let mut text = format!("{nodes} nodes, {groups} groups of keys\n");
    for node in &state.nodes {
        let led = state
            .groups
            .iter()
            .filter(|group| group.slots.is_some() && group.leader.as_ref() == Some(&node.id));
        let answers = if node.reachable { "" } else { ", does not answer" };
        let (led, holds) = (led.count(), node.holds);
        let _ = writeln!(text, "  {:<22} leads {led}, holds {holds}{answers}", node.resp);
    }
    if problems.is_empty() {
        let copies = state.replicas;
        let _ = writeln!(
            text,
            "every group has a leader and {copies} {}",
            if copies == 1 { "copy" } else { "copies" }
        );
    }
    text.push_str(&upgrade::status(state));
    text.push_str(&progress::moves(state));
    problems.iter().for_each(|problem| text.push_str(&format!("problem: {problem}\n")));
    text
}

/// Returns the table of nodes.
pub(super) fn nodes(state: &State) -> String {
    let mut text = format!(
        "{:<17} {:<22} {:<22} {:<12} {:>5} {:>5} {:>10} {:>10} {:>8} {:>6}  {}\n",
        "id", "clients", "nodes", "zone", "leads", "holds", "used", "of", "version", "levels", ""
    );
    for node in &state.nodes {
        let leads = state.groups.iter().filter(|group| group.leader.as_ref() == Some(&node.id)).count();
        let note = match (node.reachable, node.draining) {
            (false, _) => "does not answer",
            (true, true) => "is being drained",
            (true, false) if node.id == state.me => "asked",
            (true, false) => "",
        };
        let (version, levels) = upgrade::program(node);
        let zone = if node.zone.is_empty() { "-" } else { &node.zone };
        let _ = writeln!(
            text,
            "{:<17} {:<22} {:<22} {zone:<12} {leads:>5} {:>5} {:>10} {:>10} {version:>8} {levels:>6}  {note}",
            node.id,
            node.resp,
            node.peers,
            node.holds,
            size(node.live_bytes),
            size(node.limit_bytes)
        );
    }
    text
}

/// Returns the table of groups.
pub(super) fn groups(state: &State) -> String {
    let mut text = format!(
        "{:<6} {:<13} {:<22} {:>6} {:>6} {:>12} {:>12}  {}\n",
        "group", "slots", "leader", "term", "voters", "entries", "applied here", "lag of others"
    );
    for group in &state.groups {
        let slots = group.slots.map_or("meta".to_owned(), |[first, last]| format!("{first}-{last}"));
        let leader = group.leader.as_ref().map_or("none known", |leader| state.address(leader));
        let lags = group.matched.iter().map(|one| {
            let lag = group.last_index.saturating_sub(one.index);
            format!("{} {lag}", state.address(&one.node))
        });
        let lags = lags.collect::<Vec<_>>().join(", ");
        let learners =
            if group.learners.is_empty() { String::new() } else { format!("+{}", group.learners.len()) };
        let voters = format!("{}{learners}", group.voters.len());
        let _ = writeln!(
            text,
            "{:<6} {slots:<13} {leader:<22} {:>6} {voters:>6} {:>12} {:>12}  {lags}",
            group.group, group.term, group.last_index, group.applied
        );
    }
    text
}

/// Returns the steps to take after the majority of a cluster was lost, with the progress of the asked node.
pub(super) fn recover(state: &State) -> String {
    let without = state.groups.iter().filter(|group| group.leader.is_none()).count();
    if without == 0 {
        return "Every group has a leader: there is nothing to recover. A lost node is removed by esker cluster remove.\n".into();
    }
    let entries: u64 = state.groups.iter().map(|group| group.last_index).sum();
    format!(
        "{without} of {} groups have no leader. If most of the nodes are lost for good, not only stopped or cut off:\n\n  \
         1. Ask each node that is left, and choose the one with the most entries; this one has {entries}.\n  \
         2. Stop it, and start it once with its usual settings and --cluster-recover. It becomes the only node of a new cluster.\n  \
         3. Start the others with empty directories and --join to it.\n\n\
         Writes that the chosen node does not have are lost, acknowledged ones too. If a lost node can come back, start it instead.\n",
        state.groups.len()
    )
}

/// Returns the command that starts another node.
pub(super) fn add(state: &State) -> String {
    let peers: Vec<_> = state.nodes.iter().map(|node| node.peers.as_str()).collect();
    format!(
        "On the new machine, with the secret of the cluster in a file that others cannot read:\n\n  \
         esker serve --dir DIR --resp HOST:6379 --cluster HOST:16379 --cluster-secret-file FILE --join {}\n\n\
         It joins by itself, and gets copies of groups while there are fewer than {} of each. If there are enough, it gets its\n\
         share when you order it: esker cluster rebalance\n",
        peers.join(","),
        state.replicas
    )
}
