//! Formats the cluster of a node: its nodes, the largest lag, and problems.

use esker_server::status::{ClusterNode, ClusterStatus};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};

use super::text::count;

/// Maximum height of the block in lines.
const LINES_MAX: usize = 6;

const BAD: Style = Style::new().fg(Color::Red);

/// Returns the number of nodes and the largest lag.
pub(super) fn summary(cluster: &ClusterStatus) -> String {
    let lag = cluster.groups.iter().map(|group| group.lag).max().unwrap_or(0);
    format!("{} nodes, largest lag {} entries", cluster.nodes.len(), count(lag as f64))
}

/// Returns what a node does: `leads 4, this node`.
pub(super) fn role(cluster: &ClusterStatus, node: &ClusterNode) -> String {
    let me = if node.id == cluster.me { ", this node" } else { "" };
    let unreachable = if node.is_reachable { "" } else { ", unreachable" };
    format!("leads {}{me}{unreachable}", node.leads)
}

/// Returns the block of the screen: problems, the summary, and the nodes, at most 6 lines.
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
    lines.extend(packed([Span::raw(summary(cluster))].into_iter().chain(nodes), 2, columns));
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
