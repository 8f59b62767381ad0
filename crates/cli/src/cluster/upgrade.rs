//! Text about a rolling upgrade: the level of the protocol between nodes, and the programs of the nodes.

use std::fmt::Write;

use super::state::{Node, State};

/// Returns the version and the levels of a node's program.
pub(super) fn program(node: &Node) -> (String, String) {
    let levels = match node.levels {
        None => "-".to_owned(),
        Some([lowest, highest]) if lowest == highest => lowest.to_string(),
        Some([lowest, highest]) => format!("{lowest}-{highest}"),
    };
    let version = match node.version.as_deref() {
        None => "-",
        Some("") => "earlier",
        Some(version) => version,
    };
    (version.to_owned(), levels)
}

/// Returns the highest level that the programs of all nodes have; `None` if one has not said.
fn common(state: &State) -> Option<u8> {
    let highest = state.nodes.iter().map(|node| node.levels.map(|[_, highest]| highest));
    highest.collect::<Option<Vec<_>>>()?.into_iter().min()
}

/// Returns a line if the cluster uses a lower level than the program of a node has.
pub(super) fn status(state: &State) -> String {
    let highest = state.nodes.iter().filter_map(|node| node.levels.map(|[_, highest]| highest)).max();
    let Some((level, highest)) = state.level.zip(highest).filter(|(level, highest)| level < highest) else {
        return String::new();
    };
    match common(state) {
        Some(common) if common > level => format!(
            "level {level} is in use, and all nodes have level {common}: esker cluster upgrade finalize ends the upgrade\n"
        ),
        _ => format!(
            "level {level} is in use, and some nodes have level {highest}: an upgrade is in progress (esker cluster upgrade status)\n"
        ),
    }
}

/// Returns the answer to `upgrade status`.
pub(super) fn programs(state: &State) -> String {
    let level = state.level.map_or("an unknown level".to_owned(), |level| format!("level {level}"));
    let mut text = format!("the cluster uses {level} of the protocol between nodes\n");
    for node in &state.nodes {
        let (version, levels) = program(node);
        let answers = if node.reachable { "" } else { ", does not answer" };
        let _ = writeln!(text, "  {:<22} version {version}, levels {levels}{answers}", node.resp);
    }
    text + &status(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(level: u8, programs: &[Option<([u8; 2], &str)>]) -> State {
        let node = |(at, program): (usize, &Option<([u8; 2], &str)>)| {
            serde_json::json!({
                "id": at.to_string(), "resp": format!("h:{at}"), "peers": "p", "zone": "", "reachable": true,
                "levels": program.map(|(levels, _)| levels), "version": program.map(|(_, version)| version),
            })
        };
        let nodes: Vec<_> = programs.iter().enumerate().map(node).collect();
        let text = serde_json::json!({ "me": "0", "level": level, "nodes": nodes, "groups": [] });
        State::parse(text.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn upgrade_is_shown_until_it_is_finalized() {
        let (old, new) = (Some(([1, 1], "")), Some(([1, 2], "0.2.0")));
        let mixed = programs(&state(1, &[old, new, None]));
        for part in [
            "uses level 1 of",
            "h:0                    version earlier, levels 1\n",
            "version 0.2.0, levels 1-2\n",
            "version -, levels -\n",
            "some nodes have level 2: an upgrade is in progress",
        ] {
            assert!(mixed.contains(part), "{part}: {mixed}");
        }
        assert!(
            status(&state(1, &[new, new])).contains("all nodes have level 2: esker cluster upgrade finalize")
        );
        assert!(status(&state(1, &[new, None])).contains("in progress"), "one node has not said");
        assert_eq!(status(&state(2, &[new, new])), "");
        assert_eq!(status(&state(1, &[old, old])), "");
    }
}
