//! LEB128 numbers: seven bits per byte, the lowest first; the highest bit of a byte says that another byte follows.

/// Maximum length in bytes of a 64-bit number.
pub(crate) const LONGEST_BYTES: usize = 10;

/// Returns the encoded length of a number in bytes.
#[inline]
pub(crate) const fn varint_bytes(value: u64) -> usize {
    if value < 0x80 {
        return 1;
    }
    let bits = 64 - value.leading_zeros() as usize;
    // Divides by seven, rounding up; exact for up to 64 bits.
    (9 * bits + 64) / 64
}

/// Writes a number at `at`. Returns its end.
#[inline(always)]
pub(crate) fn write_varint(to: &mut [u8], mut at: usize, mut value: u64) -> usize {
    while value >= 0x80 {
        to[at] = value as u8 | 0x80;
        value >>= 7;
        at += 1;
    }
    to[at] = value as u8;
    at + 1
}

/// Appends a number.
pub(crate) fn put_varint(to: &mut Vec<u8>, value: u64) {
    let mut bytes = [0u8; LONGEST_BYTES];
    let len = write_varint(&mut bytes, 0, value);
    to.extend_from_slice(&bytes[..len]);
}

/// Consumes a number at the front. Returns `None` if the bytes end before it does, or if it is longer than a 64-bit
/// number can be.
#[inline]
pub(crate) fn get_varint(from: &mut &[u8]) -> Option<u64> {
    match from.split_first() {
        Some((&byte, rest)) if byte < 0x80 => {
            *from = rest;
            Some(byte.into())
        }
        _ => get_more(from),
    }
}

/// Consumes a number of more than one byte.
#[inline]
fn get_more(from: &mut &[u8]) -> Option<u64> {
    let Some(head) = from.first_chunk::<8>() else { return get_long(from) };
    let word = u64::from_le_bytes(*head);
    // The highest bit of a byte says whether another follows.
    let ends = !word & 0x8080_8080_8080_8080;
    if ends == 0 {
        return get_long(from);
    }
    let bits = ends.trailing_zeros() + 1;
    *from = &from[bits as usize / 8..];
    Some(sevens(word & (u64::MAX >> (u64::BITS - bits))))
}

/// Joins seven bits of each byte, in pairs.
#[inline]
fn sevens(word: u64) -> u64 {
    let word = word & 0x7f7f_7f7f_7f7f_7f7f;
    let word = word & 0x007f_007f_007f_007f | (word & 0x7f00_7f00_7f00_7f00) >> 1;
    let word = word & 0x0000_3fff_0000_3fff | (word & 0x3fff_0000_3fff_0000) >> 2;
    word & 0x0fff_ffff | (word & 0x0fff_ffff_0000_0000) >> 4
}

/// Returns the fourth number in these bytes, without a branch that depends on them. `None` if that is not possible: it
/// does not end within the bytes, or is too long.
#[inline]
pub(crate) fn fourth_varint(bytes: &[u8; 16]) -> Option<u64> {
    let word = u128::from_le_bytes(*bytes);
    let first_ends = !word & (u128::MAX / 255 * 128);
    let second_ends = first_ends & first_ends.wrapping_sub(1);
    let third_ends = second_ends & second_ends.wrapping_sub(1);
    let fourth_ends = third_ends & third_ends.wrapping_sub(1);
    if fourth_ends == 0 {
        return None;
    }
    let (begin, end) = (third_ends.trailing_zeros() + 1, fourth_ends.trailing_zeros() + 1);
    let number = (word & (u128::MAX >> (u128::BITS - end))) >> begin;
    u64::try_from(number).ok().map(sevens)
}

/// Consumes a number of more than eight bytes, or near the end of the bytes.
#[cold]
fn get_long(from: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = from.split_first()?;
        *from = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varint_of_every_length_round_trips() {
        let edges = (0..64).flat_map(|shift| [(1u64 << shift) - 1, 1 << shift, u64::MAX - (1 << shift)]);
        let numbers: Vec<u64> = edges.chain([u64::MAX]).collect();
        // For any surrounding bytes: lengths differ, and the last ones are near the end.
        let mut bytes = Vec::new();
        numbers.iter().for_each(|number| put_varint(&mut bytes, *number));
        assert_eq!(bytes.len(), numbers.iter().map(|number| varint_bytes(*number)).sum::<usize>());
        let mut rest = &bytes[..];
        let found: Vec<u64> = numbers.iter().map_while(|_| get_varint(&mut rest)).collect();
        assert_eq!(found, numbers);
        assert!(rest.is_empty() && get_varint(&mut rest).is_none());
        for number in numbers {
            for behind in [0, 8] {
                let mut bytes = Vec::new();
                put_varint(&mut bytes, number);
                bytes.extend_from_slice(&vec![0xff; behind]);
                let mut rest = &bytes[..];
                assert_eq!(get_varint(&mut rest), Some(number));
                assert_eq!(rest.len(), behind);
            }
        }
        assert_eq!(get_varint(&mut &[0xff; 16][..]), None, "it has no end");
    }
}
