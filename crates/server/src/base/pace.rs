//! How long a transfer may take: a grace, and a second for each 64 KiB that came through. A client that sends or takes
//! a byte now and then runs out of it; one that is merely slow does not.

use std::time::Duration;

use tokio::time::Instant;

/// The least speed of a transfer after its grace.
const BYTES_A_SECOND: u32 = 64 << 10;

/// A transfer under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    since: Instant,
    bytes: u64,
}

impl Pace {
    pub(crate) fn start() -> Pace {
        Pace { since: Instant::now(), bytes: 0 }
    }

    pub(crate) fn progress(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// When it has taken too long, unless more comes through.
    pub(crate) fn deadline(&self, grace: Duration) -> Instant {
        self.since + grace + Duration::from_secs(self.bytes) / BYTES_A_SECOND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_buy_time() {
        let mut pace = Pace::start();
        let grace = Duration::from_secs(30);
        let at_first = pace.deadline(grace);
        pace.progress(640 << 10);
        assert_eq!(pace.deadline(grace), at_first + Duration::from_secs(10));
        pace.progress(1);
        assert!(pace.deadline(grace) < at_first + Duration::from_secs(11));
    }
}
