//! Which segment to relocate next.

/// A sealed segment, as the choice sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Its slot.
    pub slot: u32,
    /// Number of the segment: lower is older.
    pub segment: u64,
    /// Number that the newest segment had when it was sealed.
    pub sealed_at: u64,
    /// Bytes of records that are current.
    pub live_bytes: u64,
    /// Bytes that freeing it gives back.
    pub used_bytes: u64,
}

/// The oldest segment: the victim of destaging, which has to take them all in turn.
pub fn oldest(candidates: impl IntoIterator<Item = Candidate>) -> Option<Candidate> {
    candidates.into_iter().min_by_key(|c| c.segment)
}

/// The segment with the most to gain for what it costs: `(1 − u) · age / u`, where `u` is the live share and age counts
/// segments opened since it was sealed (`newest` is the highest number given out). Segments of which less than `least_yield` would be
/// gained are left alone: relocating what is all live only wears the medium.
///
/// The rule is Rosenblum and Ousterhout's cost-benefit (LFS, 1992) with `u` in place of `1 + u`: the copy is paid for in
/// writes, the read is cheap.
pub fn cost_benefit(
    candidates: impl IntoIterator<Item = Candidate>,
    newest: u64,
    least_yield: f64,
) -> Option<Candidate> {
    let score = |c: &Candidate| {
        let live = (c.live_bytes as f64 / c.used_bytes.max(1) as f64).clamp(0.0, 1.0);
        let age = newest.saturating_sub(c.sealed_at) as f64 + 1.0;
        (1.0 - live >= least_yield).then(|| (1.0 - live) * age / live.max(1e-9))
    };
    candidates
        .into_iter()
        .filter_map(|c| score(&c).map(|s| (s, c)))
        .max_by(|(a, x), (b, y)| a.total_cmp(b).then(y.segment.cmp(&x.segment)))
        .map(|(_, c)| c)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(segment: u64, live_bytes: u64) -> Candidate {
        Candidate { slot: segment as u32, segment, sealed_at: segment, live_bytes, used_bytes: 1000 }
    }

    #[test]
    fn emptier_wins_among_the_same_age_and_older_among_the_same_fill() {
        let emptier = [candidate(5, 900), Candidate { sealed_at: 5, ..candidate(6, 100) }];
        assert_eq!(cost_benefit(emptier, 10, 0.05).unwrap().live_bytes, 100);
        let older = [candidate(9, 500), candidate(2, 500)];
        assert_eq!(cost_benefit(older, 10, 0.05).unwrap().segment, 2);
        assert_eq!(oldest([candidate(9, 0), candidate(2, 1000)]).unwrap().segment, 2);
    }

    #[test]
    fn a_segment_that_yields_too_little_is_left_alone() {
        assert_eq!(cost_benefit([candidate(1, 960)], 1_000_000, 0.05), None);
        assert!(cost_benefit([candidate(1, 940)], 1, 0.05).is_some());
    }
}
