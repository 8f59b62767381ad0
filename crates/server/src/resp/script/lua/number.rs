//! Formats numbers as C does.

use mlua::Value;

/// Returns a value as a number. Integers and fractions are two kinds in mlua, and one in Lua 5.1.
pub(super) fn number_in(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Number(number) => Some(*number),
        _ => None,
    }
}

/// Formats a number as C's `%.{digits}g`.
pub(in crate::resp) fn spelled(number: f64, digits: usize) -> String {
    if number.is_nan() {
        return if number.is_sign_negative() { "-nan".to_owned() } else { "nan".to_owned() };
    }
    if number.is_infinite() {
        return if number < 0.0 { "-inf".to_owned() } else { "inf".to_owned() };
    }
    let scientific = format!("{:.*e}", digits - 1, number);
    let (mantissa, exponent) = scientific.split_once('e').expect("the form has an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent is a number");
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs());
    }
    trimmed(&format!("{:.*}", (digits as i32 - 1 - exponent) as usize, number))
}

#[cfg(test)]
mod tests {
    use super::spelled;

    #[test]
    fn numbers_are_spelled_as_c_does() {
        for (number, digits, text) in [
            (0.0, 17, "0"),
            (-0.0, 17, "-0"),
            (1e15, 17, "1000000000000000"),
            (1e15, 14, "1e+15"),
            (1.1, 17, "1.1000000000000001"),
            (1.1, 14, "1.1"),
            (12_345_678_901_234_567_890.0, 17, "1.2345678901234567e+19"),
            (1e-5, 14, "1e-05"),
            (0.0001, 14, "0.0001"),
            (1e300, 14, "1e+300"),
            (99_999_999_999_999.9, 14, "1e+14"),
            (f64::NEG_INFINITY, 14, "-inf"),
        ] {
            assert_eq!(spelled(number, digits), text);
        }
    }
}
