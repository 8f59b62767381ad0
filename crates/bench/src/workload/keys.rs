//! Keys by number.

use bytes::Bytes;

/// Returns the key of a number, as RocksDB's db_bench writes it: the number's bytes, highest first, then
/// `0` characters up to `bytes`; a shorter key has the number's lowest bytes.
pub(crate) fn key(number: u64, bytes: usize) -> Bytes {
    let number = number.to_be_bytes();
    if bytes <= number.len() {
        return Bytes::copy_from_slice(&number[number.len() - bytes..]);
    }
    let mut key = vec![b'0'; bytes];
    key[..number.len()].copy_from_slice(&number);
    key.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_length_and_order_of_db_bench() {
        assert_eq!(&key(0x0102, 16)[..], b"\0\0\0\0\0\0\x01\x0200000000");
        assert_eq!(&key(0x0102, 4)[..], b"\0\0\x01\x02");
        assert!(key(255, 16) < key(256, 16));
    }
}
