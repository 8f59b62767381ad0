//! Chooses the segments to collect on a drive that erases several of them together: one reclaim group after the other.
//!
//! A group is scored like a single segment, by its sums. If none qualifies, segments are chosen one by one: room is needed,
//! whatever the drive must copy for it.

use std::collections::BTreeMap;

use esker_gc::{Candidate, cost_benefit, oldest};

use crate::segments::groups::{Group, Groups};
use crate::segments::sets::LEAST_YIELD;

/// Parameters of a choice.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    /// Highest segment number assigned so far.
    pub(super) newest: u64,
    /// Minimum share of its bytes that a group must give back.
    pub(super) least_yield: f64,
    /// Maximum number of segments.
    pub(super) count: usize,
}

/// Returns the next segments to collect from the group that was begun, otherwise from the best group; and that group.
pub(super) fn in_one_group(
    groups: &Groups,
    candidates: impl Iterator<Item = (Group, Candidate)>,
    begun: Option<Group>,
    Asked { newest, least_yield, count }: Asked,
) -> (Option<Group>, Vec<Candidate>) {
    let mut members: BTreeMap<Group, Vec<Candidate>> = BTreeMap::new();
    for (group, candidate) in candidates {
        members.entry(group).or_default().push(candidate);
    }
    let of = |group: &Group| members.get(group).map_or(Vec::new(), |members| worth_it(members, count));
    let going_on = begun.as_ref().map_or(Vec::new(), of);
    if !going_on.is_empty() {
        return (begun, going_on);
    }
    // A group is identified by its first segment.
    let complete = members.iter().filter(|(group, _)| groups.is_complete(**group));
    let sums: Vec<(Group, Candidate)> = complete.map(|(group, members)| (*group, sum(members))).collect();
    let best = cost_benefit(sums.iter().map(|(_, sum)| *sum), newest, least_yield, 1);
    let best = best.first().and_then(|best| sums.iter().find(|(_, sum)| sum.slot == best.slot));
    let victims = best.map_or(Vec::new(), |(group, _)| of(group));
    if victims.is_empty() {
        return (None, cost_benefit(members.into_values().flatten(), newest, least_yield, count));
    }
    (best.map(|(group, _)| *group), victims)
}

/// Returns those segments of a group that are not fully live, oldest first.
fn worth_it(members: &[Candidate], count: usize) -> Vec<Candidate> {
    let yields = |c: &&Candidate| c.live_bytes as f64 <= (1.0 - LEAST_YIELD) * c.used_bytes as f64;
    oldest(members.iter().filter(yields).copied(), count)
}

/// Returns a group as if it were one segment, as young as its youngest.
fn sum(members: &[Candidate]) -> Candidate {
    let add = |mut sum: Candidate, one: &Candidate| {
        sum.live_bytes += one.live_bytes;
        sum.used_bytes += one.used_bytes;
        sum.sealed_at = sum.sealed_at.max(one.sealed_at);
        sum
    };
    members[1..].iter().fold(members[0], add)
}

#[cfg(test)]
mod tests {
    use esker_log::Stream;

    use super::*;

    const ASKED: Asked = Asked { newest: 10, least_yield: 0.05, count: 4 };

    /// Returns groups of two segments with these live bytes of 1000 each, in the order of sealing.
    fn grouped(groups: &Groups, live: &[u64]) -> Vec<(Group, Candidate)> {
        let candidate = |at: usize, live_bytes: u64| Candidate {
            slot: at as u32,
            segment: at as u64,
            sealed_at: 1,
            live_bytes,
            used_bytes: 1000,
        };
        live.iter().enumerate().map(|(at, live)| (groups.next(Stream::LANE), candidate(at, *live))).collect()
    }

    fn chosen(live: &[u64], begun: Option<usize>) -> Vec<u32> {
        let groups = Groups::new(Some(2000), 1000, 1000);
        let all = grouped(&groups, live);
        let begun = begun.map(|at| all[at].0);
        let (_, victims) = in_one_group(&groups, all.into_iter(), begun, ASKED);
        victims.iter().map(|c| c.slot).collect()
    }

    #[test]
    fn a_group_is_chosen_by_its_sums_and_emptied_before_another() {
        // The emptiest segment shares its group with a fully live one.
        assert_eq!(chosen(&[100, 1000, 400, 400, 900, 900], None), [2, 3]);
        assert_eq!(chosen(&[100, 1000, 400, 400, 900, 900], Some(4)), [4, 5], "the group was begun");
        assert_eq!(chosen(&[1000, 980, 400, 400], Some(0)), [2, 3], "no member of the group yields enough");
        assert_eq!(chosen(&[200, 1000, 900, 800], None), [0], "fully live segments stay");
    }

    #[test]
    fn where_no_group_is_worth_it_segments_are_taken_one_by_one() {
        assert_eq!(chosen(&[940, 1000, 1000, 1000], None), [0], "its group yields too little");
        assert_eq!(chosen(&[1000, 1000, 300], None), [2], "its group is not complete");
        assert_eq!(chosen(&[1000, 1000, 960], None), [0; 0]);
    }
}
