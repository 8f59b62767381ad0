//! `CLUSTER ESKER`: the state of the cluster as JSON, the transfer of a leadership, the removal of a node.

use esker_cluster::slots::META_GROUP;
use esker_cluster::view::{GroupInfo, Metric, NodeInfo, Topology};
use serde_json::{Value, json};

use super::members::node_of;
use crate::resp::session::{Session, audit};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{self, NO_CLUSTER, is, shown};
use crate::resp::wire::number::parse_integer;
use crate::resp::wire::reply::Replies;
use crate::service::Service;
use crate::service::cluster::Cluster;

/// `CLUSTER ESKER STATUS | TRANSFER group node | REMOVE node`.
pub(super) async fn admin(command: Command<'_>, session: &Session, service: &Service, replies: &mut Replies) {
    let Some(cluster) = &service.cluster else { return replies.error(NO_CLUSTER) };
    // Checked here, because every user may run the other subcommands of CLUSTER.
    if !session.user.as_ref().is_some_and(|user| user.is_admin()) {
        return replies.error(&error_text::no_right_to_run("cluster|esker"));
    }
    let verb = command.argument(2);
    let done = match command.len() {
        3 if is(verb, "status") => {
            let status = status(&cluster.view.topology(), &cluster.view.metrics());
            return replies.text(status.to_string().as_bytes());
        }
        5 if is(verb, "transfer") => {
            transfer(command.argument(3), command.argument(4), session, cluster).await
        }
        4 if is(verb, "remove") => remove(command.argument(3), session, cluster).await,
        _ => {
            let verb = shown(verb, 64);
            let words = "STATUS, TRANSFER <group> <node>, REMOVE <node>";
            Err(format!(
                "ERR unknown subcommand or wrong number of arguments for 'ESKER {verb}'; they are {words}"
            ))
        }
    };
    match done {
        Ok(()) => replies.simple("OK"),
        Err(error) => replies.error(&error),
    }
}

async fn transfer(group: &[u8], node: &[u8], session: &Session, cluster: &Cluster) -> Result<(), String> {
    let number = parse_integer(group).ok_or(error_text::NOT_AN_INTEGER)?;
    let topology = cluster.view.topology();
    let known = topology.groups.iter().find(|group| i64::from(group.number) == number);
    let group = known.ok_or_else(|| {
        let groups = topology.groups.iter().filter(|group| group.number != META_GROUP).count();
        format!("ERR {number} is no group; they are 1 to {groups}, and {META_GROUP} for the meta group")
    })?;
    let node = node_of(node, &topology)?;
    audit::note(session, &format!("CLUSTER ESKER TRANSFER {number} {:016x}", node.id));
    cluster.view.transfer(group.number, node.id).await.map_err(|why| format!("ERR {why}"))
}

async fn remove(node: &[u8], session: &Session, cluster: &Cluster) -> Result<(), String> {
    let topology = cluster.view.topology();
    let node = node_of(node, &topology)?;
    audit::note(session, &format!("CLUSTER ESKER REMOVE {:016x}", node.id));
    cluster.view.remove(node.id).await.map_err(|why| format!("ERR {why}"))
}

/// Returns an id as sixteen hex digits: many readers of JSON lose digits of numbers beyond 2^53.
fn id(id: u64) -> String {
    format!("{id:016x}")
}

/// Returns the state of the cluster as this node sees it.
fn status(topology: &Topology, metrics: &[Metric]) -> Value {
    json!({
        "epoch": topology.epoch,
        "me": id(topology.me),
        "nodes": topology.nodes.iter().map(node).collect::<Vec<_>>(),
        "groups": topology.groups.iter().map(group).collect::<Vec<_>>(),
        "metrics": metrics.iter().map(metric).collect::<Vec<_>>(),
    })
}

fn node(node: &NodeInfo) -> Value {
    let NodeInfo { id: number, resp, peers, grpc, zone, is_reachable, stopped, installing } = node;
    json!({
        "id": id(*number), "resp": resp, "peers": peers, "grpc": grpc, "zone": zone, "reachable": is_reachable,
        "stopped": stopped, "installing": installing,
    })
}

fn group(group: &GroupInfo) -> Value {
    let ids = |ids: &[u64]| ids.iter().copied().map(id).collect::<Vec<_>>();
    let slots = (!group.slots.is_empty()).then(|| [group.slots.start, group.slots.end - 1]);
    let matched = group.matched.iter().map(|(node, index)| json!({ "node": id(*node), "index": index }));
    json!({
        "group": group.number,
        "slots": slots,
        "leader": group.leader.map(id),
        "served": group.is_served,
        "term": group.term,
        "voters": ids(&group.voters),
        "learners": ids(&group.learners),
        "last_index": group.last_index,
        "applied": group.applied,
        "floor": group.floor,
        "matched": matched.collect::<Vec<_>>(),
    })
}

fn metric(metric: &Metric) -> Value {
    let (group, node) = metric.labels;
    json!({ "name": metric.name, "group": group, "node": node.map(id), "value": metric.value })
}
