//! Choice of the next segments to relocate.

/// A sealed segment as input to the choice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Slot.
    pub slot: u32,
    /// Segment number; lower is older.
    pub segment: u64,
    /// Number of the newest segment when this one was sealed.
    pub sealed_at: u64,
    /// Bytes of current records.
    pub live_bytes: u64,
    /// Bytes that freeing the segment returns.
    pub used_bytes: u64,
}

/// Returns at most `count` of the oldest segments: the victims of destaging, which must take all segments in turn.
pub fn oldest(candidates: impl IntoIterator<Item = Candidate>, count: usize) -> Vec<Candidate> {
    let mut all: Vec<Candidate> = candidates.into_iter().collect();
    all.sort_unstable_by_key(|c| c.segment);
    all.truncate(count);
    all
}

/// Returns at most `count` segments: those with the highest benefit per cost, best first. The score is
/// `(1 − u) · age / u`, where `u` is the live share and `age` counts segments opened since the segment was sealed
/// (`newest` is the highest number assigned). Segments that would yield less than `least_yield` are left alone:
/// relocating fully live data only wears the medium.
///
/// This is Rosenblum and Ousterhout's cost-benefit (LFS, 1992) with `u` in place of `1 + u`, because the cost of a copy
/// is its write, while the read is cheap.
pub fn cost_benefit(
    candidates: impl IntoIterator<Item = Candidate>,
    newest: u64,
    least_yield: f64,
    count: usize,
) -> Vec<Candidate> {
    let score = |c: &Candidate| {
        let live = (c.live_bytes as f64 / c.used_bytes.max(1) as f64).clamp(0.0, 1.0);
        let age = newest.saturating_sub(c.sealed_at) as f64 + 1.0;
        (1.0 - live >= least_yield).then(|| (1.0 - live) * age / live.max(1e-9))
    };
    let mut scored: Vec<(f64, Candidate)> =
        candidates.into_iter().filter_map(|c| score(&c).map(|s| (s, c))).collect();
    let better =
        |(a, x): &(f64, Candidate), (b, y): &(f64, Candidate)| b.total_cmp(a).then(x.segment.cmp(&y.segment));
    if count < scored.len() {
        scored.select_nth_unstable_by(count, better);
        scored.truncate(count);
    }
    scored.sort_unstable_by(better);
    scored.into_iter().map(|(_, c)| c).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(segment: u64, live_bytes: u64) -> Candidate {
        Candidate { slot: segment as u32, segment, sealed_at: segment, live_bytes, used_bytes: 1000 }
    }

    #[test]
    fn score_prefers_emptier_and_older_segments() {
        let emptier = [candidate(5, 900), Candidate { sealed_at: 5, ..candidate(6, 100) }];
        assert_eq!(cost_benefit(emptier, 10, 0.05, 1)[0].live_bytes, 100);
        let older = [candidate(9, 500), candidate(2, 500)];
        assert_eq!(cost_benefit(older, 10, 0.05, 1)[0].segment, 2);
        assert_eq!(oldest([candidate(9, 0), candidate(2, 1000)], 1)[0].segment, 2);
    }

    #[test]
    fn a_segment_that_yields_too_little_is_left_alone() {
        assert_eq!(cost_benefit([candidate(1, 960)], 1_000_000, 0.05, 1), []);
        assert_eq!(cost_benefit([candidate(1, 940)], 1, 0.05, 1).len(), 1);
    }

    #[test]
    fn several_come_best_first() {
        let all = [candidate(5, 900), candidate(5, 100), candidate(5, 500), candidate(5, 300)];
        let live: Vec<u64> = cost_benefit(all, 10, 0.05, 3).iter().map(|c| c.live_bytes).collect();
        assert_eq!(live, [100, 300, 500]);
        let old: Vec<u64> = oldest([9, 2, 5].map(|n| candidate(n, 0)), 2).iter().map(|c| c.segment).collect();
        assert_eq!(old, [2, 5]);
    }
}
