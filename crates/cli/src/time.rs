//! Durations in human notation, `500ms`, `30s`, `5m`, `2h`, `0` for none; and the current time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the current time in milliseconds since the Unix epoch.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Parses a duration from a whole number and a unit.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let wrong = || {
        format!(
            "'{text}' is not a time: it must be a whole number with ms, s, m or h such as 500ms, 30s or 5m, or 0"
        )
    };
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "" if number.parse() == Ok(0) => 0,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(unit_ms).map(Duration::from_millis).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_with_units() {
        for (text, ms) in
            [("0", 0), ("0s", 0), ("500ms", 500), ("30s", 30_000), ("5m", 300_000), ("2h", 7_200_000)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "30", "s", "-1s", "1.5s", "1d", "99999999999999999999s", "18446744073709551615h"] {
            assert!(parse(text).unwrap_err().contains("30s"), "{text}");
        }
    }
}
