//! Wall-clock time, as far as monotonic time confirms it.

use std::time::Duration;

use esker_seeded_bugs::{Bug, planted};

/// Largest deviation of the wall clock from monotonic time that is believed at once, in milliseconds.
const STEP_MS: u64 = 1000;
/// If the store was closed for no longer than this, it believes the clock at open. In milliseconds.
const CLOSED_MS: u64 = 7 * 24 * 3_600_000;

/// Confirmed time. A step of the wall clock is believed once it has lasted.
#[derive(Debug)]
pub(super) struct ConfirmedTime {
    /// Wall-clock time when it was last believed, and monotonic time at that moment.
    believed_ms: u64,
    at: Duration,
    /// Deviation of the wall clock since then, if it has stepped.
    step: Option<Step>,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    by_ms: i64,
    since: Duration,
}

impl ConfirmedTime {
    /// Creates the state for a store whose confirmed time was `known_ms` when it was last open. `next_expiry_ms`: the
    /// earliest later expiry among the store's records. Before that time the wall clock is believed however far ahead
    /// it is, because no record expires by it.
    pub(super) fn new(
        known_ms: u64,
        wall_ms: u64,
        now: Duration,
        next_expiry_ms: Option<u64>,
    ) -> ConfirmedTime {
        let may_have_been_closed = wall_ms <= known_ms.saturating_add(CLOSED_MS);
        let expires_nothing =
            next_expiry_ms.is_none_or(|at_ms| wall_ms < at_ms) || planted(Bug::DoubtIgnored);
        let believed_ms = if may_have_been_closed || expires_nothing { wall_ms } else { known_ms };
        ConfirmedTime { believed_ms, at: now, step: None }
    }

    /// Returns the confirmed time. A step of the wall clock is believed once it has lasted for `lasts`, however often
    /// it was checked.
    pub(super) fn look(&mut self, wall_ms: u64, now: Duration, lasts: Duration) -> u64 {
        let by_ms = wall_ms.wrapping_sub(self.expected_ms(now)) as i64;
        let is_same = |step: &Step| step.by_ms.abs_diff(by_ms) <= STEP_MS;
        self.step = match self.step.filter(is_same) {
            _ if by_ms.unsigned_abs() <= STEP_MS => None,
            Some(step) if now.saturating_sub(step.since) >= lasts => None,
            Some(step) => Some(step),
            None => Some(Step { by_ms, since: now }),
        };
        if self.step.is_none() {
            (self.believed_ms, self.at) = (wall_ms, now);
        }
        wall_ms.min(self.expected_ms(now))
    }

    /// Returns true if the wall clock is currently not believed.
    pub(super) fn has_stepped(&self) -> bool {
        self.step.is_some()
    }

    /// Returns the wall-clock time extrapolated by monotonic time since it was last believed.
    pub(super) fn expected_ms(&self, now: Duration) -> u64 {
        self.believed_ms.saturating_add(now.saturating_sub(self.at).as_millis() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const HOUR_MS: u64 = 3_600_000;
    const YEAR_MS: u64 = 365 * 24 * HOUR_MS;
    const BEGAN_MS: u64 = 50 * YEAR_MS;

    fn ms(time: Duration) -> u64 {
        time.as_millis() as u64
    }

    #[test]
    fn time_goes_on_with_both_clocks() {
        let mut time = ConfirmedTime::new(BEGAN_MS, BEGAN_MS, HOUR, None);
        for minute in 0..100 {
            let now = HOUR + Duration::from_secs(60 * minute);
            // The wall clock is slewed, here by 0.1 %.
            let wall_ms = BEGAN_MS + minute * 60_060;
            assert_eq!(time.look(wall_ms, now, HOUR), wall_ms, "a clock that goes a little fast is believed");
            assert!(!time.has_stepped());
        }
    }

    #[test]
    fn a_step_is_believed_when_it_has_lasted() {
        let mut time = ConfirmedTime::new(BEGAN_MS, BEGAN_MS, Duration::ZERO, None);
        for minute in 0..60 {
            let now = Duration::from_secs(60 * minute);
            assert_eq!(time.look(BEGAN_MS + YEAR_MS + ms(now), now, HOUR), BEGAN_MS + ms(now));
            assert!(time.has_stepped());
        }
        assert_eq!(time.look(BEGAN_MS + YEAR_MS + HOUR_MS, HOUR, HOUR), BEGAN_MS + YEAR_MS + HOUR_MS);
        assert!(!time.has_stepped());
        // The clock is set back: confirmed time follows at once.
        let now = HOUR + Duration::from_secs(10);
        assert_eq!(time.look(BEGAN_MS + ms(now), now, HOUR), BEGAN_MS + ms(now));
        assert_eq!(time.look(BEGAN_MS + ms(2 * HOUR), 2 * HOUR, HOUR), BEGAN_MS + ms(2 * HOUR));
    }

    #[test]
    fn steps_that_end_do_not_add_up() {
        let mut time = ConfirmedTime::new(BEGAN_MS, BEGAN_MS, Duration::ZERO, None);
        for minute in 0..300 {
            let now = Duration::from_secs(60 * minute);
            let by_ms = if minute % 50 < 40 { YEAR_MS } else { 0 };
            assert_eq!(time.look(BEGAN_MS + by_ms + ms(now), now, HOUR), BEGAN_MS + ms(now), "{minute}");
        }
        // A step whose size changes each time is not believed either.
        for minute in 300..600 {
            let now = Duration::from_secs(60 * minute);
            let wall_ms = BEGAN_MS + YEAR_MS + minute % 30 * HOUR_MS + ms(now);
            assert_eq!(time.look(wall_ms, now, HOUR), BEGAN_MS + ms(now), "{minute}");
        }
    }

    #[test]
    fn a_store_may_have_been_closed_for_days_but_not_for_a_year() {
        let day_ms = 24 * HOUR_MS;
        for (closed_ms, believed_ms) in [(0, 0), (3 * day_ms, 3 * day_ms), (YEAR_MS, 0)] {
            let next_expiry_ms = Some(BEGAN_MS + 1);
            let mut time = ConfirmedTime::new(BEGAN_MS, BEGAN_MS + closed_ms, HOUR, next_expiry_ms);
            let now = time.look(BEGAN_MS + closed_ms, HOUR, HOUR);
            assert_eq!(now, BEGAN_MS + believed_ms, "closed for {closed_ms} ms");
        }
        let mut behind = ConfirmedTime::new(BEGAN_MS, BEGAN_MS - YEAR_MS, HOUR, None);
        assert_eq!(behind.look(BEGAN_MS - YEAR_MS, HOUR, HOUR), BEGAN_MS - YEAR_MS);
    }

    #[test]
    fn clock_far_ahead_is_believed_if_no_record_expires_by_it() {
        let wall_ms = BEGAN_MS + YEAR_MS;
        for (next_expiry_ms, believed_ms) in
            [(None, wall_ms), (Some(wall_ms + 1), wall_ms), (Some(wall_ms), BEGAN_MS)]
        {
            let mut time = ConfirmedTime::new(BEGAN_MS, wall_ms, HOUR, next_expiry_ms);
            assert_eq!(time.look(wall_ms, HOUR, HOUR), believed_ms, "{next_expiry_ms:?}");
        }
    }
}
