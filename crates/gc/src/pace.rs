//! Pacing: the rate at which writers are admitted while free space runs short, and the share of device time of
//! background work.
//!
//! Both are smooth functions of the debt, the distance of the free space from its target. Together they settle free
//! space at a level where as much is freed as is written under any load, and no writer waits for a whole segment to be
//! cleaned.

use std::time::Duration;

/// A shared clock of admitted bytes: writers are admitted in order of arrival at the rate that the debt allows.
#[derive(Debug, Default)]
pub struct Pacer {
    next: Duration,
}

impl Pacer {
    /// Returns the time that a write of `bytes` must wait.
    ///
    /// `free_share` is the remaining share of the space being consumed, 0 to 1. `drain_bytes_per_s` is the rate at
    /// which space is freed, more than 0. At a `free_share` of `relaxed` or more, no writer waits. Below it, the
    /// admitted rate falls linearly from twice the drain rate to half of it at zero free space, so that free space
    /// settles between the two under any load. Waits shorter than half a millisecond are accumulated first, because
    /// timers are imprecise at that scale.
    pub fn wait(
        &mut self,
        now: Duration,
        bytes: u64,
        free_share: f64,
        relaxed: f64,
        drain_bytes_per_s: f64,
    ) -> Duration {
        debug_assert!(drain_bytes_per_s > 0.0, "writers would wait forever");
        if free_share >= relaxed {
            self.next = now;
            return Duration::ZERO;
        }
        let rate = drain_bytes_per_s * (0.5 + 1.5 * (free_share / relaxed).clamp(0.0, 1.0));
        // Idle time does not accumulate as burst credit, and the backlog of earlier writers is capped at one second.
        let start = self.next.clamp(now, now + Duration::from_secs(1));
        self.next = start + Duration::from_secs_f64(bytes as f64 / rate);
        // A wait below `LEAST_PAUSE` is deferred to later writers, not dropped.
        Some(start - now).filter(|wait| *wait >= LEAST_PAUSE).unwrap_or_default()
    }
}

/// Minimum share of device time that background work uses while it has work to do.
const LEAST_DUTY: f64 = 0.2;
/// Shortest pause and shortest wait of a writer. Shorter ones are accumulated.
const LEAST_PAUSE: Duration = Duration::from_micros(500);
/// Longest pause due to the debt, so that a change of the debt takes effect soon. Pauses due to the byte limit may be
/// longer.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Returns the share of device time that background work of this urgency uses while it has work to do.
pub(crate) fn duty(urgency: f64) -> f64 {
    LEAST_DUTY + (1.0 - LEAST_DUTY) * urgency.clamp(0.0, 1.0)
}

/// An amount per second, from exponentially weighted means of amounts and durations.
#[derive(Debug, Default)]
pub struct Rate {
    amount: f64,
    took_s: f64,
}

impl Rate {
    /// Includes an amount that took this long.
    pub fn note(&mut self, amount: f64, took: Duration) {
        let blend = |known: f64, new: f64| if self.took_s == 0.0 { new } else { known * 0.8 + new * 0.2 };
        let took_s = blend(self.took_s, took.as_secs_f64().max(1e-6));
        *self = Rate { amount: blend(self.amount, amount), took_s };
    }

    /// Returns the rate, at least `at_least`; `None` before the first measurement.
    pub fn per_s(&self, at_least: f64) -> Option<f64> {
        (self.took_s > 0.0).then(|| (self.amount / self.took_s).max(at_least))
    }
}

/// Spreads background work over time: after each piece of it comes a pause, which grows as the debt shrinks.
#[derive(Debug, Default)]
pub struct Throttle {
    limit_bytes_per_s: u64,
    /// Accumulated pause due to the debt.
    owed: Duration,
    /// Accumulated pause due to the byte limit. Not capped.
    owed_to_limit: Duration,
    /// Total time paused.
    paused: Duration,
}

impl Throttle {
    /// Returns a throttle that limits reads and writes to `limit_bytes_per_s`; 0 means no limit.
    pub fn new(limit_bytes_per_s: u64) -> Throttle {
        Throttle { limit_bytes_per_s, ..Throttle::default() }
    }

    /// Limits reads and writes to `bytes_per_s` from now on; 0 means no limit.
    pub fn set_limit(&mut self, bytes_per_s: u64) {
        if bytes_per_s == 0 {
            self.owed_to_limit = Duration::ZERO;
        }
        self.limit_bytes_per_s = bytes_per_s;
    }

