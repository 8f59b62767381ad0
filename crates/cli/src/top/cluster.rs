//! Formats the cluster of a node: its nodes, the largest lag, and problems.

use esker_server::status::{ClusterNode, ClusterStatus};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};

use super::text::count;

/// Maximum height of the block in lines.
const LINES_MAX: usize = 8;

const BAD: Style = Style::new().fg(Color::Red);

/// Returns the number of nodes, the number of unreachable ones if there are any, and the largest lag.
pub(super) fn summary(cluster: &ClusterStatus) -> Vec<String> {
    let lag = cluster.groups.iter().map(|group| group.lag).max().unwrap_or(0);
    let unreachable = cluster.nodes.iter().filter(|node| !node.is_reachable).count();
    let mut facts = vec![format!("{} nodes", cluster.nodes.len())];
    if unreachable > 0 {
        facts.push(format!("{unreachable} unreachable"));
    }
    facts.push(format!("largest lag {} entries", count(lag as f64)));
    facts
}

/// Returns the role of a node: `leads 4, this node`.
pub(super) fn role(cluster: &ClusterStatus, node: &ClusterNode) -> String {
    let me = if node.id == cluster.me { ", this node" } else { "" };
    let unreachable = if node.is_reachable { "" } else { ", unreachable" };
    format!("leads {}{me}{unreachable}", node.leads)
}

/// Returns the block of the screen: problems, the summary, and the nodes, at most 8 lines.
pub(super) fn lines(cluster: &ClusterStatus, columns: usize) -> Vec<Line<'static>> {
    let words = |problem: &String| {
        let words = problem.split(' ').map(|word| Span::styled(word.to_owned(), BAD));
        packed(words, 1, columns)
    };
    let mut lines: Vec<_> = cluster.problems.iter().flat_map(words).collect();
    let nodes = cluster.nodes.iter().map(|node| {
        let style = if node.is_reachable { Style::new() } else { BAD };
        Span::styled(format!("{} {}", node.resp, role(cluster, node)), style)
    });
    lines.extend(packed(summary(cluster).into_iter().map(Span::raw).chain(nodes), 2, columns));
    lines.truncate(LINES_MAX);
    lines
}

/// Lays out pieces one after another, `gap` columns apart, as many in a line as fit.
fn packed(pieces: impl Iterator<Item = Span<'static>>, gap: usize, columns: usize) -> Vec<Line<'static>> {
    let mut lines: Vec<Line<'static>> = Vec::new();
    for piece in pieces {
        match lines.last_mut().filter(|line| line.width() + gap + piece.width() <= columns) {
            Some(line) => {
                line.push_span(" ".repeat(gap));
                line.push_span(piece);
            }
            None => lines.push(Line::from(piece)),
        }
    }
    lines
}
