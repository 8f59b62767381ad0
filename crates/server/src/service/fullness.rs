//! The log lines that say when the store begins to refuse writes for want of room, why, and when it takes them again.
//!
//! A store at its limit refuses and takes writes by turns as keys are deleted, so writes count as taken again only after a while
//! without a refusal: the log gets two lines for such a time, and not two for each key.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Service;
use crate::base::settings::text_of;

/// How often the store is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Looks without a refusal until writes count as taken again.
const QUIET_LOOKS: u32 = 10;

/// Whether the store refuses writes for want of room.
#[derive(Debug, Default)]
struct Fullness {
    /// Refused writes at the last look.
    refused: u64,
    full: Option<Full>,
}

/// A time in which it does.
#[derive(Debug)]
struct Full {
    since: Instant,
    refused_before: u64,
    quiet_looks: u32,
}

/// A line for the log.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Refuses,
    TakesAgain { refused: u64, after: Duration },
}

impl Fullness {
    /// Takes note of how many writes were refused so far, and of whether one like the last would be refused now.
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

/// Writes the lines until it is dropped.
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
        // At the limit keys come and go.
        for second in 2..100 {
            assert_eq!(fullness.look(5 + second, second % 2 == 0, at(second)), None, "{second}");
        }
        for second in 100..109 {
            assert_eq!(fullness.look(104, false, at(second)), None, "{second}");
        }
        // Without writes the store is still full.
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
