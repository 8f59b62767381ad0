//! Rate limit of frames without data.
//!
//! Each costs the server up to a few microseconds, and PING and SETTINGS a reply, for 17 bytes of a client that may not have
//! logged in. A client may send [`FRAMES_A_SECOND`] of them, and one more for each [`BYTES_A_FRAME`] sent to it, since it opens
//! its window for responses by WINDOW_UPDATE. Reading from a client that sends more is delayed, so its frames wait in the kernel.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

const FRAMES_A_SECOND: u64 = 5_000;

/// Maximum burst of frames.
const FRAMES_MAX: u64 = FRAMES_A_SECOND;

/// Pause in reading once the budget is used up.
const PAUSE: Duration = Duration::from_millis(10);

const BYTES_A_FRAME: u64 = 512;

#[derive(Debug)]
pub(super) struct Pace {
    /// Remaining budget of frames; negative if one read brought too many.
    left: i64,
    /// Bytes sent to the client that are not converted to frames yet.
    sent: u64,
    refilled: Instant,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { left: FRAMES_MAX as i64, sent: 0, refilled: Instant::now(), pause: None }
    }
}

impl Pace {
    /// Records a frame without data.
    pub(super) fn came(&mut self) {
        self.left -= 1;
    }

    /// Records bytes sent to the client.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }

    /// Adds the frames that the client has earned by `now`.
    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.refilled).as_micros() as u64;
        let frames = passed * FRAMES_A_SECOND / 1_000_000;
        if frames > 0 {
            self.refilled = now;
        }
        let answered = std::mem::take(&mut self.sent);
        self.sent = answered % BYTES_A_FRAME;
        let left = self.left.saturating_add_unsigned(frames + answered / BYTES_A_FRAME);
        self.left = left.min(FRAMES_MAX as i64);
    }

    /// Ready if more frames may be read; otherwise pending until then.
    pub(super) fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(context));
                self.pause = None;
            }
            if self.left > 0 {
                return Poll::Ready(());
            }
            self.refill(Instant::now());
            if self.left <= 0 {
                self.pause = Some(Box::pin(sleep(PAUSE)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn pace_allows_more_frames_with_sent_answers_and_time() {
        let mut pace = Pace::default();
        let began = pace.refilled;
        for _ in 0..FRAMES_MAX {
            poll_fn(|context| pace.poll_ready(context)).await;
            pace.came();
        }
        pace.refill(began);
        assert_eq!(pace.left, 0);
        pace.sent(BYTES_A_FRAME as usize - 1);
        pace.refill(began);
        assert_eq!(pace.left, 0);
        pace.sent(2 * BYTES_A_FRAME as usize + 1);
        pace.refill(began);
        assert_eq!(pace.left, 3);
        pace.refill(began + Duration::from_millis(1));
        assert_eq!(pace.left, 3 + FRAMES_A_SECOND as i64 / 1000);
        pace.refill(began + Duration::from_secs(100));
        assert_eq!(pace.left, FRAMES_MAX as i64, "no more than so many are saved up");
    }

    #[tokio::test]
    async fn a_client_beyond_its_pace_is_read_from_later() {
        let mut pace = Pace { left: -3, ..Pace::default() };
        pace.refilled = Instant::now() + Duration::from_secs(600);
        let first = poll_fn(|context| Poll::Ready(pace.poll_ready(context))).await;
        assert!(first.is_pending());
        pace.refilled = Instant::now() - Duration::from_secs(1);
        poll_fn(|context| pace.poll_ready(context)).await;
    }
}
