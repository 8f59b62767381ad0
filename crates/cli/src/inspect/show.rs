//! Formats numbers, times and tables for people, and JSON for programs.

use std::io::{IsTerminal, stdout};

use serde::Serialize;
use time::OffsetDateTime;
use time::macros::format_description;

use crate::terminal::{Failure, say};

/// Prints a value as JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    say(&json_text(value)?)
}

/// Returns a value as lines of JSON.
pub(crate) fn json_text(value: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value);
    Ok(text.map_err(|error| Failure::Failed(format!("cannot print JSON: {error}")))? + "\n")
}

/// Formats bytes with a unit: `1.5 GiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let step = (bytes.max(1).ilog2() / 10).min(units.len() as u32 - 1);
    match step {
        0 => format!("{bytes} B"),
        _ => format!("{:.1} {}", bytes as f64 / (1u64 << (10 * step)) as f64, units[step as usize]),
    }
}

/// Formats a number with thousands separators.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number of things: `1 key`, `1,000 keys`.
pub(crate) fn things(number: u64, name: &str) -> String {
    format!("{} {name}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Formats a share in percent.
pub(crate) fn percent(part: u64, of: u64) -> String {
    if of == 0 { "-".to_owned() } else { format!("{:.1} %", part as f64 * 100.0 / of as f64) }
}

/// Formats a time in UTC.
pub(crate) fn at_ms(ms: u64) -> String {
    let form = format_description!("[year]-[month]-[day] [hour]:[minute]:[second] UTC");
    let time = OffsetDateTime::from_unix_timestamp((ms / 1000) as i64).ok();
    time.and_then(|time| time.format(&form).ok()).unwrap_or_else(|| format!("{ms} ms since 1970"))
}

/// Formats lines of columns. Columns in `right` are right-aligned.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>], right: &[usize]) -> String {
    let head: Vec<String> = head.iter().map(|name| (*name).to_owned()).collect();
    let all = || std::iter::once(&head).chain(rows);
    let widths: Vec<usize> =
        (0..head.len()).map(|at| all().map(|row| row[at].chars().count()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for row in all() {
        let cells =
            row.iter().zip(&widths).enumerate().map(|(at, (cell, &width))| match right.contains(&at) {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Returns true if stdout accepts colours.
pub(crate) fn colours() -> bool {
    stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!(
            [bytes(0), bytes(1023), bytes(1536), bytes(3 << 30)],
            ["0 B", "1023 B", "1.5 KiB", "3.0 GiB"]
        );
        assert_eq!([count(0), count(999), count(1000), count(1_234_567)], ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([things(1, "key"), things(1000, "key")], ["1 key", "1,000 keys"]);
        assert_eq!(at_ms(1_700_000_000_000), "2023-11-14 22:13:20 UTC");
        let rows = [vec!["a".to_owned(), "1".to_owned()], vec!["bcd".to_owned(), "22".to_owned()]];
        assert_eq!(table(&["name", "n"], &rows, &[1]), "name   n\na      1\nbcd   22\n");
    }
}
