//! Formats numbers for people.

/// Formats a number with three significant digits.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        large if large >= 1e6 => format!("{:.2} M", value / 1e6),
        large if large >= 1e4 => format!("{:.1} k", value / 1e3),
        large if large >= 100.0 => format!("{value:.0}"),
        large if large >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
