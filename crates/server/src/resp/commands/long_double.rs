//! Numbers like x87 `long double`, with a 64-bit mantissa. Redis' INCRBYFLOAT computes with them and prints 17
//! decimals without trailing zeros, so replies and stored values show the difference to `f64`.

use std::fmt;

use num_bigint::{BigInt, BigUint, Sign};

/// `mantissa * 2^exponent`, with at most 64 bits of mantissa.
#[derive(Clone, Debug)]
pub(super) struct Extended {
    mantissa: BigInt,
    exponent: i64,
}

const MANTISSA_BITS: u64 = 64;

/// Numbers are less than two to the power of this.
const EXPONENT_MAX: i64 = 16_384;

/// Numbers up to two to the power of this round to zero.
const ZERO_EXPONENT: i64 = -16_446;

/// The exponent of infinity.
const INFINITE: i64 = i64::MAX;

/// Limit of the decimal exponent: beyond it a number is too small or too large whatever its at most
/// [`TEXT_BYTES_MAX`] digits are.
const TEN_EXPONENT_MAX: i64 = 11_000;

/// Limit of the bytes of a number, as in Redis.
const TEXT_BYTES_MAX: usize = 5 * 1024 - 1;

/// Decimals of the output.
const DIGITS: usize = 17;

impl Extended {
    pub(super) const ZERO: Extended = Extended { mantissa: BigInt::ZERO, exponent: 0 };

    /// Parses a number as C does: decimal or hexadecimal, with or without point and exponent, or infinity. Returns
    /// `None` for any other text, for a number that is too large, and for a nonzero one that rounds to zero.
    pub(super) fn parse(text: &[u8]) -> Option<Extended> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let (negative, text) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            _ => (false, text),
        };
        if ["inf", "infinity"].iter().any(|name| text.eq_ignore_ascii_case(name.as_bytes())) {
            return Some(Extended { mantissa: BigInt::ZERO, exponent: INFINITE });
        }
        let (number, exponent) = match text {
            [b'0', b'x' | b'X', digits @ ..] => {
                let (number, fraction, exponent) = parts(digits, 16, b'p')?;
                (number, exponent - 4 * fraction)
            }
            _ => {
                let (number, fraction, exponent) = parts(text, 10, b'e')?;
                scaled(number, exponent - fraction)?
            }
        };
        if number == BigUint::ZERO {
            return Some(Extended::ZERO);
        }
        let sign = if negative { Sign::Minus } else { Sign::Plus };
        let number = Extended { mantissa: BigInt::from_biguint(sign, number), exponent }.rounded()?;
        let below = number.mantissa.magnitude() - 1u32;
        (below.bits() as i64 + number.exponent > ZERO_EXPONENT).then_some(number)
    }

    /// Returns the sum, or `None` if it is too large.
    pub(super) fn add(self, other: Extended) -> Option<Extended> {
        if self.exponent == INFINITE || other.exponent == INFINITE {
            return None;
        }
        let exponent = self.exponent.min(other.exponent);
        let aligned = |number: Extended| number.mantissa << (number.exponent - exponent) as u64;
        Extended { mantissa: aligned(self) + aligned(other), exponent }.rounded()
    }

    /// Rounds to the mantissa's bits, half to even.
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

/// Returns the digits of a number, the number of them after the point, and the exponent, which follows `letter`.
fn parts(text: &[u8], radix: u32, letter: u8) -> Option<(BigUint, i64, i64)> {
    let is_digit = |byte: &u8| *byte == b'.' || char::from(*byte).is_digit(radix);
    let digits_end = text.iter().position(|byte| !is_digit(byte)).unwrap_or(text.len());
    let (digits, exponent) = text.split_at(digits_end);
    let exponent = match exponent {
        [] => 0,
        [first, number @ ..] if first.eq_ignore_ascii_case(&letter) => {
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
    let number = BigUint::parse_bytes(&[whole, fraction].concat(), radix)?;
    Some((number, fraction.len() as i64, exponent))
}

/// Returns the number times a power of ten, with at least as many bits as rounding needs, and its binary exponent.
fn scaled(number: BigUint, ten_exponent: i64) -> Option<(BigUint, i64)> {
    if number == BigUint::ZERO {
        return Some((number, 0));
    }
    if ten_exponent.abs() > TEN_EXPONENT_MAX {
        return None;
    }
    let power = BigUint::from(10u32).pow(ten_exponent.unsigned_abs() as u32);
    if ten_exponent >= 0 {
        return Some((number * power, 0));
    }
    // Enough bits of the quotient for rounding; an appended one stands for the remainder.
    let shift = power.bits() + MANTISSA_BITS + 2;
    let shifted = number << shift;
    let quotient = &shifted / &power;
    let exact = &quotient * &power == shifted;
    Some(((quotient << 1u32) + u32::from(!exact), -(shift as i64) - 1))
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

    /// Expected results are from redis-server 7.0 on x86-64.
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
            ("inf", "0", "too large"),
            ("-Infinity", "inf", "too large"),
            ("0x10", "0X1p-3", "16.125"),
            ("-0x1.8P+2", "0x.8", "-5.5"),
            ("0x0p-99999", "0e99999", "0"),
            ("1.9e-4951", "0x1p-16445", "0"),
            (&"0".repeat(5119), "0", "0"),
        ] {
            assert_eq!(sum(a, b), expected, "{a} + {b}");
        }
    }

    #[test]
    fn long_double_parse_refuses_invalid_numbers() {
        for text in [
            "",
            ".",
            "-",
            "1a",
            " 1",
            "1 ",
            "1e",
            "1e+",
            "e5",
            "1.2.3",
            "nan",
            "1e9999",
            "1e-4951",
            "1e-99999",
            "0x",
            "0x.",
            "0x1p",
            "0xg",
            "0x1p16384",
            "0x1p-16446",
            "infinit",
            &"0".repeat(5120),
        ] {
            assert!(Extended::parse(text.as_bytes()).is_none(), "{text}");
        }
    }
}
