//! The progress bar of a transfer.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A progress bar, on a terminal, for transfers that take longer than a second.
pub(super) struct Shown {
    began: Instant,
    records: u64,
    bar: Option<ProgressBar>,
}

/// Number of records between two checks of the clock.
const LOOK_EVERY: u64 = 256;

impl Shown {
    pub(super) fn new() -> Shown {
        Shown { began: Instant::now(), records: 0, bar: None }
    }

    pub(super) fn look(&mut self, (done, total): (u64, Option<u64>), written: u64) {
        self.records += 1;
        if !self.records.is_multiple_of(LOOK_EVERY) || self.began.elapsed() < Duration::from_secs(1) {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
            let template = match total {
                Some(_) => "{wide_bar} {percent} %, {msg} keys, {eta} left",
                None => "{spinner} {msg} keys, {elapsed}",
            };
            bar.with_style(ProgressStyle::with_template(template).expect("it is one"))
        });
        bar.set_message(written.to_string());
        bar.set_position(done);
    }

    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
