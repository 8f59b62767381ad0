//! LZF, the compression of strings in RDB.
//!
//! A control byte below 32 is followed by one more literal byte than its value. Any other is a match: its upper three
//! bits are the length minus two (7: another byte is added), its lower five bits and the next byte the distance minus
//! one.

/// Decompresses to exactly `bytes` bytes, which the caller bounds. Returns `None` if the input is invalid.
pub(crate) fn decompress(input: &[u8], bytes: usize) -> Option<Vec<u8>> {
    let mut output = Vec::with_capacity(bytes);
    let mut rest = input;
    while let [control, behind @ ..] = rest {
        let control = usize::from(*control);
        if control < 32 {
            let (literal, behind) = behind.split_at_checked(control + 1)?;
            output.extend_from_slice(literal);
            rest = behind;
        } else {
            let (more, behind) =
                if control >> 5 == 7 { behind.split_at_checked(1)? } else { (&[0][..], behind) };
            let (low, behind) = behind.split_first()?;
            let length = (control >> 5) + usize::from(more[0]) + 2;
            let distance = (control & 0x1f) << 8 | usize::from(*low);
            let start = output.len().checked_sub(distance + 1)?;
            // The match may overlap its own output.
            for at in start..start + length {
                output.push(output[at]);
            }
            rest = behind;
        }
        if output.len() > bytes {
            return None;
        }
    }
    (output.len() == bytes).then_some(output)
}

#[cfg(test)]
mod tests {
    use super::decompress;

    #[test]
    fn lzf_literals_and_matches_are_expanded() {
        assert_eq!(decompress(&[2, b'a', b'b', b'c'], 3).unwrap(), b"abc");
        // Four more of the previous byte, produced by an overlapping match.
        assert_eq!(decompress(&[0, b'a', 2 << 5, 0], 5).unwrap(), b"aaaaa");
        assert_eq!(decompress(&[0, b'a', 7 << 5, 10, 0], 20).unwrap(), [b'a'; 20]);
        for bad in [&[5, 1][..], &[1 << 5, 0], &[0, b'a', 1 << 5], &[0, b'a', 1 << 5, 1], &[7 << 5]] {
            assert_eq!(decompress(bad, 3), None, "{bad:?}");
        }
        assert_eq!(decompress(&[0, b'a', 7 << 5, 255, 0], 5), None, "more than was announced");
        assert_eq!(decompress(&[0, b'a'], 5), None, "less than was announced");
    }
}
