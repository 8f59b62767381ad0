//! Metrics of the cluster, as the node makes them.

use std::fmt::Write;

use esker_cluster::view::Metric;

use super::Text;
use crate::service::Service;

pub(super) fn cluster(text: &mut Text, service: &Service) {
    let Some(cluster) = &service.cluster else { return };
    let mut metrics = cluster.view.metrics();
    // A metric has all its lines after its head.
    metrics.sort_by_key(|metric| metric.name);
    for same in metrics.chunk_by(|one, other| one.name == other.name) {
        let Metric { name, help, is_counter, .. } = &same[0];
        let name = format!("cluster_{name}");
        text.head(&name, if *is_counter { "counter" } else { "gauge" }, help);
        for Metric { labels, value, .. } in same {
            let _ = writeln!(text.0, "esker_{name}{} {value}", labelled(*labels));
        }
    }
}

fn labelled((group, node): (Option<u8>, Option<u64>)) -> String {
    let group = group.map(|group| format!("group=\"{group}\""));
    let node = node.map(|node| format!("node=\"{node:016x}\""));
    let labels: Vec<String> = group.into_iter().chain(node).collect();
    if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) }
}
