//! Figures of a node.

use std::sync::atomic::Ordering;

use super::core::Node;
use crate::group::{Group, Role};
use crate::peers::ReplicaState;
use crate::view::Metric;

struct Figures(Vec<Metric>);

impl Figures {
    fn add(&mut self, name: &'static str, help: &'static str, labels: (Option<u8>, Option<u64>), value: u64) {
        self.0.push(Metric { name, help, is_counter: false, labels, value: value as f64 });
    }

    fn count(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: (Option<u8>, Option<u64>),
        value: u64,
    ) {
        self.0.push(Metric { name, help, is_counter: true, labels, value: value as f64 });
    }
}

/// Returns the figures of a node, those of one name in a row.
pub(super) fn metrics(node: &Node) -> Vec<Metric> {
    let mut figures = Figures(Vec::new());
    let others: Vec<_> = node.all_known().into_keys().filter(|other| *other != node.identity.node).collect();
    let connected = others.iter().filter(|other| node.peers.is_reachable(**other)).count();
    let of_node = (None, None);
    figures.add("nodes", "Nodes of the cluster that this node knows of.", of_node, others.len() as u64 + 1);
    figures.add(
        "peers_connected",
        "Other nodes that answered within the last seconds.",
        of_node,
        connected as u64,
    );
    figures.add(
        "level",
        "Level of the protocol between nodes that the cluster uses.",
        of_node,
        node.table.load().level().into(),
    );
    for other in others.iter().copied().chain([node.identity.node]) {
        let highest = node.known_program(other).map_or(0, |program| program.levels.highest);
        let help = "Highest level that the program of a node has, as it said when it last answered; 0 if it has not.";
        figures.add("node_level_highest", help, (None, Some(other)), highest.into());
    }
    for (name, help, value) in [
        ("lease_hits_total", "Reads answered by the lease of the leader.", &node.lease_hits),
        ("lease_misses_total", "Reads that needed a confirmation by a majority.", &node.lease_misses),
        ("transfers_total", "Leaderships that this node handed to another.", &node.transfers),
        (
            "damaged_healed_total",
            "Damaged records of this node that were healed from other copies.",
            &node.healing.healed,
        ),
        ("damaged_failed_total", "Attempts to heal a damaged record that failed.", &node.healing.failed),
        (
            "damaged_unknown_total",
            "Damages found in records whose keys are not known: they are found by the keys of another copy.",
            &node.healing.unknown,
        ),
        (
            "damaged_searches_total",
            "Searches that found all damaged keys of a group by another copy.",
            &node.healing.searched,
        ),
        (
            "replica_reads_total",
            "Groups of commands that a replica of this node answered, whether it leads or not.",
            &node.following.reads,
        ),
        (
            "replica_reads_stale_total",
            "Groups of commands that were sent to the leader, because the replica was not recent enough.",
            &node.following.stale,
        ),
        (
            "replica_questions_total",
            "Requests by which replicas asked leaders for their positions.",
            &node.following.questions,
        ),
        ("membership_changes_total", "Changes of a group's members that this node made.", &node.changes),
    ] {
        figures.count(name, help, of_node, value.load(Ordering::Relaxed));
    }
    figures.add(
        "damaged_waiting",
        "Damaged records of this node that wait to be healed from other copies.",
        of_node,
        node.healing.count() as u64,
    );
    let damage = node.own_damage();
    let searched = node.healing.searched_groups().len() as u64;
    figures.add("damaged_groups", "Groups whose damaged keys are not all known.", of_node, searched);
    figures.add(
        "damaged_lacks_room",
        "1 if damage cannot be healed, because the records do not fit on the devices that are left.",
        of_node,
        damage.lacks_room.into(),
    );
    figures.add(
        "lost_segments",
        "Segments that are lost as a whole: the next opening of the store is refused, so replace the node before.",
        of_node,
        damage.lost_segments.into(),
    );
    figures.add(
        "replica_clients",
        "Connections that read from replicas.",
        of_node,
        node.following.clients() as u64,
    );
    of_placement(&mut figures, node);
    for replica in node.replicas.values() {
        let number = replica.number();
        of_group(&mut figures, replica, node.is_placed(number), node.is_served(number));
    }
    for other in others {
        for (name, help, state) in [
            (
                "node_stopped",
                "Replicas of another node that have stopped after an error.",
                ReplicaState::Stopped,
            ),
            (
                "node_installing",
                "Replicas of another node that receive the keys of their groups.",
                ReplicaState::Installs,
            ),
        ] {
            figures.add(name, help, (None, Some(other)), node.groups_in(other, state).len() as u64);
        }
    }
    let mut figures = figures.0;
    figures.sort_by_key(|figure| figure.name);
    figures
}

