//! The clocks and the randomness of the system, for implementations of [`Runtime`](crate::Runtime).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// The monotonic clock of a runtime. Nanoseconds in one number need a third of the instructions of `std::time::Instant`, and each
/// get and put reads them twice.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Time of the machine's monotonic clock at which this clock began.
    began_ns: u64,
}

impl Clock {
    /// Starts a clock at 0.
    pub fn start() -> Clock {
        Clock { began_ns: Clock::monotonic_ns() }
    }

    /// Returns the time since the start.
    pub fn now(self) -> Duration {
        Duration::from_nanos(Clock::monotonic_ns() - self.began_ns)
    }

    /// Returns milliseconds since the Unix epoch.
    pub fn wall_clock_ms() -> u64 {
        #[expect(clippy::disallowed_methods, reason = "this is the clock that everybody else is given")]
        let now = SystemTime::now();
        now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
    }

    /// Returns 64 random bits.
    pub fn random() -> u64 {
        getrandom::u64().expect("the system has a source of randomness")
    }

    fn monotonic_ns() -> u64 {
        let time = clock_gettime(ClockId::Monotonic);
        time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
    }
}
