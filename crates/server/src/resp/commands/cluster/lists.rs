//! CLUSTER SLOTS, SHARDS and LINKS, whose answers are lists.

use super::members::{Copy, Member, Span, copies, host_and_port, id_text, members};
use crate::resp::session::Session;
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::NO_CLUSTER;
use crate::resp::wire::reply::Replies;
use crate::service::Service;

/// Answers each range of slots: first and last slot, then host, port and id of the leader and of each replica that is reachable,
/// and their further addresses, of which there are none.
pub(super) fn slots(_: Command<'_>, _: &mut Session, service: &Service, replies: &mut Replies) {
    let Some(cluster) = &service.cluster else { return replies.error(NO_CLUSTER) };
    let topology = cluster.view.topology();
    let members = members(&topology);
    let spans = |member| {
        let Member { slots, .. }: &Member<'_> = member;
        slots.iter().map(move |span| (*span, member))
    };
    let mut spans: Vec<(Span, &Member<'_>)> = members.iter().flat_map(spans).collect();
    spans.sort_unstable_by_key(|(span, _)| *span);
    replies.array(spans.len());
    for ((first, last), member) in spans {
        let mut copies = copies(member.node.id, |group| group.slots.contains(&first), &topology);
        copies.retain(|copy| copy.node.is_reachable);
        replies.array(3 + copies.len());
        replies.integer(first.into());
        replies.integer(last.into());
        address(&member.node.resp, &id_text(member.node.id), replies);
        copies.iter().for_each(|copy| address(copy.address, &copy.id(), replies));
    }
}

fn address(address: &str, id: &str, replies: &mut Replies) {
    let (host, port) = host_and_port(address);
    replies.array(4);
    replies.bulk(host.as_bytes());
    replies.integer(port.into());
    replies.bulk(id.as_bytes());
    replies.map(0);
}

pub(super) fn shards(_: Command<'_>, _: &mut Session, service: &Service, replies: &mut Replies) {
    let Some(cluster) = &service.cluster else { return replies.error(NO_CLUSTER) };
    let topology = cluster.view.topology();
    let members = members(&topology);
    replies.array(members.len());
    for member in &members {
        shard(member, &copies(member.node.id, |_| true, &topology), replies);
    }
}

fn shard(Member { node, slots, offset, .. }: &Member<'_>, copies: &[Copy<'_>], replies: &mut Replies) {
    replies.map(2);
    replies.bulk(b"slots");
    replies.array(2 * slots.len());
    for (first, last) in slots {
        replies.integer((*first).into());
        replies.integer((*last).into());
    }
    replies.bulk(b"nodes");
    replies.array(1 + copies.len());
    shard_node((&id_text(node.id), "master", &node.resp), *offset, node.is_reachable, replies);
    for copy in copies {
        shard_node((&copy.id(), "replica", copy.address), *offset, copy.node.is_reachable, replies);
    }
}

fn shard_node(
    (id, role, address): (&str, &str, &str),
    offset: u64,
    is_reachable: bool,
    replies: &mut Replies,
) {
    let (host, port) = host_and_port(address);
    replies.map(7);
    replies.bulk(b"id");
    replies.bulk(id.as_bytes());
    replies.bulk(b"port");
    replies.integer(port.into());
    for name in ["ip", "endpoint"] {
        replies.bulk(name.as_bytes());
        replies.bulk(host.as_bytes());
    }
    replies.bulk(b"role");
    replies.bulk(role.as_bytes());
    replies.bulk(b"replication-offset");
    replies.integer(i64::try_from(offset).unwrap_or(i64::MAX));
    replies.bulk(b"health");
    replies.bulk(if is_reachable { b"online" } else { b"failed" });
}

/// Answers the connection to each other node that is reachable.
pub(super) fn links(_: Command<'_>, _: &mut Session, service: &Service, replies: &mut Replies) {
    let Some(cluster) = &service.cluster else { return replies.error(NO_CLUSTER) };
    let topology = cluster.view.topology();
    let others = topology.nodes.iter().filter(|node| node.id != topology.me && node.is_reachable);
    replies.array(others.clone().count());
    for node in others {
        replies.map(6);
        for (name, value) in [("direction", "to"), ("node", &id_text(node.id))] {
            replies.bulk(name.as_bytes());
            replies.bulk(value.as_bytes());
        }
        replies.bulk(b"create-time");
        replies.integer(0);
        replies.bulk(b"events");
        replies.bulk(b"rw");
        for name in ["send-buffer-allocated", "send-buffer-used"] {
            replies.bulk(name.as_bytes());
            replies.integer(0);
        }
    }
}
