//! Low-water mark of free slots: garbage stays until free slots run low, and is then collected early enough that
//! writers are not held back.
//!
//! The mark lies above the number of free slots at which writers are paced. The distance is the number of slots that
//! writers take while collecting gains one, because collecting pauses between its reads and writes until writers are
//! paced. SSDs collect by the same rule: garbage costs nothing while erased blocks are left.

use std::time::Duration;

use crate::pace::{Rate, duty};

/// Urgency of collecting while no writer is paced.
pub const CALM: f64 = 0.25;
/// Minimum interval between two samples of the write rate.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// Factor by which the noted peak of the write rate decays per second.
const DECAY_PER_S: f64 = 0.95;
/// Assumed rate at which collecting gains space before the first measurement, in bytes per second.
const ASSUMED_GAIN_BYTES_PER_S: f64 = 67_108_864.0;
/// Minimum of that rate, however little a relocation gained.
const LEAST_GAIN_BYTES_PER_S: f64 = 1_048_576.0;
/// The slots without live data divided by this are the largest distance, because free slots above the mark hold no
/// garbage, so they raise write amplification.
const SPARE_DIVISOR: u32 = 32;

/// Measured rates of writing and collecting, and the distance that follows from them.
#[derive(Debug, Default)]
pub struct LowWater {
    /// Time and total of the last sample.
    sampled: Option<(Duration, u64)>,
    /// Highest write rate of late, in bytes per second.
    peak_bytes_per_s: f64,
    /// Bytes gained by collecting, and the time it worked for that.
    gained: Rate,
}

impl LowWater {
    /// Samples the total number of bytes that writers have written to the tier by `now`.
    pub fn note_written(&mut self, now: Duration, total_bytes: u64) {
        let (at, known) = *self.sampled.get_or_insert((now, total_bytes));
        let passed = now.saturating_sub(at);
        if passed >= SAMPLE_EVERY {
            let rate = total_bytes.saturating_sub(known) as f64 / passed.as_secs_f64();
            let decayed = self.peak_bytes_per_s * DECAY_PER_S.powf(passed.as_secs_f64());
            self.peak_bytes_per_s = rate.max(decayed);
            self.sampled = Some((now, total_bytes));
        }
    }

    /// Notes that collecting freed `bytes` more than its copies took, in `took` of work without pauses.
    pub fn note_gained(&mut self, bytes: i64, took: Duration) {
        self.gained.note(bytes as f64, took);
    }

    /// Returns the distance of the mark from the number of free slots at which writers are paced, in slots: as many as
    /// writers take while collecting gains one, at least one, and at most a share of the `spare_slots` without live
    /// data.
    pub fn lead_slots(&self, spare_slots: u32) -> u32 {
        let gain = self.gained.per_s(LEAST_GAIN_BYTES_PER_S).unwrap_or(ASSUMED_GAIN_BYTES_PER_S);
        let taken = (self.peak_bytes_per_s / (gain * duty(CALM))).ceil();
        // Saturates.
        (taken as u32).max(1).min(spare_slots / SPARE_DIVISOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: f64 = 1e6;

    /// Returns the state after writers wrote at each of these rates for a second.
    fn written(rates_mb: &[f64]) -> LowWater {
        let (mut water, mut total) = (LowWater::default(), 0.0);
        water.note_written(Duration::ZERO, 0);
        for (second, rate) in rates_mb.iter().enumerate() {
            total += rate * MB;
            water.note_written(Duration::from_secs(second as u64 + 1), total as u64);
        }
        water
    }

    #[test]
    fn lead_is_what_writers_take_while_a_slot_is_gained() {
        let mut water = written(&[100.0]);
        // At an urgency of a quarter, collecting works for two fifths of the time.
        water.note_gained(25_000_000, Duration::from_secs(1));
        assert_eq!(water.lead_slots(10_000), 10);
        water.note_gained(1 << 40, Duration::from_secs(1));
        assert_eq!(water.lead_slots(10_000), 1, "collecting is much faster");
    }

    #[test]
    fn lead_is_bounded_by_the_spare_slots() {
        let mut water = written(&[1_000_000.0]);
        assert_eq!([0, 31, 32, 320].map(|spare| water.lead_slots(spare)), [0, 0, 1, 10]);
        water.note_gained(-5, Duration::from_secs(1));
        assert_eq!(water.lead_slots(6400), 200, "a relocation that gained nothing");
    }

    #[test]
    fn peak_of_the_write_rate_is_kept_for_a_while() {
        let lead = |rates: &[f64]| written(rates).lead_slots(u32::MAX);
        let steady = lead(&[400.0]);
        assert_eq!(steady, 15, "of an assumed gain of 64 MiB/s");
        assert_eq!(lead(&[400.0, 0.0]), 15);
        assert_eq!(lead(&[[400.0].as_slice(), &[0.0; 200]].concat()), 1);
        // Samples at short intervals are joined.
        let mut water = written(&[400.0]);
        water.note_written(Duration::from_millis(1001), 500_000_000);
        assert_eq!(water.lead_slots(u32::MAX), steady);
    }
}
