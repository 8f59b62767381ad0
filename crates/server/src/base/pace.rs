//! How long a transfer may take: a grace, and a second for each 64 KiB that came through. A client that sends or takes
//! a byte now and then runs out of it; one that is merely slow does not.

use std::time::Duration;

use tokio::time::Instant;

/// The least speed of a transfer after its grace.
const BYTES_A_SECOND: u32 = 64 << 10;

/// A transfer under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// What came through is paid for until then.
    paid_until: Instant,
}

impl Pace {
    pub(crate) fn start() -> Pace {
        Pace { paid_until: Instant::now() }
    }

    pub(crate) fn progress(&mut self, bytes: usize) {
        self.paid_until += Duration::from_secs(bytes as u64) / BYTES_A_SECOND;
    }

    /// As [`progress`](Self::progress), of a client that takes answers: what the buffers of the network swallowed at
    /// once buys no time in which the client takes nothing.
    pub(crate) fn taken(&mut self, bytes: usize, now: Instant) {
        self.progress(bytes);
        self.paid_until = self.paid_until.min(now);
    }

    /// When it has taken too long, unless more comes through.
    pub(crate) fn deadline(&self, grace: Duration) -> Instant {
        self.paid_until + grace
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(30);

    #[test]
    fn bytes_buy_time() {
        let mut pace = Pace::start();
        let at_first = pace.deadline(GRACE);
        pace.progress(640 << 10);
        assert_eq!(pace.deadline(GRACE), at_first + Duration::from_secs(10));
        pace.progress(1);
        assert!(pace.deadline(GRACE) < at_first + Duration::from_secs(11));
    }

    #[test]
    fn answers_taken_at_once_buy_no_time_in_advance() {
        let mut pace = Pace::start();
        let mut now = Instant::now();
        pace.taken(1 << 30, now);
        assert_eq!(pace.deadline(GRACE), now + GRACE);
        // Who takes enough is in time for ever; who takes a byte now and then is not.
        for _ in 0..100 {
            now += Duration::from_secs(10);
            pace.taken(640 << 10, now);
        }
        assert_eq!(pace.deadline(GRACE), now + GRACE);
        for _ in 0..4 {
            now += Duration::from_secs(10);
            pace.taken(1, now);
        }
        assert!(pace.deadline(GRACE) < now);
    }
}