fn of_placement(figures: &mut Figures, node: &Node) {
    let (fleet, rate) = (node.fleet(), node.copy_rate.lock().bytes_per_s());
    let changing: Vec<_> = fleet.shards.values().filter(|shard| shard.receivers().next().is_some()).collect();
    let draining = fleet.nodes.iter().filter(|(_, machine)| machine.is_draining);
    let to_drain = draining.clone().map(|(node, _)| fleet.load(*node)).sum();
    for (name, help, value) in [
        ("copies_wanted", "Copies that each group should have.", fleet.replicas as u64),
        ("moving_groups", "Groups of which a node gets a copy now.", changing.len() as u64),
        ("moving_bytes", "Estimated bytes of these groups.", changing.iter().map(|shard| shard.bytes).sum()),
        ("copied_bytes_per_second", "Rate at which groups are copied, all nodes together.", rate),
        ("draining_nodes", "Nodes whose groups are moved away.", draining.count() as u64),
        ("groups_to_drain", "Copies of groups that are on nodes which are being drained.", to_drain),
        ("copies_paused", "1 while no copies are begun.", fleet.is_paused.into()),
    ] {
        figures.add(name, help, (None, None), value);
    }
}

/// Adds the figures of a group. A group that does not belong here has counters alone: its replica knows no voters, which is no
/// fault.
fn of_group(figures: &mut Figures, replica: &Group, is_placed: bool, is_served: bool) {
    let (status, labels) = (replica.status(), (Some(replica.number()), None));
    let (counters, leads) = (status.counters, u64::from(replica.is_followed()));
    let gauges = [
        (
            "leads",
            "1 if this node leads the group, and a majority answered it within the last seconds.",
            leads,
        ),
        (
            "has_leader",
            "1 if the group has a leader that a majority answers, as far as this node can know.",
            u64::from(is_served),
        ),
        (
            "installing",
            "1 while the replica receives the keys of its group.",
            u64::from(status.role == Role::Installing),
        ),
        ("stopped", "1 if the replica has stopped after an error.", u64::from(status.stopped.is_some())),
        ("term", "Term of the last election that this node knows of.", status.term),
        ("voters", "Nodes that vote in the group.", status.voters.len() as u64),
        (
            "learners",
            "Nodes that receive the log of the group and do not vote.",
            status.learners.len() as u64,
        ),
        ("last_index", "Index of the last entry in the log here.", status.last_index),
        ("applied_index", "Index of the last entry applied here.", status.applied),
        ("floor_index", "Index up to which applied entries are durable here without the log.", status.floor),
        (
            "floor_lag_entries",
            "Entries applied here above the floor.",
            status.applied.saturating_sub(status.floor),
        ),
        ("purged_index", "Index up to which entries are purged here.", status.purged),
        ("queued_bytes", "Bytes of writes that wait or are on their way.", counters.queued_bytes),
    ];
    for (name, help, value) in gauges.into_iter().filter(|_| is_placed) {
        figures.add(name, help, labels, value);
    }
    for (name, help, value) in [
        (
            "terms_served_total",
            "Times at which this node became the leader of the group and ready.",
            counters.terms_served,
        ),
        ("entries_total", "Entries applied here.", counters.entries),
        ("entry_bytes_total", "Bytes of the entries applied here.", counters.entry_bytes),
        ("led_entries_total", "Entries applied here that this node proposed.", counters.led_entries),
        ("proposals_total", "Writes that were applied here and answered.", counters.proposals),
        ("uncertain_total", "Writes that were answered as uncertain.", counters.uncertain),
        ("refused_total", "Writes that were refused, certainly not done.", counters.refused),
        ("confirmations_total", "Confirmations of the leader by a majority.", counters.confirmations),
        ("commit_microseconds_total", "Time from a write's call to its entry's commit.", counters.commit_us),
        ("apply_microseconds_total", "Time from an entry's commit until it was applied.", counters.apply_us),
        ("snapshots_sent_total", "Copies of the group's keys sent completely.", counters.snapshots_sent),
        (
            "snapshots_received_total",
            "Copies of the group's keys received completely.",
            counters.snapshots_received,
        ),
        (
            "retirements_total",
            "Times at which this node gave the space of the group back.",
            counters.retirements,
        ),
        ("snapshot_bytes_total", "Bytes of keys and values sent in copies.", counters.snapshot_bytes),
    ] {
        figures.count(name, help, labels, value);
    }
    for (node, matched) in status.matched {
        let lag = status.last_index.saturating_sub(matched);
        let help = "Entries that are not known to be durable on another node.";
        figures.add("follower_lag_entries", help, (labels.0, Some(node)), lag);
    }
}
