//! Results of a simulation of other rules, for comparison.
//!
//! Source: the simulation in the design notes on garbage collection ("Performance", section 5): 262,144
//! records, 128 per segment, overwritten 12 times, second half measured, records of one size without
//! headers, padding and summaries. It does not include coalescing in a write buffer.

use crate::workload::Shape;

/// A row: the rule, and its write amplification at reserves of 7, 12, 20 and 28 %.
pub(crate) struct Row {
    pub(crate) rule: &'static str,
    pub(crate) wa: [f64; 4],
    /// True if a store can implement it; false if it is a theoretical bound.
    pub(crate) is_rule: bool,
}

/// The reserves of the columns, in percent.
pub(crate) const RESERVES: [u8; 4] = [7, 12, 20, 28];

const fn rule(rule: &'static str, wa: [f64; 4]) -> Row {
    Row { rule, wa, is_rule: true }
}

const fn bound(rule: &'static str, wa: [f64; 4]) -> Row {
    Row { rule, wa, is_rule: false }
}

const UNIFORM: &[Row] = &[
    bound("closed form", [7.32, 4.35, 2.69, 1.99]),
    rule("FIFO", [7.46, 4.40, 2.71, 2.00]),
    rule("greedy", [7.07, 4.26, 2.66, 1.97]),
    rule("greedy, 10 choices", [7.32, 4.39, 2.73, 2.02]),
];
const ZIPF_08: &[Row] = &[
    rule("greedy, one stream", [8.63, 5.31, 3.36, 2.49]),
    rule("greedy, user/GC split", [7.40, 4.55, 2.90, 2.17]),
    rule("cost-benefit, user/GC split", [6.36, 4.01, 2.65, 2.06]),
    rule("SepBIT + cost-benefit", [5.83, 3.58, 2.34, 1.83]),
    bound("known-rate bound", [4.69, 2.92, 1.95, 1.54]),
];
const ZIPF_099: &[Row] = &[
    rule("greedy, one stream", [10.3, 6.30, 3.93, 2.88]),
    rule("greedy, user/GC split", [7.20, 4.58, 3.06, 2.32]),
    rule("cost-benefit, user/GC split", [4.62, 3.06, 2.17, 1.78]),
    rule("SepBIT + greedy", [5.66, 3.66, 2.50, 2.00]),
    rule("SepBIT + cost-benefit", [3.92, 2.56, 1.82, 1.51]),
    bound("known-rate bound", [2.90, 1.98, 1.47, 1.27]),
];
const ZIPF_12: &[Row] = &[
    rule("greedy, one stream", [12.0, 7.20, 4.11, 2.69]),
    rule("greedy, user/GC split", [5.12, 3.84, 2.83, 2.10]),
    rule("cost-benefit, user/GC split", [2.54, 1.86, 1.48, 1.34]),
    rule("SepBIT + cost-benefit", [2.05, 1.56, 1.30, 1.19]),
    bound("known-rate bound", [1.54, 1.27, 1.13, 1.07]),
];

/// Returns the rows of a distribution; empty if it was not simulated.
pub(crate) fn rows(shape: Shape) -> &'static [Row] {
    match shape {
        Shape::Uniform => UNIFORM,
        Shape::Zipf(0.8) => ZIPF_08,
        Shape::Zipf(0.99) => ZIPF_099,
        Shape::Zipf(1.2) => ZIPF_12,
        Shape::Zipf(_) => &[],
    }
}

/// Returns the values at a reserve, and whether each is a rule.
pub(crate) fn at(shape: Shape, reserve_percent: u8) -> Vec<(&'static str, f64, bool)> {
    let Some(column) = RESERVES.iter().position(|reserve| *reserve == reserve_percent) else {
        return Vec::new();
    };
    rows(shape).iter().map(|row| (row.rule, row.wa[column], row.is_rule)).collect()
}

/// Returns the upper bound for the store: at a reserve of 20 % the goal of each load, otherwise a tenth
/// above the best rule.
pub(crate) fn goal(shape: Shape, reserve_percent: u8) -> Option<f64> {
    match (shape, reserve_percent) {
        (Shape::Uniform, 20) => Some(2.75),
        (Shape::Zipf(0.8), 20) => Some(2.5),
        (Shape::Zipf(0.99), 20) => Some(2.0),
        (Shape::Zipf(1.2), 20) => Some(1.4),
        _ => {
            let rules = at(shape, reserve_percent).into_iter().filter(|(_, _, is_rule)| *is_rule);
            rules.map(|(_, wa, _)| wa * 1.1).min_by(f64::total_cmp)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writeamp::closed_form;

    #[test]
    fn closed_form_row_matches_formula() {
        for (rule, wa, _) in RESERVES.map(|reserve| at(Shape::Uniform, reserve)[0]) {
            assert_eq!(rule, "closed form");
            let reserve =
                RESERVES.iter().find(|r| (closed_form::uniform(f64::from(**r) / 100.0) - wa).abs() < 0.01);
            assert!(reserve.is_some(), "{wa}");
        }
    }

    #[test]
    fn goals_match_decision() {
        assert_eq!(goal(Shape::Zipf(1.2), 20), Some(1.4));
        let other = goal(Shape::Zipf(0.99), 7).expect("it was simulated");
        assert!((other - 3.92 * 1.1).abs() < 1e-9);
        assert_eq!(goal(Shape::Zipf(0.5), 20), None);
        assert_eq!(goal(Shape::Uniform, 33), None);
    }
}
