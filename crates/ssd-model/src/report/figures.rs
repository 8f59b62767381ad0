//! Formatting of figures.

/// Formats a size, such as `64 KiB`.
pub(crate) fn size(bytes: u64) -> String {
    let units =
        [(1u64 << 50, "PiB"), (1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) if bytes.is_multiple_of(*unit) => format!("{} {name}", bytes / unit),
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} B"),
    }
}

/// Formats a write amplification; a dash if nothing was written.
pub(crate) fn amplification(factor: f64) -> String {
    if factor.is_nan() { "–".to_owned() } else { format!("{factor:.2}") }
}

/// Formats a number with its significant digits.
pub(crate) fn figure(value: f64) -> String {
    match value {
        value if value.is_nan() => "–".to_owned(),
        value if value >= 1000.0 => grouped(value.round() as u64),
        value if value >= 100.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// Formats a whole number with commas.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
