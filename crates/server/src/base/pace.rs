//! Time limit of a transfer: a grace period, plus a second for each 64 KiB transferred. It stops clients that send or read a byte
//! now and then, but not clients that are merely slow.

use std::time::Duration;

use tokio::time::Instant;

/// Minimum speed of a transfer after its grace period, in bytes per second.
const BYTES_A_SECOND: u32 = 64 << 10;

/// Progress of a transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Time up to which the transferred bytes pay.
    paid_until: Instant,
}

impl Pace {
    pub(crate) fn start() -> Pace {
        Pace { paid_until: Instant::now() }
    }

    pub(crate) fn progress(&mut self, bytes: usize) {
        self.paid_until += Duration::from_secs(bytes as u64) / BYTES_A_SECOND;
    }

    /// As [`progress`](Self::progress), for a client that reads replies. Bytes that network buffers accepted at once must not pay
    /// for time in which the client reads nothing, so the paid time ends at `now` at the latest.
    pub(crate) fn taken(&mut self, bytes: usize, now: Instant) {
        self.progress(bytes);
        self.paid_until = self.paid_until.min(now);
    }

    /// Returns the time at which the transfer fails, unless more bytes come through.
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
        // A client that reads fast enough is never late; one that reads a byte now and then is.
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
