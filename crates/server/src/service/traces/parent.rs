//! The caller's span, from the W3C header `traceparent`.

/// The span of the caller that a request belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parent {
    pub(super) trace: [u8; 16],
    pub(super) span: [u8; 8],
    pub(super) flags: u8,
}

/// Length of a header of version 00: `00-TRACE-SPAN-FLAGS`.
const LENGTH: usize = 55;

impl Parent {
    /// Parses the value of `traceparent`. Returns `None` if it is malformed; then the request begins a trace of its own, as the
    /// specification requires.
    pub(crate) fn parse(value: &[u8]) -> Option<Parent> {
        // A later version may append fields after another hyphen.
        let is_longer = value.get(LENGTH) == Some(&b'-') && !value.starts_with(b"00");
        if value.len() != LENGTH && !is_longer {
            return None;
        }
        let mut parts = value[..LENGTH].split(|byte| *byte == b'-');
        let mut next = || parts.next();
        let [version] = digits(next()?)?;
        let (trace, span) = (digits(next()?)?, digits(next()?)?);
        let [flags] = digits(next()?)?;
        let is_valid = version != 0xff && trace != [0; 16] && span != [0; 8] && next().is_none();
        is_valid.then_some(Parent { trace, span, flags })
    }
}

/// Returns the bytes of a number in lower-case hexadecimal digits.
fn digits<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let of = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = of(pair[0])? << 4 | of(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn traceparent_is_parsed() {
        let parent = Parent::parse(GOOD.as_bytes()).unwrap();
        assert_eq!((parent.trace[0], parent.trace[15], parent.flags), (0x0a, 0x9c, 1));
        assert_eq!(parent.span, [0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31]);
        let later = GOOD.replacen("00", "01", 1);
        assert_eq!(Parent::parse(later.as_bytes()), Some(parent));
        assert_eq!(Parent::parse(format!("{later}-more").as_bytes()), Some(parent));
    }

    #[test]
    fn malformed_traceparent_is_ignored() {
        let zeros = format!("00-{}-b7ad6b7169203331-01", "0".repeat(32));
        let no_span = "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01";
        let upper = GOOD.to_ascii_uppercase();
        let (longer, moved) = (format!("{GOOD}-more"), GOOD.replacen("c-b", "-cb", 1));
        let invalid = GOOD.replacen("00", "ff", 1);
        for bad in ["", "00", &GOOD[..54], &zeros, no_span, &upper, &longer, &moved, &invalid, "é"] {
            assert_eq!(Parent::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
