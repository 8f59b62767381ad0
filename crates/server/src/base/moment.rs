//! Points in time of the monotonic clock.
//!
//! A number of nanoseconds: each short command reads the clock several times, and `std::time::Instant` counts in seconds and
//! nanoseconds, which costs more (`docs/decisions/0049-processor-per-request.md`).

use std::ops::Sub;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A point in time, in nanoseconds since the machine was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    pub(crate) fn now() -> Moment {
        let time = clock_gettime(ClockId::Monotonic);
        Moment(time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs())
    }

    pub(crate) fn elapsed(self) -> Duration {
        Moment::now() - self
    }
}

impl Sub for Moment {
    type Output = Duration;

    /// Returns the time since an earlier moment; zero since a later one.
    fn sub(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_of_moments_is_the_time_between_them() {
        let (first, second) = (Moment(1_999_999_999), Moment(4_000_000_001));
        assert_eq!(second - first, Duration::new(2, 2));
        assert_eq!(first - second, Duration::ZERO);
        assert!(Moment::now() <= Moment::now());
    }
}
