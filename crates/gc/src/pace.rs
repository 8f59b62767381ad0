//! Pace: how fast writers are let in as room gets short, and how much of the device background work takes.
//!
//! Both follow the debt, which is how far the free room is from where it should be, and both do so smoothly: between them
//! free space settles at a level where as much is freed as is written, whatever the load, and nobody waits for a whole
//! segment to be cleaned.

use std::time::Duration;

/// A shared clock of admitted bytes: whoever comes is let in after those before, at the rate that the debt allows.
#[derive(Debug, Default)]
pub struct Pacer {
    next: Duration,
}

impl Pacer {
    /// How long a write of so many bytes waits.
    ///
    /// `free_share` is what is left of the room that is being used up, 0 to 1; `drain_bytes_per_s` how fast it is being
    /// made, more than 0. Above a `relaxed` share nobody waits. Below, the admitted rate goes linearly from twice the
    /// drain rate down to half of it where nothing is left, so that the room settles in between whatever the load. Waits of less
    /// than half a millisecond are put off until they have added up: a timer is no good at them.
    pub fn wait(
        &mut self,
        now: Duration,
        bytes: u64,
        free_share: f64,
        relaxed: f64,
        drain_bytes_per_s: f64,
    ) -> Duration {
        debug_assert!(drain_bytes_per_s > 0.0, "writers would wait for ever");
        if free_share >= relaxed {
            self.next = now;
            return Duration::ZERO;
        }
        let rate = drain_bytes_per_s * (0.5 + 1.5 * (free_share / relaxed).clamp(0.0, 1.0));
        // A pause is not saved up for a burst, and no one waits longer than a second for those before.
        let start = self.next.clamp(now, now + Duration::from_secs(1));
        self.next = start + Duration::from_secs_f64(bytes as f64 / rate);
        // Put off, not forgiven: it counts for those who come next.
        Some(start - now).filter(|wait| *wait >= LEAST_PAUSE).unwrap_or_default()
    }
}

/// Least share of the time that background work uses the device while there is any.
const LEAST_DUTY: f64 = 0.2;
/// Pauses shorter than this are put off and added up.
const LEAST_PAUSE: Duration = Duration::from_micros(500);
/// No pause is longer, so that a change of the debt is noticed soon, unless the limit asks for it.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Spreads background work over time: after each piece of it, a pause that grows as the debt shrinks.
#[derive(Debug, Default)]
pub struct Throttle {
    limit_bytes_per_s: u64,
    /// What the debt asks for.
    owed: Duration,
    /// What the limit asks for, in full however long it gets.
    owed_to_limit: Duration,
    /// Pauses made in all.
    paused: Duration,
}

impl Throttle {
    /// One that lets at most so many bytes a second be read and written; 0: no limit.
    pub fn new(limit_bytes_per_s: u64) -> Throttle {
        Throttle { limit_bytes_per_s, ..Throttle::default() }
    }

    /// From now on at most so many bytes a second are read and written; 0: no limit.
    pub fn set_limit(&mut self, bytes_per_s: u64) {
        if bytes_per_s == 0 {
            self.owed_to_limit = Duration::ZERO;
        }
        self.limit_bytes_per_s = bytes_per_s;
    }

    /// How long to pause after a piece of work of so many bytes that `took` so long. `urgency` is 0 where nothing presses
    /// and 1 where writers are about to be stopped: then the only pauses are those that the limit asks for.
    ///
    /// A slow device makes the pieces take longer, and the pauses with them: look-ups get their share of it.
    pub fn pause(&mut self, bytes: u64, took: Duration, urgency: f64) -> Option<Duration> {
        let duty = LEAST_DUTY + (1.0 - LEAST_DUTY) * urgency.clamp(0.0, 1.0);
        self.owed += took.mul_f64(1.0 / duty - 1.0);
        if self.limit_bytes_per_s > 0 {
            let least = Duration::from_secs_f64(bytes as f64 / self.limit_bytes_per_s as f64);
            self.owed_to_limit = (self.owed_to_limit + least).saturating_sub(took);
        }
        let pause = self.owed_to_limit.max(self.owed.min(LONGEST_PAUSE));
        if pause < LEAST_PAUSE {
            return None;
        }
        // An old debt is no reason to be slow now.
        (self.owed, self.owed_to_limit) = (Duration::ZERO, Duration::ZERO);
        self.paused += pause;
        Some(pause)
    }

    /// How long was paused in all.
    pub fn paused(&self) -> Duration {
        self.paused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_while_there_is_room_and_all_together_keep_to_the_rate() {
        let mut pacer = Pacer::default();
        let now = Duration::from_secs(10);
        assert_eq!(pacer.wait(now, 1 << 20, 0.5, 0.3, 1e6), Duration::ZERO);
        // Nothing left: half the drain rate, so 100 kB take 0.2 s.
        assert_eq!(pacer.wait(now, 100_000, 0.0, 0.3, 1e6), Duration::ZERO);
        assert_eq!(pacer.wait(now, 100_000, 0.0, 0.3, 1e6), Duration::from_millis(200));
        assert_eq!(pacer.wait(now, 1, 0.0, 0.3, 1e6), Duration::from_millis(400));
    }

    #[test]
    fn short_waits_are_put_off_and_the_rate_is_kept() {
        let (mut pacer, mut now, mut waits) = (Pacer::default(), Duration::from_secs(10), 0);
        // A byte takes two microseconds.
        for _ in 0..10_000 {
            let wait = pacer.wait(now, 10, 0.0, 0.3, 1e6);
            assert!(wait.is_zero() || wait >= LEAST_PAUSE);
            waits += u32::from(!wait.is_zero());
            now += wait;
        }
        let took = (now - Duration::from_secs(10)).as_secs_f64();
        assert!((took - 0.2).abs() < 0.001 && waits < 500, "{took} s, {waits} waits");
    }

    /// Share of the time that work takes.
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
        // A piece that takes a second of the limit.
        let share = duty(&mut Throttle::new(1_000_000), 1 << 20, Duration::from_millis(1), 1.0);
        assert!(share < 0.001, "{share}");
        let share = duty(&mut Throttle::new(1_000_000), 1 << 20, Duration::from_millis(1), 0.0);
        assert!(share < 0.001, "{share}");
    }
}
