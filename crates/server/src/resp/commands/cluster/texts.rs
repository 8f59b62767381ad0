//! CLUSTER INFO and CLUSTER NODES, whose answers are texts.

use std::fmt::Write;

use esker_cluster::slots::SLOTS;
use esker_cluster::view::Topology;

use super::members::{Copy, Member, copies, host_and_port, id_text, led_slots, members};
use crate::resp::session::Session;
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::NO_CLUSTER;
use crate::resp::wire::reply::Replies;
use crate::service::Service;

pub(super) fn info(_: Command<'_>, _: &mut Session, service: &Service, replies: &mut Replies) {
    let Some(cluster) = &service.cluster else { return replies.error(NO_CLUSTER) };
    let topology = cluster.view.topology();
    replies.text(info_text(&topology).as_bytes());
}

fn info_text(topology: &Topology) -> String {
    let (slots, led, members) = (usize::from(SLOTS), led_slots(topology), members(topology));
    let leaders = members.iter().filter(|member| !member.slots.is_empty()).count();
    let mine = members.iter().find(|member| member.node.id == topology.me).map_or(0, |member| member.term);
    let highest = topology.groups.iter().map(|group| group.term).max().unwrap_or(0);
    let state = if led == slots { "ok" } else { "fail" };
    let lines: [(&str, &dyn std::fmt::Display); 12] = [
        ("cluster_state", &state),
        ("cluster_slots_assigned", &slots),
        ("cluster_slots_ok", &led),
        ("cluster_slots_pfail", &0),
        ("cluster_slots_fail", &(slots - led)),
        ("cluster_known_nodes", &topology.nodes.len()),
        ("cluster_size", &leaders),
        ("cluster_current_epoch", &highest),
        ("cluster_my_epoch", &mine),
        ("cluster_stats_messages_sent", &0),
        ("cluster_stats_messages_received", &0),
        ("total_cluster_links_buffer_limit_exceeded", &0),
    ];
    lines.iter().fold(String::new(), |mut text, (name, value)| {
        let _ = write!(text, "{name}:{value}\r\n");
        text
    })
}

pub(super) fn nodes(_: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    let Some(cluster) = &service.cluster else { return replies.error(NO_CLUSTER) };
    let topology = cluster.view.topology();
    let members = members(&topology);
    let myself = session.replica.as_ref().and_then(|_| own_copy(&topology));
    let mut lines = String::new();
    for member in &members {
        line(member, topology.me, myself.is_none(), &mut lines);
        for copy in copies(member.node.id, |_| true, &topology) {
            lines.push_str(&copy_line(&copy, member.term, myself.as_ref()));
        }
    }
    replies.text(lines.as_bytes());
}

/// Returns the id of this node as a replica, of the first leader with one; `None` without any.
pub(super) fn own_copy(topology: &Topology) -> Option<String> {
    let all = topology.nodes.iter().flat_map(|leader| copies(leader.id, |_| true, topology));
    all.into_iter().find(|copy| copy.node.id == topology.me).map(|copy| copy.id())
}

/// Returns the line of CLUSTER NODES about a node as a replica of a leader.
pub(super) fn copy_line(copy: &Copy<'_>, term: u64, myself: Option<&String>) -> String {
    let ((host, port), (_, bus)) = (host_and_port(copy.address), host_and_port(&copy.node.peers));
    let (id, leader) = (copy.id(), id_text(copy.leader));
    let (flags, link) = match (myself == Some(&id), copy.node.is_reachable) {
        (true, _) => ("myself,slave", "connected"),
        (false, true) => ("slave", "connected"),
        (false, false) => ("slave,fail?", "disconnected"),
    };
    format!("{id} {host}:{port}@{bus} {flags} {leader} 0 0 {term} {link}\n")
}

/// Appends the line of CLUSTER NODES about a node.
fn line(member: &Member<'_>, me: u64, is_asked: bool, line: &mut String) {
    let Member { node, slots, term, .. } = member;
    let (host, port) = host_and_port(&node.resp);
    let (_, bus) = host_and_port(&node.peers);
    let is_me = node.id == me;
    let flags = match (is_me, node.is_reachable) {
        (true, _) if is_asked => "myself,master",
        (true, _) => "master",
        (false, true) => "master",
        (false, false) => "master,fail?",
    };
    let link = if is_me || node.is_reachable { "connected" } else { "disconnected" };
    let _ = write!(line, "{} {host}:{port}@{bus} {flags} - 0 0 {term} {link}", id_text(node.id));
    for (first, last) in slots {
        let _ = if first == last { write!(line, " {first}") } else { write!(line, " {first}-{last}") };
    }
    line.push('\n');
}
