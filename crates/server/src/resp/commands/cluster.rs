//! CLUSTER, READONLY, READWRITE and ASKING, in the formats of Redis 7, and `CLUSTER ESKER`, by which `esker cluster` works.
//!
//! Every node is listed as a master: of the slots of the groups that it leads, or of none. If it has an address for reads from
//! replicas, it is listed there as a replica of each node that leads a group of which it has a copy, itself included: clients keep one
//! role for each address.

use super::help;
use super::replica;
use super::scan;
use crate::resp::session::Session;
use crate::resp::verb::facts::{Bound, Group, InMulti, flags, tips};
use crate::resp::verb::{Run, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{self, NO_CLUSTER, is};
use crate::resp::wire::number::parse_integer;
use crate::resp::wire::reply::Replies;
use crate::service::Service;

use esker_cluster::slots::{SLOTS, slot_of};

use self::members::{copies, id_text, members, node_of};

mod admin;
mod copying;
mod lists;
pub(super) mod members;
mod texts;

const STALE: &[&str] = &["stale"];
const OF_ADMINS: &[&str] = &["admin", "stale"];

const CLUSTER: Verb = Verb {
    group: Group::Cluster,
    flags: STALE,
    without_cluster: Some(NO_CLUSTER),
    since: "3.0.0",
    bound,
    ..Verb::DEFAULT
};

/// A command of Redis Cluster by which administrators change settings that Esker's groups decide.
const REFUSED: Verb = Verb { arity: -2, flags: &["admin", "stale", "no_async_loading"], ..CLUSTER };

const OWN: Verb =
    Verb { flags: flags::FAST, categories: &["connection"], bound: |_, _, _| Bound::once(0), ..CLUSTER };

const BY_GROUPS: &str =
    "ERR slots belong to groups, whose leaders are elected; see esker cluster status, esker cluster transfer";
const BY_LOG: &str = "ERR the log of the meta group keeps the nodes; see esker cluster status";

/// The commands of this family.
#[rustfmt::skip]
pub(super) const COMMANDS: &[Verb] = &[
    Verb { name: "asking", arity: 1, run: Run::Answer(accept), 
        without_cluster: Some("ERR Esker serves strings: ASKING is a command of cluster (see docs/compatibility.md)"),
        summary: "Has no effect: a slot never moves in halves.", ..OWN },
    Verb { name: "readonly", arity: 1, in_multi: InMulti::Refused,
        run: Run::Wait(|command, session, service, replies| Box::pin(replica::read_only(command, session, service, replies))),
        without_cluster: Some("ERR Esker serves strings: READONLY is a command of cluster (see docs/compatibility.md)"),
        summary: "Lets replicas answer reads on the address for them.", ..OWN },
    Verb { name: "readwrite", arity: 1, run: Run::Answer(replica::read_write), 
        without_cluster: Some("ERR Esker serves strings: READWRITE is a command of cluster (see docs/compatibility.md)"),
        summary: "Ends READONLY.", ..OWN },
    Verb { name: "cluster", arity: -2, flags: flags::NONE, help: HELP, summary: "Tells the nodes and slots of the cluster.",
        ..CLUSTER },
    Verb { name: "cluster|addslots", run: Run::Refuse(BY_GROUPS), summary: "Is refused.", ..REFUSED },
    Verb { name: "cluster|addslotsrange", run: Run::Refuse(BY_GROUPS), since: "7.0.0", summary: "Is refused.", ..REFUSED },
    Verb { name: "cluster|bumpepoch", run: Run::Refuse(BY_LOG), summary: "Is refused.", ..REFUSED },
    Verb { name: "cluster|count-failure-reports", arity: 3, flags: OF_ADMINS, run: Run::Answer(count_failure_reports), tips: &[tips::VARIES],
        summary: "Returns 1 for a node that is not reachable, else 0.", ..CLUSTER },
    Verb { name: "cluster|countkeysinslot", arity: 3,
        run: Run::Wait(|command, session, service, replies| Box::pin(count_keys(command, session, service, replies))),
        in_multi: InMulti::Refused, summary: "Returns the number of keys of a slot on this node.", ..CLUSTER },
    Verb { name: "cluster|delslots", run: Run::Refuse(BY_GROUPS), summary: "Is refused.", ..REFUSED },
    Verb { name: "cluster|delslotsrange", run: Run::Refuse(BY_GROUPS), since: "7.0.0", summary: "Is refused.", ..REFUSED },
    Verb { name: "cluster|esker", arity: -3, flags: flags::ADMIN, in_multi: InMulti::Refused,
        run: Run::WaitBounded(|command, session, service, replies| Box::pin(admin::admin(command, session, service, replies))),
        since: env!("CARGO_PKG_VERSION"), summary: "Tells the state of groups, moves leaders and groups, removes nodes.", ..CLUSTER },
    Verb { name: "cluster|failover", run: Run::Refuse("ERR leaders are elected; see esker cluster transfer"),
        summary: "Is refused.", ..REFUSED },
    Verb { name: "cluster|flushslots", run: Run::Refuse(BY_GROUPS), summary: "Is refused.", ..REFUSED },
    Verb { name: "cluster|forget", run: Run::Refuse("ERR a node leaves by esker cluster remove"),
        summary: "Is refused.", ..REFUSED },
    Verb { name: "cluster|getkeysinslot", arity: 4,
        run: Run::Wait(|command, session, service, replies| Box::pin(get_keys(command, session, service, replies))),
        in_multi: InMulti::Refused, tips: &[tips::VARIES],
        summary: "Returns keys of a slot on this node.", ..CLUSTER },
    Verb { name: "cluster|help", arity: 2, flags: flags::TELL, run: help::RUN, bound: help::BOUND, since: "5.0.0",
        summary: "Lists the subcommands.", ..CLUSTER },
    Verb { name: "cluster|info", arity: 2, run: Run::Answer(texts::info), tips: &[tips::VARIES],
        summary: "Returns the state of the cluster.", ..CLUSTER },
    Verb { name: "cluster|keyslot", arity: 3, run: Run::Answer(key_slot), summary: "Returns the slot of a key.", ..CLUSTER },
    Verb { name: "cluster|links", arity: 2, run: Run::Answer(lists::links), tips: &[tips::VARIES], since: "7.0.0",
        summary: "Returns the connections to other nodes.", ..CLUSTER },
    Verb { name: "cluster|meet", run: Run::Refuse("ERR a node joins by its own start: esker serve --join; see esker cluster status"),
        summary: "Is refused.", ..REFUSED },
    Verb { name: "cluster|myid", arity: 2, run: Run::Answer(my_id), summary: "Returns the id of the node.", ..CLUSTER },
    Verb { name: "cluster|myshardid", arity: 2, run: Run::Answer(my_id), tips: &[tips::VARIES], since: "7.2.0",
        summary: "Returns the id of the node.", ..CLUSTER },
    Verb { name: "cluster|nodes", arity: 2, run: Run::Answer(texts::nodes), tips: &[tips::VARIES],
        summary: "Returns the nodes with the slots that they lead.", ..CLUSTER },
    Verb { name: "cluster|replicas", arity: 3, flags: OF_ADMINS, run: Run::Answer(replicas), tips: &[tips::VARIES], since: "5.0.0",
        summary: "Returns the replicas of a node.", ..CLUSTER },
    Verb { name: "cluster|replicate", run: Run::Refuse(BY_GROUPS), summary: "Is refused.", ..REFUSED },
    Verb { name: "cluster|reset", run: Run::Refuse("ERR a node leaves by esker cluster remove"),
        summary: "Is refused.", ..REFUSED },
    Verb { name: "cluster|saveconfig", run: Run::Refuse(BY_LOG), summary: "Is refused.", ..REFUSED },
    Verb { name: "cluster|set-config-epoch", run: Run::Refuse(BY_LOG), summary: "Is refused.", ..REFUSED },
    Verb { name: "cluster|setslot", run: Run::Refuse(BY_GROUPS), summary: "Is refused.", ..REFUSED },
    Verb { name: "cluster|shards", arity: 2, flags: flags::TELL, run: Run::Answer(lists::shards), tips: &[tips::VARIES], since: "7.0.0",
        summary: "Returns the nodes with the slots that they lead, for clients.", ..CLUSTER },
    Verb { name: "cluster|slaves", arity: 3, flags: OF_ADMINS, run: Run::Answer(replicas), tips: &[tips::VARIES],
        summary: "Returns the replicas of a node.", ..CLUSTER },
    Verb { name: "cluster|slots", arity: 2, flags: flags::TELL, run: Run::Answer(lists::slots), tips: &[tips::VARIES],
        summary: "Returns the ranges of slots with their leaders.", ..CLUSTER },
];

const HELP: &str = "\
COUNT-FAILURE-REPORTS <node-id>
    Return 1 for a node that is not reachable, else 0.
COUNTKEYSINSLOT <slot>
    Return the number of keys in <slot>.
ESKER STATUS
    Return nodes and groups as JSON.
ESKER TRANSFER <group> <node>
    Hand the leadership of a group to a node, named by its id or address.
ESKER DRAIN <node> [CANCEL]
    Move all groups away from a node, or end that.
ESKER MOVE <group> <from> <to>
    Move the copy of a group from one node to another.
ESKER PAUSE
    Begin no copies of groups until ESKER RESUME.
ESKER REBALANCE [DRY-RUN]
    Even out the number of groups of the nodes, or return the moves as JSON.
ESKER REMOVE <node> [DEAD]
    Remove a node from the cluster: a drained one, or a lost one.
ESKER REPLICAS <number>
    Set the number of copies of each group: 1, 3 or 5.
ESKER RESUME
    End ESKER PAUSE.
ESKER COPY <group> BEGIN | KEYS <copy> <cursor> | LOG <copy> <after>
    Execute a step of the copy of a group for a backup.
ESKER FINALIZE
    Use the highest level of the protocol between nodes, if the programs of all nodes have it.
GETKEYSINSLOT <slot> <count>
    Return key names stored by current node in a slot.
INFO
    Return information about the cluster.
KEYSLOT <key>
    Return the hash slot for <key>.
LINKS
    Return information about the connections to the other nodes.
MYID
    Return the node id.
MYSHARDID
    Return the node id.
NODES
    Return the nodes. Output format:
    <id> <ip:port> <flags> <master> <pings> <pongs> <epoch> <link> <slot> ...
REPLICAS <node-id>
    Return the replicas of a node.
SHARDS
    Return information about slot range mappings and the nodes associated with them.
SLOTS
    Return information about slots range mappings. Each range is made of:
    start, end, IP address, port and id of the leader and of each replica";

/// Bytes about a node and about a group in any answer.
const NODE_BYTES: usize = 1024;
const GROUP_BYTES: usize = 512;
/// Bytes about a replica of a group.
const COPY_BYTES: usize = 384;

fn bound(command: Command<'_>, _: &Session, service: &Service) -> Bound {
    let Some(cluster) = &service.cluster else { return Bound::once(0) };
    if command.len() > 4 && is(command.argument(1), "esker") && is(command.argument(2), "copy") {
        return Bound::twice(copying::PART_BYTES);
    }
    let topology = cluster.view.topology();
    let names = topology.nodes.iter().map(|node| node.resp.len() + node.peers.len() + NODE_BYTES);
    let copies =
        topology.nodes.iter().filter_map(|node| node.replica.as_ref()).map(|name| name.len() + COPY_BYTES);
    // A node may be a replica of each group.
    let of_copies = copies.sum::<usize>() * topology.groups.len();
    Bound::twice(names.sum::<usize>() + of_copies + (topology.groups.len() + 2) * GROUP_BYTES)
}

/// ASKING.
fn accept(_: Command<'_>, _: &mut Session, _: &Service, replies: &mut Replies) {
    replies.simple("OK");
}

fn key_slot(command: Command<'_>, _: &mut Session, _: &Service, replies: &mut Replies) {
    replies.integer(slot_of(command.argument(2)).into());
}

fn my_id(_: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    let Some(cluster) = &service.cluster else { return replies.error(NO_CLUSTER) };
    let topology = cluster.view.topology();
    let of_replica = session.replica.as_ref().and_then(|_| texts::own_copy(&topology));
    replies.bulk(of_replica.unwrap_or_else(|| id_text(topology.me)).as_bytes());
}

fn count_failure_reports(command: Command<'_>, _: &mut Session, service: &Service, replies: &mut Replies) {
    let Some(cluster) = &service.cluster else { return replies.error(NO_CLUSTER) };
    let topology = cluster.view.topology();
    match node_of(command.argument(2), &topology) {
        Ok(node) => replies.integer((!node.is_reachable).into()),
        Err(error) => replies.error(&error),
    }
}

fn replicas(command: Command<'_>, _: &mut Session, service: &Service, replies: &mut Replies) {
    let Some(cluster) = &service.cluster else { return replies.error(NO_CLUSTER) };
    let topology = cluster.view.topology();
    match node_of(command.argument(2), &topology) {
        Ok(node) => {
            let term =
                members(&topology).iter().find(|member| member.node.id == node.id).map_or(0, |one| one.term);
            let copies = copies(node.id, |_| true, &topology);
            replies.array(copies.len());
            copies
                .iter()
                .for_each(|copy| replies.bulk(texts::copy_line(copy, term, None).trim_end().as_bytes()));
        }
        Err(error) => replies.error(&error),
    }
}

/// Limit of the keys of GETKEYSINSLOT, because they are in memory.
const KEYS_MAX: usize = 1000;

async fn count_keys(command: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    if service.cluster.is_none() {
        return replies.error(NO_CLUSTER);
    }
    let Some(slot) = parse_integer(command.argument(2)) else {
        return replies.error(error_text::NOT_AN_INTEGER);
    };
    let Some(slot) = valid(slot) else { return replies.error("ERR Invalid slot") };
    let mut count = 0;
    let counted = scan::in_slot(slot, session, service, |_| {
        count += 1;
        true
    });
    match counted.await {
        Ok(()) => replies.integer(count),
        Err(error) => replies.error(&error),
    }
}

async fn get_keys(command: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    if service.cluster.is_none() {
        return replies.error(NO_CLUSTER);
    }
    let [Some(slot), Some(most)] = [2, 3].map(|at| parse_integer(command.argument(at))) else {
        return replies.error(error_text::NOT_AN_INTEGER);
    };
    let (Some(slot), Ok(most)) = (valid(slot), usize::try_from(most)) else {
        return replies.error("ERR Invalid slot or number of keys");
    };
    let (mut keys, most) = (Vec::new(), most.min(KEYS_MAX));
    let found = scan::in_slot(slot, session, service, |key| {
        if keys.len() < most {
            keys.push(key);
        }
        keys.len() < most
    });
    match found.await {
        Ok(()) => {
            replies.array(keys.len());
            keys.iter().for_each(|key| replies.bulk(key));
        }
        Err(error) => replies.error(&error),
    }
}

fn valid(slot: i64) -> Option<u16> {
    u16::try_from(slot).ok().filter(|slot| *slot < SLOTS)
}
