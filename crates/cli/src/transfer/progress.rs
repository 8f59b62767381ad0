//! The progress of a transfer: a bar on a terminal, lines elsewhere.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::terminal::note;

/// Interval between two lines, where stderr is not a terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Number of records between two checks of the clock.
const LOOK_EVERY: u64 = 256;

/// The progress of a transfer that takes longer than a second.
pub(super) struct Shown {
    began: Instant,
    last_line: Instant,
    is_terminal: bool,
    records: u64,
    bar: Option<ProgressBar>,
}

impl Shown {
    pub(super) fn new() -> Shown {
        let now = Instant::now();
        Shown { began: now, last_line: now, is_terminal: stderr().is_terminal(), records: 0, bar: None }
    }

    /// Shows the position of the source and the number of keys that are done, after some calls.
    pub(super) fn look(&mut self, (done, total): (u64, Option<u64>), keys: u64) {
        self.records += 1;
        if self.records.is_multiple_of(LOOK_EVERY) && self.began.elapsed() >= Duration::from_secs(1) {
            self.show(done, total, keys);
        }
    }

    fn show(&mut self, done: u64, total: Option<u64>, keys: u64) {
        let took = self.began.elapsed();
        let rate = (keys as f64 / took.as_secs_f64()) as u64;
        if !self.is_terminal {
            let text = match total.filter(|total| *total > 0 && done > 0) {
                Some(total) => {
                    let left = took.as_secs_f64() * total.saturating_sub(done) as f64 / done as f64;
                    format!("{keys} keys, {rate} keys/s, {} %, about {left:.0} s left", 100 * done / total)
                }
                None => format!("{keys} keys, {rate} keys/s"),
            };
            return self.line(&text);
        }
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
            let template = match total {
                Some(_) => "{wide_bar} {percent} %, {msg}, {eta} left",
                None => "{spinner} {msg}, {elapsed}",
            };
            bar.with_style(ProgressStyle::with_template(template).expect("it is one"))
        });
        bar.set_message(format!("{keys} keys, {rate} keys/s"));
        bar.set_position(done);
    }

    /// Shows a text in place of the bar, or as a line every ten seconds.
    pub(super) fn text(&mut self, text: &str) {
        if !self.is_terminal {
            return self.line(text);
        }
        let bar = self.bar.get_or_insert_with(ProgressBar::new_spinner);
        bar.set_style(ProgressStyle::with_template("{spinner} {msg}").expect("it is one"));
        bar.set_message(text.to_owned());
        bar.tick();
    }

    fn line(&mut self, text: &str) {
        if self.last_line.elapsed() >= LINE_EVERY {
            self.last_line = Instant::now();
            note(&format!("{text}\n"));
        }
    }

    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
