//! Sizes as people write them on command lines and in settings: `4096`, `512m`, `16g`, `1TiB`.

use parse_size::{Config, Error};

/// The forms that [`parse`] takes, for messages.
const FORMS: &str =
    "a whole number of bytes, or one with k, m, g or t such as 512m, 16g, 1TiB (powers of 1024)";

/// Bytes from a number with an optional unit in any case. `k`, `kb` and `kib` all mean 1024.
pub fn parse(text: &str) -> Result<u64, String> {
    // Fractions, signs and blanks are more likely mistakes than sizes.
    let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match Config::new().with_binary().parse_size(text) {
        Ok(bytes) if plain => Ok(bytes),
        Err(Error::PosOverflow) => Err(format!("'{text}' is more bytes than 64 bits can count")),
        _ => Err(format!("'{text}' is not a size: it must be {FORMS}")),
    }
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
