//! Estimates the count from the histogram of register values, after Otmar Ertl, "New cardinality estimation
//! algorithms for HyperLogLog sketches" (arXiv:1702.01284).

use super::hash::VALUE_MAX;
use super::sketch::REGISTERS;

/// The number of registers with each value. Values that no hash produces occur only in bytes made elsewhere, and are
/// ignored.
pub(super) struct Histogram([u32; VALUE_MAX as usize + 1]);

impl Histogram {
    pub(super) fn new() -> Histogram {
        Histogram([0; VALUE_MAX as usize + 1])
    }

    pub(super) fn add(&mut self, value: u8, registers: usize) {
        if let Some(known) = self.0.get_mut(usize::from(value)) {
            *known += registers as u32;
        }
    }
}

/// 1 / (2 ln 2), with the digits of Redis' constant.
const ALPHA: f64 = 0.721_347_520_444_481_7;

/// Returns the estimated number of elements.
pub(super) fn estimate(histogram: &Histogram) -> u64 {
    let all = REGISTERS as f64;
    let of = |value: usize| f64::from(histogram.0[value]);
    let last = VALUE_MAX as usize;
    let mut sum = all * tau((all - of(last)) / all);
    for value in (1..last).rev() {
        sum = (sum + of(value)) * 0.5;
    }
    sum += all * sigma(of(0) / all);
    let count = (ALPHA * all * all / sum).round();
    // A count of 2⁶³ or more becomes 2⁶³, as in Redis.
    if count < 2_f64.powi(63) { count as u64 } else { 1 << 63 }
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if before == z {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x).powi(2) * y;
        if before == z {
            return z / 3.0;
        }
    }
}
