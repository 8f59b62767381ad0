//! The preferred leader of each group: every node computes the same one from the placement.

use std::collections::{BTreeMap, BTreeSet};

/// Returns the node that should lead each group: of its nodes the one with the fewest groups so far, in the order of the
/// groups. Nodes that are being drained lead only groups that have no other node.
pub(crate) fn preferred_leaders(
    places: &BTreeMap<u8, BTreeSet<u64>>,
    draining: &BTreeSet<u64>,
) -> BTreeMap<u8, u64> {
    let (mut leads, mut counts) = (BTreeMap::new(), BTreeMap::<u64, usize>::new());
    for (group, nodes) in places {
        let count = nodes.len().max(1);
        let ranked = nodes.iter().enumerate().min_by_key(|(at, node)| {
            let turn = (at + count - usize::from(*group) % count) % count;
            (draining.contains(node), counts.get(node).copied().unwrap_or(0), turn)
        });
        if let Some((_, node)) = ranked {
            *counts.entry(*node).or_default() += 1;
            leads.insert(*group, *node);
        }
    }
    leads
}