    /// Returns the pause to make after a piece of work of `bytes` that lasted `took`. `urgency` is 0 without pressure
    /// and 1 when writers are about to be stopped; at 1 only the byte limit causes pauses.
    ///
    /// Pauses are proportional to the duration of the work, so that look-ups keep their share of a slow device.
    pub fn pause(&mut self, bytes: u64, took: Duration, urgency: f64) -> Option<Duration> {
        self.owed += took.mul_f64(1.0 / duty(urgency) - 1.0);
        if self.limit_bytes_per_s > 0 {
            let least = Duration::from_secs_f64(bytes as f64 / self.limit_bytes_per_s as f64);
            self.owed_to_limit = (self.owed_to_limit + least).saturating_sub(took);
        }
        let pause = self.owed_to_limit.max(self.owed.min(LONGEST_PAUSE));
        if pause < LEAST_PAUSE {
            return None;
        }
        // Once paid by a pause, the debt starts again from zero.
        (self.owed, self.owed_to_limit) = (Duration::ZERO, Duration::ZERO);
        self.paused += pause;
        Some(pause)
    }

    /// Returns the total time paused.
    pub fn paused(&self) -> Duration {
        self.paused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pacer_waits_only_when_space_is_short_and_keeps_the_rate() {
        let mut pacer = Pacer::default();
        let now = Duration::from_secs(10);
        assert_eq!(pacer.wait(now, 1 << 20, 0.5, 0.3, 1e6), Duration::ZERO);
        // No free space left: half the drain rate, so 100 kB take 0.2 s.
        assert_eq!(pacer.wait(now, 100_000, 0.0, 0.3, 1e6), Duration::ZERO);
        assert_eq!(pacer.wait(now, 100_000, 0.0, 0.3, 1e6), Duration::from_millis(200));
        assert_eq!(pacer.wait(now, 1, 0.0, 0.3, 1e6), Duration::from_millis(400));
    }

    #[test]
    fn short_waits_are_put_off_and_the_rate_is_kept() {
        let (mut pacer, mut now, mut waits) = (Pacer::default(), Duration::from_secs(10), 0);
        // One byte takes two microseconds.
        for _ in 0..10_000 {
            let wait = pacer.wait(now, 10, 0.0, 0.3, 1e6);
            assert!(wait.is_zero() || wait >= LEAST_PAUSE);
            waits += u32::from(!wait.is_zero());
            now += wait;
        }
        let took = (now - Duration::from_secs(10)).as_secs_f64();
        assert!((took - 0.2).abs() < 0.001 && waits < 500, "{took} s, {waits} waits");
    }

    /// Returns the share of the time that is spent working.
    fn duty(throttle: &mut Throttle, bytes: u64, took: Duration, urgency: f64) -> f64 {
        let paused: Duration = (0..1000).filter_map(|_| throttle.pause(bytes, took, urgency)).sum();
        let worked = took * 1000;
        worked.as_secs_f64() / (worked + paused).as_secs_f64()
    }

    #[test]
    fn pauses_shrink_as_the_debt_grows() {
        let took = Duration::from_micros(200);
        let shares = [0.0, 0.5, 1.0].map(|urgency| duty(&mut Throttle::default(), 1 << 18, took, urgency));
        assert!((shares[0] - 0.2).abs() < 0.01 && (shares[1] - 0.6).abs() < 0.02, "{shares:?}");
        assert_eq!(shares[2], 1.0);
    }

    #[test]
    fn the_limit_holds_however_urgent_it_is() {
        let mut throttle = Throttle::new(10_000_000);
        // 100 kB in 1 ms is ten times the limit.
        let share = duty(&mut throttle, 100_000, Duration::from_millis(1), 1.0);
        assert!((share - 0.1).abs() < 0.01, "{share}");
        // One piece of work that uses a whole second of the limit.
        let share = duty(&mut Throttle::new(1_000_000), 1 << 20, Duration::from_millis(1), 1.0);
        assert!(share < 0.001, "{share}");
        let share = duty(&mut Throttle::new(1_000_000), 1 << 20, Duration::from_millis(1), 0.0);
        assert!(share < 0.001, "{share}");
    }
}
