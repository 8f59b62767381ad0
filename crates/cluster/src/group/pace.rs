//! The rate at which a node sends copies of groups and has damaged records healed, all groups together.

use std::time::Duration;

use parking_lot::Mutex;

/// Spaces out the parts of copies, so that requests of other groups find processor, device and network free in between.
#[derive(Debug, Default)]
pub struct CopyPace {
    /// 0 for no limit.
    bytes_per_s: u64,
    /// Time at which the parts reserved so far have had their time.
    free_at: Mutex<Duration>,
}

impl CopyPace {
    /// Returns a pace of this many bytes a second; 0 for no limit.
    pub fn new(bytes_per_s: u64) -> CopyPace {
        CopyPace { bytes_per_s, free_at: Mutex::default() }
    }

    /// Reserves the time that `bytes` take at this rate. Returns the time to wait before they are sent.
    pub(crate) fn reserve(&self, bytes: usize, now: Duration) -> Duration {
        let lasts = self.lasts(bytes);
        let mut free_at = self.free_at.lock();
        let begins = now.max(*free_at);
        *free_at = begins + lasts;
        begins - now
    }

    /// Returns the time that `bytes` take at this rate; zero without a limit.
    pub(crate) fn lasts(&self, bytes: usize) -> Duration {
        let nanos = (bytes as u128 * 1_000_000_000).checked_div(u128::from(self.bytes_per_s));
        Duration::from_nanos(nanos.unwrap_or_default() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn copy_pace_queues_parts_and_saves_no_idle_time() {
        let pace = CopyPace::new(1 << 20);
        assert_eq!(pace.reserve(1 << 19, MS(100)), MS(0));
        assert_eq!(pace.reserve(1 << 20, MS(100)), MS(500), "a part of another group");
        assert_eq!(pace.reserve(1 << 18, MS(1000)), MS(600));
        assert_eq!(pace.reserve(1 << 18, MS(9000)), MS(0));
        assert_eq!(pace.reserve(1 << 18, MS(9000)), MS(250));
    }

    #[test]
    fn parts_without_a_limit_do_not_wait() {
        let pace = CopyPace::default();
        assert_eq!((pace.reserve(usize::MAX, MS(1)), pace.reserve(1, MS(1))), (MS(0), MS(0)));
    }
}
