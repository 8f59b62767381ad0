//! A bar on stderr while somebody looks at it, and nothing else where nobody does.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar over so many operations. Hidden if stderr is no terminal.
pub(crate) fn bar(what: &str, operations: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(operations), ProgressDrawTarget::stderr_with_hz(4));
    let form = "{prefix} {wide_bar} {percent}% {per_sec} left {eta} {msg}";
    bar.set_style(ProgressStyle::with_template(form).expect("the template is well formed"));
    bar.set_prefix(what.to_owned());
    bar
}
