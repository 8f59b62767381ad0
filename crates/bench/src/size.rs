//! Sizes as people write them: `4096`, `512m`, `16g`, `1TiB`.

/// The forms that [`parse`] takes, for messages.
const FORMS: &str =
    "a whole number of bytes, or one with k, m, g or t such as 512m, 16g, 1TiB (powers of 1024)";

/// Bytes from a number with an optional unit in any case. `k`, `kb` and `kib` all mean 1024.
pub fn parse(text: &str) -> Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(format!("'{text}' is not a size: it must be {FORMS}")),
    };
    if number.is_empty() {
        return Err(format!("'{text}' is not a size: it must be {FORMS}"));
    }
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| format!("'{text}' is more bytes than 64 bits can count"))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn sizes_in_every_form() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("512m", 512 << 20),
            ("16g", 16 << 30),
            ("16G", 16 << 30),
            ("1TiB", 1 << 40),
            ("1tib", 1 << 40),
            ("64KB", 64 << 10),
            ("64k", 64 << 10),
            ("7b", 7),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn bad_sizes_are_named_with_the_accepted_form() {
        for text in ["", "m", "12q", "1.5g", "-1", "+1", " 1", "1 g", "g1", "1gg", "0x10"] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(&format!("'{text}'")) && error.contains("512m"), "{error}");
        }
    }

    #[test]
    fn sizes_beyond_64_bits_are_refused() {
        for text in ["18446744073709551616", "16777216t", "99999999999999999999g"] {
            assert!(parse(text).unwrap_err().contains("64 bits"), "{text}");
        }
    }
}
