//! Log lines when a full store begins to refuse writes, with the cause, and when it accepts them again.
//!
//! A store at its limit alternates between refusing and accepting writes as keys are deleted. Writes therefore count as accepted
//! again only after a period without a refusal: the log gets two lines per period, and not two per key.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Service;
use crate::base::settings::text_of;

/// Interval between checks of the store.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Number of checks without a refusal after which writes count as accepted again.
const QUIET_LOOKS: u32 = 10;

/// Tracks whether the store refuses writes because it is full.
#[derive(Debug, Default)]
struct Fullness {
    /// Number of refused writes at the last check.
    refused: u64,
    full: Option<Full>,
}

/// A period of refusals.
#[derive(Debug)]
struct Full {
    since: Instant,
    refused_before: u64,
    quiet_looks: u32,
}

/// A log line.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Refuses,
    TakesAgain { refused: u64, after: Duration },
}

impl Fullness {
    /// Takes the number of writes refused so far, and whether a write like the last refused one would be refused now. Returns the
    /// line to log, if any.
    fn look(&mut self, refused: u64, is_full: bool, now: Instant) -> Option<Line> {
        let before = std::mem::replace(&mut self.refused, refused);
        let Some(full) = &mut self.full else {
            if refused > before {
                self.full = Some(Full { since: now, refused_before: before, quiet_looks: 0 });
                return Some(Line::Refuses);
            }
            return None;
        };
        full.quiet_looks = if refused > before || is_full { 0 } else { full.quiet_looks + 1 };
        if full.quiet_looks < QUIET_LOOKS {
            return None;
        }
        let line = Line::TakesAgain { refused: refused - full.refused_before, after: now - full.since };
        self.full = None;
        Some(line)
    }
}

/// Writes the log lines until dropped.
pub(crate) async fn run(service: Arc<Service>) {
    let store = &service.store;
    let mut fullness = Fullness::default();
    loop {
        sleep(LOOK_EVERY).await;
        let Some(last) = store.refused_write() else { continue };
        let is_full = store.check_writable_for(last.bytes).is_err();
        match fullness.look(last.refused_writes, is_full, Instant::now()) {
            None => {}
            Some(Line::Refuses) => tracing::warn!("writes are refused: {}", text_of(&last.error)),
            Some(Line::TakesAgain { refused, after }) => {
                tracing::info!(refused, after_seconds = after.as_secs(), "writes are taken again");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_at_the_first_refusal_and_after_a_while_without() {
        let (mut fullness, began) = (Fullness::default(), Instant::now());
        let at = |second: u64| began + Duration::from_secs(second);
        assert_eq!(fullness.look(0, false, at(0)), None);
        assert_eq!(fullness.look(5, true, at(1)), Some(Line::Refuses));
        // At the limit, refusals alternate with accepted writes.
        for second in 2..100 {
            assert_eq!(fullness.look(5 + second, second % 2 == 0, at(second)), None, "{second}");
        }
        for second in 100..109 {
            assert_eq!(fullness.look(104, false, at(second)), None, "{second}");
        }
        // Without writes the store stays full.
        assert_eq!(fullness.look(104, true, at(109)), None);
        for second in 110..119 {
            assert_eq!(fullness.look(104, false, at(second)), None, "{second}");
        }
        let again = Line::TakesAgain { refused: 104, after: Duration::from_secs(118) };
        assert_eq!(fullness.look(104, false, at(119)), Some(again));
        assert_eq!(fullness.look(104, false, at(120)), None);
        assert_eq!(fullness.look(105, false, at(121)), Some(Line::Refuses), "also if it was for a moment");
    }
}
