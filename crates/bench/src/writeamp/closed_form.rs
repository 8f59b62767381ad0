//! Write amplification of a uniform load, which no victim selection changes.

/// Solves `WA = 1 / (1 − e^(−α / WA))` with `α = 1 / (1 − r)` for a reserve of `r` of the capacity
/// (Desnoyers 2012; Xiang and Kurkoski 2012). Returns its larger solution, found by bisection.
pub(crate) fn uniform(reserve: f64) -> f64 {
    let alpha = 1.0 / (1.0 - reserve.clamp(0.001, 0.999));
    // The gap increases with WA: it is negative below the solution, and positive above.
    let gap = |wa: f64| wa * (1.0 - (-alpha / wa).exp()) - 1.0;
    let (mut low, mut high) = (1.0, 1e7);
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if gap(middle) < 0.0 { low = middle } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulator_reproduces_published_figures() {
        for (reserve, wa) in [(0.07, 7.32), (0.12, 4.35), (0.20, 2.69), (0.28, 1.99), (0.3 / 1.3, 2.36)] {
            assert!((uniform(reserve) - wa).abs() < 0.01, "{reserve}: {} for {wa}", uniform(reserve));
        }
    }
}
