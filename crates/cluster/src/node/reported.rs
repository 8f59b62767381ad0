//! The reports of all nodes at one moment, and the rate of copies that follows from them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::place::report::{GroupReport, NodeReport};

/// The reports of all nodes.
#[derive(Clone, Debug, Default)]
pub(super) struct Reports {
    pub(super) nodes: BTreeMap<u64, NodeReport>,
    /// Of each group, the report with the highest term.
    pub(super) groups: BTreeMap<u8, GroupReport>,
}

impl Reports {
    /// Returns these reports with later ones.
    pub(super) fn with(&self, later: Vec<NodeReport>, is_known: impl Fn(u64) -> bool) -> Reports {
        let mut nodes = self.nodes.clone();
        nodes.extend(later.into_iter().map(|report| (report.node, report)));
        nodes.retain(|node, _| is_known(*node));
        let mut groups: BTreeMap<u8, GroupReport> = BTreeMap::new();
        for report in nodes.values().flat_map(|node| &node.groups) {
            let known = groups.entry(report.group).or_insert_with(|| report.clone());
            if known.term < report.term {
                known.clone_from(report);
            }
        }
        Reports { nodes, groups }
    }

    pub(super) fn copied_bytes(&self) -> u64 {
        self.nodes.values().map(|node| node.copied_bytes).sum()
    }
}

/// The rate at which groups are copied.
#[derive(Default)]
pub(super) struct CopyRate {
    at: Duration,
    bytes: u64,
    bytes_per_s: u64,
}

/// Time over which the rate of copies is measured.
const RATE_INTERVAL: Duration = Duration::from_secs(2);

impl CopyRate {
    /// Notes the bytes that were copied until now, and returns the rate in bytes per second.
    pub(super) fn note(&mut self, now: Duration, bytes: u64) {
        let elapsed = now.saturating_sub(self.at);
        if elapsed >= RATE_INTERVAL || bytes < self.bytes {
            let copied = bytes.saturating_sub(self.bytes);
            self.bytes_per_s = (copied as u128 * 1000 / elapsed.as_millis().max(1)) as u64;
            (self.at, self.bytes) = (now, bytes);
        }
    }

    pub(super) fn bytes_per_s(&self) -> u64 {
        self.bytes_per_s
    }
}
