//! Integers as Redis reads them: no sign but `-`, no leading zeros, no spaces.

/// The number that the bytes spell, if it fits.
pub(crate) fn parse_integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let strict = match digits {
        [b'0'] => text.len() == 1,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if !strict {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::parse_integer;

    #[test]
    fn reads_what_redis_reads() {
        for good in ["0", "7", "-7", "9223372036854775807", "-9223372036854775808"] {
            assert_eq!(parse_integer(good.as_bytes()), Some(good.parse().unwrap()), "{good}");
        }
        for bad in ["", "-", "-0", "+1", "01", " 1", "1 ", "1.0", "0x1", "9223372036854775808"] {
            assert_eq!(parse_integer(bad.as_bytes()), None, "{bad}");
        }
    }
}
