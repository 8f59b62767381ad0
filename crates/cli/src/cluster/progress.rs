//! Text about moves of groups: the moves in progress, with their remaining bytes and time, and the moves of a rebalancing.

use std::fmt::Write;

use serde::Deserialize;

use super::state::{Group, State};
use crate::inspect::show::bytes as size;

/// A change that balancing would make.
#[derive(Debug, Deserialize)]
pub(super) struct Planned {
    group: u8,
    from: Option<String>,
    to: Option<String>,
    bytes: u64,
}

/// Returns the time that is left for some bytes at the rate of now.
fn time_left(bytes: u64, bytes_per_s: u64) -> String {
    match bytes.checked_div(bytes_per_s) {
        None => "the time left is not known yet".to_owned(),
        Some(seconds @ 0..120) => format!("about {} s left at {}/s", seconds.max(1), size(bytes_per_s)),
        Some(seconds) => format!("about {} min left at {}/s", seconds / 60, size(bytes_per_s)),
    }
}

fn data(state: &State) -> impl Iterator<Item = &Group> {
    state.groups.iter().filter(|group| group.slots.is_some())
}

/// Returns a line about each group that is being copied, and about each node that is being drained.
pub(super) fn moves(state: &State) -> String {
    let mut text = String::new();
    let rate = state.copied_bytes_per_s;
    for group in data(state) {
        for receiver in group.receivers() {
            let _ = writeln!(
                text,
                "group {} is copied to {} ({})",
                group.group,
                state.address(receiver),
                size(group.bytes)
            );
        }
    }
    for node in state.nodes.iter().filter(|node| node.draining) {
        let left: Vec<_> = data(state)
            .filter(|group| group.placed.contains(&node.id) || group.voters.contains(&node.id))
            .collect();
        let bytes = left.iter().map(|group| group.bytes).sum();
        let _ = match (left.len(), node.holds) {
            (0, 0) => writeln!(text, "{} is drained: esker cluster remove {}", node.resp, node.id),
            (0, holds) => {
                writeln!(text, "{} is being drained: it gives the space of {holds} groups back", node.resp)
            }
            (count, _) => writeln!(
                text,
                "{} is being drained: {count} groups left, {}, {}",
                node.resp,
                size(bytes),
                time_left(bytes, rate)
            ),
        };
    }
    if state.balancing {
        text.push_str("groups are being rebalanced (esker cluster rebalance --dry-run shows what is left)\n");
    }
    text
}

/// Returns the moves that balancing would make.
pub(super) fn planned(state: &State, moves: &[Planned]) -> String {
    if moves.is_empty() {
        return "the groups are even: nothing to move\n".into();
    }
    let named =
        |node: &Option<String>| node.as_deref().map_or("-".to_owned(), |node| state.address(node).to_owned());
    let mut text = format!("{:<6} {:<22} {:<22} {:>10}\n", "group", "from", "to", "bytes");
    for Planned { group, from, to, bytes } in moves {
        let _ = writeln!(text, "{group:<6} {:<22} {:<22} {:>10}", named(from), named(to), size(*bytes));
    }
    let bytes = moves.iter().filter(|planned| planned.to.is_some()).map(|planned| planned.bytes).sum();
    let _ = writeln!(text, "{} moves, {}", moves.len(), size(bytes));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_names_what_is_left() {
        let text = serde_json::json!({
            "me": "a", "replicas": 3, "balancing": true, "copied_bytes_per_s": 1 << 20,
            "nodes": [
                {"id": "a", "resp": "h:1", "peers": "h:2", "zone": "", "reachable": true, "draining": true, "holds": 1},
                {"id": "d", "resp": "h:7", "peers": "h:8", "zone": "", "reachable": true},
            ],
            "groups": [{
                "group": 1, "slots": [0, 16383], "leader": "b", "term": 1, "placed": ["b", "c", "d"], "bytes": 600 << 20,
                "voters": ["a", "b", "c"], "learners": ["d"], "last_index": 9, "applied": 9, "matched": [],
            }],
        });
        let state = State::parse(text.to_string().as_bytes()).unwrap();
        assert_eq!(
            moves(&state),
            "group 1 is copied to h:7 (600.0 MiB)\nh:1 is being drained: 1 groups left, 600.0 MiB, about 10 min left at 1.0 MiB/s\n\
             groups are being rebalanced (esker cluster rebalance --dry-run shows what is left)\n"
        );
        assert_eq!(time_left(9, 0), "the time left is not known yet");
        let moves = [Planned { group: 1, from: Some("a".into()), to: Some("d".into()), bytes: 1024 }];
        let shown = planned(&state, &moves);
        assert!(shown.ends_with("1 moves, 1.0 KiB\n") && shown.contains("h:1 "), "{shown}");
    }
}
