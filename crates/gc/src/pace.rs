//! Slowing writers down before there is no room left, smoothly and all of them together.

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
    /// made. Above a `relaxed` share nobody waits. Below, the admitted rate goes linearly from twice the drain rate down
    /// to half of it where nothing is left, so that the room settles in between whatever the load.
    pub fn wait(
        &mut self,
        now: Duration,
        bytes: u64,
        free_share: f64,
        relaxed: f64,
        drain_bytes_per_s: f64,
    ) -> Duration {
        if free_share >= relaxed || drain_bytes_per_s <= 0.0 {
            self.next = now;
            return Duration::ZERO;
        }
        let rate = drain_bytes_per_s * (0.5 + 1.5 * (free_share / relaxed).clamp(0.0, 1.0));
        // A pause is not saved up for a burst, and no one waits longer than a second for those before.
        let start = self.next.clamp(now, now + Duration::from_secs(1));
        self.next = start + Duration::from_secs_f64(bytes as f64 / rate);
        start - now
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
}
