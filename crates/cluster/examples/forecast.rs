//! Placement and moves of clusters of 3 to 100 nodes, by the function that places the groups of a running cluster.
//!
//! ```text
//! cargo run --release -p esker-cluster --example forecast
//! ```
//!
//! For each number of nodes: groups of a node, groups that one node leads, copies and rounds after a loss, an addition and a drain
//! (a round is the time of one copy of a large group), and the time that all decisions took.

#![expect(clippy::disallowed_methods, reason = "a measurement reads the real clock")]

use std::time::Instant;

use esker_cluster::place::forecast::{Change, Forecast, Moves};

/// Bytes of a group: large enough to be copied alone.
const GROUP_BYTES: u64 = 10 << 30;

fn main() {
    println!(
        "{:>5} {:>6} {:>7} {:>5} {:>13} {:>13} {:>13} {:>12}",
        "nodes", "groups", "held", "leads", "loss", "addition", "drain", "decided in"
    );
    for (nodes, groups) in [(3, 12), (6, 12), (10, 14), (14, 14), (36, 12), (64, 12), (100, 12), (100, 14)] {
        let begun = Instant::now();
        let placed = Forecast::new(nodes, groups, 3, GROUP_BYTES).expect("there are nodes");
        let moves =
            [Change::Loss, Change::Addition, Change::Drain].map(|change| placed.clone().change(change));
        let took = begun.elapsed();
        let shown = |moves: Option<Moves>| match moves {
            None => "-".to_owned(),
            Some(Moves { copies, rounds }) => format!("{copies} in {rounds}"),
        };
        let [loss, addition, drain] = moves.map(shown);
        let (least, most) = placed.held();
        println!(
            "{nodes:>5} {groups:>6} {:>7} {:>5} {loss:>13} {addition:>13} {drain:>13} {:>9.1} ms",
            format!("{least}-{most}"),
            placed.led(),
            took.as_secs_f64() * 1e3
        );
    }
}
