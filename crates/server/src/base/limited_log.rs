//! Rate limit for log lines that unauthenticated clients can cause, because otherwise they could fill the log.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Maximum number of lines of one kind per window.
const LINES_MAX: u32 = 20;
const WINDOW: Duration = Duration::from_secs(60);

/// Rate limiter of one kind of log line.
#[derive(Debug, Default)]
pub(crate) struct Notices(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    began: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl Notices {
    pub(crate) const fn new() -> Notices {
        Notices(Mutex::new(Window { began: None, lines: 0, left_out: 0 }))
    }

    /// Returns the number of lines suppressed since the last one if a line may be written now; otherwise `None`.
    pub(crate) fn turn(&self) -> Option<u64> {
        self.turn_at(Instant::now())
    }

    fn turn_at(&self, now: Instant) -> Option<u64> {
        let mut window = self.0.lock().expect("the lock is never poisoned: no code panics while holding it");
        if window.began.is_none_or(|began| now.duration_since(began) >= WINDOW) {
            (window.began, window.lines) = (Some(now), 0);
        }
        if window.lines >= LINES_MAX {
            window.left_out += 1;
            return None;
        }
        window.lines += 1;
        Some(std::mem::take(&mut window.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded_and_those_left_out_are_counted() {
        let notices = Notices::default();
        let now = Instant::now();
        for _ in 0..LINES_MAX {
            assert_eq!(notices.turn_at(now), Some(0));
        }
        assert_eq!(notices.turn_at(now), None);
        assert_eq!(notices.turn_at(now + WINDOW / 2), None);
        assert_eq!(notices.turn_at(now + WINDOW), Some(2));
        assert_eq!(notices.turn_at(now + WINDOW), Some(0));
    }
}
