//! A progress bar on stderr for work that takes longer than a second.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use esker_inspect::Watcher;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Time after which a progress bar appears.
const PATIENCE: Duration = Duration::from_secs(1);

/// Shows progress if stderr is a terminal.
pub(crate) struct Bar {
    bar: Mutex<Option<Shown>>,
    began: Instant,
}

struct Shown {
    bar: ProgressBar,
    visible: bool,
}

impl Bar {
    pub(crate) fn new() -> Bar {
        Bar { bar: Mutex::new(None), began: Instant::now() }
    }

    /// Returns the time since the bar was made.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Removes the bar from the screen.
    pub(crate) fn clear(&self) {
        if let Some(shown) = self.bar.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take() {
            shown.bar.finish_and_clear();
        }
    }
}

impl Watcher for Bar {
    fn begin(&self, what: &str, bytes: u64) {
        self.clear();
        let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::hidden());
        let template = match bytes {
            0 => "{spinner} {msg}",
            _ => "{msg} [{bar:30}] {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left",
        };
        bar.set_style(
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        bar.set_message(what.to_owned());
        let mut shown = Shown { bar, visible: false };
        if bytes == 0 {
            shown.show_if(self.began.elapsed() > PATIENCE);
        }
        *self.bar.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(shown);
    }

    fn advance(&self, bytes: u64) {
        if let Some(shown) = &mut *self.bar.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) {
            shown.bar.inc(bytes);
            shown.show_if(self.began.elapsed() > PATIENCE);
        }
    }
}

impl Shown {
    fn show_if(&mut self, late: bool) {
        if late && !self.visible {
            self.visible = true;
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.bar.tick();
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}
