//! CLUSTER SLOTS, SHARDS and LINKS, whose answers are lists.

use super::members::{Member, Span, host_and_port, id_text, members};
use crate::resp::session::Session;
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::NO_CLUSTER;
use crate::resp::wire::reply::Replies;
use crate::service::Service;

/// Answers each range of slots: first and last slot, then host, port and id of the leader, and further addresses, of which there
/// are none.
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
        let (host, port) = host_and_port(&member.node.resp);
        replies.array(3);
        replies.integer(first.into());
        replies.integer(last.into());
        replies.array(4);
        replies.bulk(host.as_bytes());
        replies.integer(port.into());
        replies.bulk(id_text(member.node.id).as_bytes());
        replies.map(0);
    }
}

pub(super) fn shards(_: Command<'_>, _: &mut Session, service: &Service, replies: &mut Replies) {
    let Some(cluster) = &service.cluster else { return replies.error(NO_CLUSTER) };
    let topology = cluster.view.topology();
    let members = members(&topology);
    replies.array(members.len());
    for member in &members {
        shard(member, replies);
    }
}

fn shard(Member { node, slots, offset, .. }: &Member<'_>, replies: &mut Replies) {
    let (host, port) = host_and_port(&node.resp);
    replies.map(2);
    replies.bulk(b"slots");
    replies.array(2 * slots.len());
    for (first, last) in slots {
        replies.integer((*first).into());
        replies.integer((*last).into());
    }
    replies.bulk(b"nodes");
    replies.array(1);
    replies.map(7);
    replies.bulk(b"id");
    replies.bulk(id_text(node.id).as_bytes());
    replies.bulk(b"port");
    replies.integer(port.into());
    for name in ["ip", "endpoint"] {
        replies.bulk(name.as_bytes());
        replies.bulk(host.as_bytes());
    }
    replies.bulk(b"role");
    replies.bulk(b"master");
    replies.bulk(b"replication-offset");
    replies.integer(i64::try_from(*offset).unwrap_or(i64::MAX));
    replies.bulk(b"health");
    replies.bulk(if node.is_reachable { b"online" } else { b"failed" });
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
