//! Sizes as people write them: `4096`, `512m`, `1.5g`, `1TiB`.

/// The forms that [`parse`] takes, for messages.
const FORMS: &str =
    "a whole number of bytes, or a number with k, m, g, t or p such as 512m, 1.5g, 1TiB (powers of 1024)";

/// Digits behind the point that can be counted with.
const DIGITS_MOST: usize = 9;

/// The forms that [`parse_capacity`] takes, for messages.
const CAPACITY_FORMS: &str = "a whole number of bytes, or a number with k, m, g, t, p or KiB to PiB (powers of 1024), or with \
     kB, MB, GB, TB or PB as drives are sold (powers of 1000), such as 3.84TB or 3.49t";

/// Bytes of a drive, from a number with an optional unit: kB, MB, GB, TB and PB mean powers of 1000, as drives are sold; k, m, g, t,
/// p and KiB to PiB mean powers of 1024. Units may be in any case. Of parts of a byte nothing is left.
///
/// # Errors
/// A sentence that names the forms that are accepted.
pub fn parse_capacity(text: &str) -> Result<u64, String> {
    let lower = text.to_ascii_lowercase();
    let powers =
        |base: u128| ["k", "m", "g", "t", "p"].into_iter().zip(1..).map(move |(unit, n)| (unit, base.pow(n)));
    let digits = lower.len() - lower.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
    let (number, unit) = lower.split_at(digits);
    let factor = match unit {
        "" | "b" => Some(1),
        _ => match (unit.strip_suffix("ib"), unit.strip_suffix('b')) {
            (Some(letter), _) => powers(1024).find(|(unit, _)| *unit == letter),
            (None, Some(letter)) => powers(1000).find(|(unit, _)| *unit == letter),
            (None, None) => powers(1024).find(|(known, _)| *known == unit),
        }
        .map(|(_, factor)| factor),
    };
    scaled(number, factor)
        .ok_or_else(|| format!("'{text}' is not the size of a drive: it must be {CAPACITY_FORMS}"))
}

/// A number with a fraction of at most nine digits, times a factor. `None` if it is none, or beyond 64 bits.
fn scaled(number: &str, factor: Option<u128>) -> Option<u64> {
    let factor = factor?;
    let (whole, part) = number.split_once('.').map_or((number, ""), |(whole, part)| (whole, part));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    let has_point = number.contains('.');
    if !is_number(whole) || (has_point && (!is_number(part) || part.len() > DIGITS_MOST || factor == 1)) {
        return None;
    }
    let whole = whole.parse::<u64>().ok().map(u128::from)?.checked_mul(factor)?;
    let part = part.parse::<u128>().unwrap_or(0) * factor / 10u128.pow(part.len() as u32);
    whole.checked_add(part)?.try_into().ok()
}

/// Bytes from a number with an optional unit in any case. `k`, `kb` and `kib` all mean 1024. Of parts of a byte nothing is left.
pub fn parse(text: &str) -> Result<u64, String> {
    let number = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
    let (number, unit) = text.split_at(number);
    let (whole, part) = number.split_once('.').map_or((number, None), |(whole, part)| (whole, Some(part)));
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        "p" | "pb" | "pib" => 50,
        _ => return Err(format!("'{text}' is not a size: it must be {FORMS}")),
    };
    let is_part = |part: &str| shift > 0 && (1..=DIGITS_MOST).contains(&part.len()) && !part.contains('.');
    if whole.is_empty() || !part.is_none_or(is_part) {
        return Err(format!("'{text}' is not a size: it must be {FORMS}"));
    }
    // Nine digits of a PiB fit in 80 bits.
    let part = part.filter(|part| !part.is_empty()).map_or(0, |part| {
        let tenths = part.parse::<u128>().unwrap_or(0) << shift;
        (tenths / 10u128.pow(part.len() as u32)) as u64
    });
    let bytes = whole.parse::<u64>().ok().and_then(|whole| whole.checked_mul(1 << shift));
    let bytes = bytes.and_then(|bytes| bytes.checked_add(part));
    bytes.ok_or_else(|| format!("'{text}' is more bytes than 64 bits can count"))
}

#[cfg(test)]
mod tests {
    use super::{parse, parse_capacity};

    #[test]
    fn capacities_are_decimal_as_drives_are_sold() {
        for (text, bytes) in [
            ("3.84TB", 3_840_000_000_000),
            ("61.44tb", 61_440_000_000_000),
            ("800GB", 800_000_000_000),
            ("1kB", 1000),
            ("65.2PB", 65_200_000_000_000_000),
            ("3.5t", 7 << 39),
            ("1TiB", 1 << 40),
            ("2g", 2 << 30),
            ("512", 512),
            ("7b", 7),
            ("1p", 1 << 50),
        ] {
            assert_eq!(parse_capacity(text), Ok(bytes), "{text}");
        }
        for text in
            ["", "TB", "1.5", "1.TB", ".5TB", "1.0000000001TB", "1 TB", "1XB", "99999999PB", "-1TB", "1ib"]
        {
            let error = parse_capacity(text).expect_err(text);
            assert!(error.contains("3.84TB"), "{error}");
        }
    }

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
            ("1.5g", 3 << 29),
            ("0.5k", 512),
            ("1.999999999t", 2_199_023_254_452),
            ("1p", 1 << 50),
            ("0.0001k", 0),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn bad_sizes_are_named_with_the_accepted_form() {
        for text in [
            "",
            "m",
            "12q",
            "1.5",
            "1.5b",
            "1.g",
            ".5g",
            "1.5.5g",
            "1.0000000001g",
            "-1",
            "+1",
            " 1",
            "1 g",
            "g1",
            "1gg",
            "0x10",
        ] {
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
