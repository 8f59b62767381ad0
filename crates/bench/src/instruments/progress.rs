//! A progress bar on stderr, if that is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Returns a bar for `operations` operations. Hidden if stderr is not a terminal.
pub(crate) fn bar(what: &str, operations: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(operations), ProgressDrawTarget::stderr_with_hz(4));
    let form = "{prefix} {wide_bar} {percent}% {per_sec} left {eta} {msg}";
    bar.set_style(ProgressStyle::with_template(form).expect("the template is well formed"));
    bar.set_prefix(what.to_owned());
    bar
}
