//! Numbers as x87 `long double` has them: 64 bits of mantissa. INCRBYFLOAT of Redis computes with them, and prints 17
//! digits after the point less the zeros at the end; whoever compares replies, or stores what comes out, sees it.

use std::fmt;

use num_bigint::{BigInt, BigUint, Sign};

/// `mantissa * 2^exponent`, with at most 64 bits of mantissa.
#[derive(Clone, Debug)]
pub(super) struct Extended {
    mantissa: BigInt,
    exponent: i64,
}

const MANTISSA_BITS: u64 = 64;

/// The largest number is below two to the power of this.
const EXPONENT_MAX: i64 = 16_384;

/// Smaller exponents of ten are zero, larger ones too large, whatever the digits of at most [`TEXT_BYTES_MAX`].
const TEN_EXPONENT_MAX: i64 = 6000;

/// Redis reads no longer texts as numbers.
const TEXT_BYTES_MAX: usize = 255;

/// Digits after the point.
const DIGITS: usize = 17;

impl Extended {
    pub(super) const ZERO: Extended = Extended { mantissa: BigInt::ZERO, exponent: 0 };

    /// A decimal number with or without point and exponent; nothing else may be in the text.
    pub(super) fn parse(text: &[u8]) -> Option<Extended> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let (negative, text) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            _ => (false, text),
        };
        let digits_end =
            text.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b'.')).unwrap_or(text.len());
        let (digits, exponent) = text.split_at(digits_end);
        let mut ten_exponent = match exponent {
            [] => 0,
            [b'e' | b'E', number @ ..] => {
                let number = std::str::from_utf8(number).ok()?;
                let digits = number.strip_prefix(['-', '+']).unwrap_or(number);
                if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                    return None;
                }
                let limit = 10 * TEN_EXPONENT_MAX;
                let beyond = if number.starts_with('-') { -limit } else { limit };
                number.parse::<i64>().unwrap_or(beyond).clamp(-limit, limit)
            }
            _ => return None,
        };
        let mut parts = digits.split(|&byte| byte == b'.');
        let (whole, fraction) = (parts.next()?, parts.next().unwrap_or(b""));
        if parts.next().is_some() || whole.len() + fraction.len() == 0 {
            return None;
        }
        ten_exponent -= fraction.len() as i64;
        let number = BigUint::parse_bytes(&[whole, fraction].concat(), 10)?;
        if number == BigUint::ZERO || ten_exponent < -TEN_EXPONENT_MAX {
            return Some(Extended::ZERO);
        }
        if ten_exponent > TEN_EXPONENT_MAX {
            return None;
        }
        let power = BigUint::from(10u32).pow(ten_exponent.unsigned_abs() as u32);
        let (number, exponent) = if ten_exponent >= 0 {
            (number * power, 0)
        } else {
            // So many bits that rounding sees enough of the quotient; a one at the end stands for the remainder.
            let shift = power.bits() + MANTISSA_BITS + 2;
            let shifted = number << shift;
            let quotient = &shifted / &power;
            let exact = &quotient * &power == shifted;
            ((quotient << 1u32) + u32::from(!exact), -(shift as i64) - 1)
        };
        let sign = if negative { Sign::Minus } else { Sign::Plus };
        Extended { mantissa: BigInt::from_biguint(sign, number), exponent }.rounded()
    }

    /// The sum; `None` if it is too large.
    pub(super) fn add(self, other: Extended) -> Option<Extended> {
        let exponent = self.exponent.min(other.exponent);
        let aligned = |number: Extended| number.mantissa << (number.exponent - exponent) as u64;
        Extended { mantissa: aligned(self) + aligned(other), exponent }.rounded()
    }

    /// Rounds to the bits there are, to even where it is in the middle.
    fn rounded(self) -> Option<Extended> {
        let (sign, mut magnitude) = self.mantissa.into_parts();
        let mut exponent = self.exponent;
        let excess = magnitude.bits().saturating_sub(MANTISSA_BITS);
        if excess > 0 {
            magnitude = shift_right_to_even(magnitude, excess);
            exponent += excess as i64;
        }
        let fits = magnitude.bits() as i64 + exponent <= EXPONENT_MAX;
        fits.then(|| Extended { mantissa: BigInt::from_biguint(sign, magnitude), exponent })
    }
}

fn shift_right_to_even(number: BigUint, bits: u64) -> BigUint {
    let half = BigUint::from(1u32) << (bits - 1);
    let whole = &number >> bits;
    let rest = number - (&whole << bits);
    let up = rest > half || rest == half && whole.bit(0);
    whole + u32::from(up)
}

impl fmt::Display for Extended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scaled = self.mantissa.magnitude() * BigUint::from(10u32).pow(DIGITS as u32);
        let scaled = match self.exponent {
            0.. => scaled << self.exponent as u64,
            _ => shift_right_to_even(scaled, self.exponent.unsigned_abs()),
        };
        let digits = format!("{scaled:0>width$}", scaled = scaled.to_string(), width = DIGITS + 1);
        let (whole, fraction) = digits.split_at(digits.len() - DIGITS);
        let fraction = fraction.trim_end_matches('0');
        let is_zero = whole == "0" && fraction.is_empty();
        let sign = if self.mantissa.sign() == Sign::Minus && !is_zero { "-" } else { "" };
        let point = if fraction.is_empty() { "" } else { "." };
        write!(f, "{sign}{whole}{point}{fraction}")
    }
}

#[cfg(test)]
mod tests {
    use super::Extended;

    fn sum(a: &str, b: &str) -> String {
        let parse = |text: &str| Extended::parse(text.as_bytes()).unwrap();
        parse(a).add(parse(b)).map_or("too large".to_owned(), |sum| sum.to_string())
    }

    /// What redis-server 7.0 on x86-64 answers.
    #[test]
    fn sums_as_redis_computes_them() {
        for (a, b, expected) in [
            ("0", "0.1", "0.1"),
            ("0.1", "0.2", "0.3"),
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("3", "-3", "0"),
            ("-0.0", "0", "0"),
            ("1e20", "0.1", "100000000000000000000"),
            ("1", "1e-17", "1.00000000000000001"),
            ("1", "1e-18", "1"),
            ("1234567890.123456789", "0.000000001", "1234567890.12345678999554366"),
            ("-1.5", "0.25", "-1.25"),
            (".5", "1.", "1.5"),
            ("1e4900", "1e4900", &sum("2e4900", "0")),
            ("1e4932", "1e4932", "too large"),
        ] {
            assert_eq!(sum(a, b), expected, "{a} + {b}");
        }
    }

    #[test]
    fn what_is_not_a_number() {
        for text in
            ["", ".", "-", "1a", " 1", "1 ", "1e", "1e+", "e5", "1.2.3", "nan", "1e9999", &"1".repeat(256)]
        {
            assert!(Extended::parse(text.as_bytes()).is_none(), "{text}");
        }
    }
}
