//! `CLUSTER ESKER`: the state of the cluster as JSON, the transfer of a leadership, the removal of a node, and orders about
//! the placement of groups.

use esker_cluster::place::report::Order;
use esker_cluster::slots::META_GROUP;
use esker_cluster::view::{GroupInfo, Metric, NodeInfo, PlannedMove, Topology};
use serde_json::{Value, json};

use super::copying;
use super::members::node_of;
use crate::resp::session::{Session, audit};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{self, NO_CLUSTER, is, shown};
use crate::resp::wire::number::parse_integer;
use crate::resp::wire::reply::Replies;
use crate::service::Service;
use crate::service::cluster::Cluster;

/// The subcommands, for the error about others.
const WORDS: &str = "STATUS, TRANSFER <group> <node>, REMOVE <node> [DEAD], DRAIN <node> [CANCEL], \
                     MOVE <group> <from> <to>, REPLICAS <number>, PAUSE, RESUME, REBALANCE [DRY-RUN], FINALIZE, \
                     COPY <group> BEGIN | KEYS <copy> <cursor> | LOG <copy> <after>";

/// Executes a subcommand of [`WORDS`].
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
        4 if is(verb, "remove") => remove(command.argument(3), false, session, cluster).await,
        5 if is(verb, "remove") && is(command.argument(4), "dead") => {
            remove(command.argument(3), true, session, cluster).await
        }
        _ if is(verb, "copy") => return copying::copy(command, cluster, replies).await,
        3 if is(verb, "finalize") => {
            audit::note(session, "CLUSTER ESKER FINALIZE");
            cluster.view.finalize().await.map_err(|why| format!("ERR {why}"))
        }
        4 if is(verb, "rebalance") && is(command.argument(3), "dry-run") => {
            let moves: Vec<_> = cluster.view.planned_moves().iter().map(planned).collect();
            return replies.text(Value::from(moves).to_string().as_bytes());
        }
        _ => match order_of(command, cluster) {
            Ok(Some(order)) => {
                audit::note(session, &format!("CLUSTER ESKER {order:x?}"));
                cluster.view.order(order).await.map_err(|why| format!("ERR {why}"))
            }
            Ok(None) => Err(format!(
                "ERR unknown subcommand or wrong number of arguments for 'ESKER {}'; they are {WORDS}",
                shown(verb, 64)
            )),
            Err(error) => Err(error),
        },
    };
    match done {
        Ok(()) => replies.simple("OK"),
        Err(error) => replies.error(&error),
    }
}

/// Returns the order that a command gives; `None` if it gives none.
fn order_of(command: Command<'_>, cluster: &Cluster) -> Result<Option<Order>, String> {
    let topology = cluster.view.topology();
    let node = |at| node_of(command.argument(at), &topology).map(|node| node.id);
    let number = |at| {
        let number = parse_integer(command.argument(at)).ok_or(error_text::NOT_AN_INTEGER)?;
        u8::try_from(number).map_err(|_| error_text::NOT_AN_INTEGER.to_owned())
    };
    let verb = command.argument(2);
    Ok(Some(match command.len() {
        4 if is(verb, "drain") => Order::Drain { node: node(3)?, begins: true },
        5 if is(verb, "drain") && is(command.argument(4), "cancel") => {
            Order::Drain { node: node(3)?, begins: false }
        }
        6 if is(verb, "move") => Order::Move { group: number(3)?, from: node(4)?, to: node(5)? },
        4 if is(verb, "replicas") => Order::Replicas(number(3)?),
        3 if is(verb, "pause") => Order::Pause(true),
        3 if is(verb, "resume") => Order::Pause(false),
        3 if is(verb, "rebalance") => Order::Rebalance,
        _ => return Ok(None),
    }))
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

async fn remove(node: &[u8], is_dead: bool, session: &Session, cluster: &Cluster) -> Result<(), String> {
    let topology = cluster.view.topology();
    let node = node_of(node, &topology)?;
    let placed =
        topology.groups.iter().filter(|group| group.number != META_GROUP && group.placed.contains(&node.id));
    if !is_dead && !node.is_reachable && placed.clone().count() > 0 {
        return Err(format!(
            "ERR node {:016x} does not answer and has copies of {} groups; start it and drain it, or add DEAD (--dead) if it is \
             lost for good",
            node.id,
            placed.count()
        ));
    }
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
        "replicas": topology.replicas,
        "level": topology.level,
        "paused": topology.is_paused,
        "balancing": topology.is_balancing,
        "copied_bytes_per_s": topology.copied_bytes_per_s,
        "nodes": topology.nodes.iter().map(node).collect::<Vec<_>>(),
        "groups": topology.groups.iter().map(group).collect::<Vec<_>>(),
        "metrics": metrics.iter().map(metric).collect::<Vec<_>>(),
    })
}

fn node(node: &NodeInfo) -> Value {
    json!({
        "id": id(node.id),
        "resp": node.resp,
        "peers": node.peers,
        "grpc": node.grpc,
        "replica": node.replica,
        "zone": node.zone,
        "levels": node.program.as_ref().map(|program| [program.levels.lowest, program.levels.highest]),
        "version": node.program.as_ref().map(|program| &program.version),
        "reachable": node.is_reachable,
        "draining": node.is_draining,
        "holds": node.holds,
        "live_bytes": node.live_bytes,
        "limit_bytes": node.limit_bytes,
        "stopped": node.stopped,
        "installing": node.installing,
        "damaged_groups": (0..u16::BITS as u8).filter(|group| node.damage.groups >> group & 1 == 1).collect::<Vec<_>>(),
        "damaged_keys": node.damage.keys,
        "damaged_lacks_room": node.damage.lacks_room,
        "lost_segments": node.damage.lost_segments,
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
        "placed": ids(&group.placed),
        "bytes": group.bytes,
        "voters": ids(&group.voters),
        "learners": ids(&group.learners),
        "last_index": group.last_index,
        "applied": group.applied,
        "floor": group.floor,
        "matched": matched.collect::<Vec<_>>(),
    })
}

fn planned(planned: &PlannedMove) -> Value {
    let PlannedMove { group, from, to, bytes } = planned;
    json!({ "group": group, "from": from.map(id), "to": to.map(id), "bytes": bytes })
}

fn metric(metric: &Metric) -> Value {
    let (group, node) = metric.labels;
    json!({ "name": metric.name, "group": group, "node": node.map(id), "value": metric.value })
}
