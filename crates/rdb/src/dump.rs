//! Payloads of `DUMP`, which `RESTORE` and `MIGRATE` accept: type, value, version, checksum.

use crate::input::{CRC, Input, write_length};
use crate::kind::{Dialect, Kind, STRING};
use crate::strings::Text;
use crate::{Error, Result};

/// A format version that every Redis since 2.6 accepts: strings have not changed since.
const VERSION: u16 = 6;

/// Length in bytes of version and checksum.
const FOOTER_BYTES: usize = 10;

/// Length in bytes of a payload in addition to its uncompressed value.
pub const OVERHEAD_BYTES: usize = 1 + 9 + FOOTER_BYTES;

/// The reason why a payload cannot be restored.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The payload is too short, or its checksum does not match.
    #[error("the payload's checksum is wrong")]
    Checksum,
    /// The payload is not of a string.
    #[error("the payload is of a {0}")]
    Other(Kind),
    /// The string exceeds the limit.
    #[error("the payload's string has {bytes} bytes")]
    TooLong {
        /// Length of the string.
        bytes: u64,
    },
    /// The contents are invalid.
    #[error(transparent)]
    Bad(#[from] Error),
}

/// Encodes the payload of a string.
pub fn encode(value: &[u8]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(value.len() + OVERHEAD_BYTES);
    payload.push(STRING);
    write_length(value.len() as u64, &mut payload);
    payload.extend_from_slice(value);
    payload.extend_from_slice(&VERSION.to_le_bytes());
    let checksum = CRC.checksum(&payload);
    payload.extend_from_slice(&checksum.to_le_bytes());
    payload
}

/// Decodes the string of a payload, of at most `value_bytes_max` bytes.
///
/// # Errors
/// If the payload is not of a string, or is damaged.
pub fn decode(payload: &[u8], value_bytes_max: u64) -> Result<Vec<u8>, Refused> {
    let (body, version) = checked(payload).ok_or(Refused::Checksum)?;
    let mut input = Input::new(body);
    let value = match input.byte()? {
        STRING => match input.string(value_bytes_max)? {
            Text::Whole(value) => value,
            Text::TooLong { bytes } => return Err(Refused::TooLong { bytes }),
        },
        of => {
            let what = "the payload has an unknown value type";
            let kind = input.skip_value(of, Dialect::of(version.into()))?;
            return Err(kind.map_or(Refused::Bad(input.corrupt(what)), Refused::Other));
        }
    };
    if input.offset() < body.len() as u64 {
        return Err(input.corrupt("the payload has bytes after its value").into());
    }
    Ok(value)
}

/// Returns the announced length of a payload's string, for callers that reserve memory before decoding. Does not check
/// that the payload is valid.
pub fn value_bytes(payload: &[u8]) -> u64 {
    Input::new(payload.get(1..).unwrap_or(&[])).announced_bytes().unwrap_or(0)
}

/// Returns the bytes in front of version and checksum, and the version, if the checksum matches.
fn checked(payload: &[u8]) -> Option<(&[u8], u16)> {
    let (summed, checksum) = payload.split_last_chunk::<8>()?;
    let (body, version) = summed.split_last_chunk::<2>()?;
    let expected = u64::from_le_bytes(*checksum);
    (CRC.checksum(summed) == expected).then_some((body, u16::from_le_bytes(*version)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Answers of Redis 7.0.15 to DUMP.
    const OF_REDIS: [(&str, &[u8]); 4] = [
        ("hello", b"\x00\x05hello\n\x00cr\xdfve4 \n"),
        ("127", b"\x00\xc0\x7f\n\x00\x0d\xb5\xeb1RT\xc5\x14"),
        ("-32768", b"\x00\xc1\x00\x80\n\x00\xb5@\x06GS\xbb\x1a\xce"),
        ("2147483647", b"\x00\xc2\xff\xff\xff\x7f\n\x00,t\xe5\x9e\xe0.\xad\xa1"),
    ];

    /// The same for "abcdefghij" two hundred times.
    const COMPRESSED: &[u8] = b"\x00\xc3'G\xd0\nabcdefghija\xe0\xff\x09\xe1\xff\x0d\xe2\xff\x11\xe2\xff\x11\xe2\xff\x11\xe2\xff\x11\xe2\xff\x11\xe2\x82\x11\x01ij\n\x00\xd9\x96\x8d\x01j\xb4\xe1\xea";

    #[test]
    fn redis_payloads_are_decoded() {
        for (value, payload) in OF_REDIS {
            assert_eq!(decode(payload, 1000).unwrap(), value.as_bytes());
            assert!(value_bytes(payload) >= value.len() as u64);
        }
        assert_eq!(decode(COMPRESSED, 2000).unwrap(), b"abcdefghij".repeat(200));
        assert_eq!(value_bytes(COMPRESSED), 2000);
        assert!(matches!(decode(COMPRESSED, 1999), Err(Refused::TooLong { bytes: 2000 })));
    }

    #[test]
    fn payload_of_other_type_is_named() {
        let of_set = with_footer(&[2, 1, 1, b'a']);
        assert_eq!(decode(&of_set, 9).unwrap_err().to_string(), "the payload is of a set");
        for bad in
            [&[99, 1, b'a'][..], &[0, 1, b'a', b'b'], &[0, 2, b'a'], &[0, 0xc3, 3, 3, 5], &[0, 0xc5], &[]]
        {
            assert!(matches!(decode(&with_footer(bad), 9), Err(Refused::Bad(_))), "{bad:?}");
        }
        for short in [&[][..], &[0; 9], &[1; 10]] {
            assert!(matches!(decode(short, 9), Err(Refused::Checksum)), "{short:?}");
        }
    }

    /// The version identifies the writer.
    #[test]
    fn valkey_payloads_are_decoded() {
        let hash = [&[22, 1, 1, b'f', 1, b'v'][..], &(-1_i64).to_le_bytes()].concat();
        let refused = |version| decode(&with_version(&hash, version), 9).unwrap_err();
        assert_eq!(refused(80).to_string(), "the payload is of a hash");
        assert!(matches!(refused(12), Refused::Bad(_)), "{}", refused(12));
        let of_redis = [22, 1, 0, 1, b'f', 1, b'v'];
        assert!(matches!(decode(&with_version(&of_redis, 12), 9), Err(Refused::Other(Kind::Hash))));
        assert_eq!(decode(&with_version(&[0, 1, b'v'], 81), 9).unwrap(), b"v");
    }

    fn with_footer(body: &[u8]) -> Vec<u8> {
        with_version(body, VERSION)
    }

    fn with_version(body: &[u8], version: u16) -> Vec<u8> {
        let mut payload = [body, &version.to_le_bytes()].concat();
        payload.extend_from_slice(&CRC.checksum(&payload).to_le_bytes());
        payload
    }

    proptest! {
        #[test]
        fn encoded_payload_round_trips(value: Vec<u8>, at: prop::sample::Index, bit in 0..8) {
            let mut payload = encode(&value);
            prop_assert_eq!(decode(&payload, value.len() as u64).unwrap(), &value[..]);
            prop_assert_eq!(value_bytes(&payload), value.len() as u64);
            if let Some(less) = value.len().checked_sub(1) {
                let refused = decode(&payload, less as u64);
                prop_assert!(matches!(refused, Err(Refused::TooLong { .. })), "{refused:?}");
            }
            let at = at.index(payload.len());
            payload[at] ^= 1_u8 << bit;
            prop_assert!(matches!(decode(&payload, 1 << 20), Err(Refused::Checksum)));
        }

        #[test]
        fn arbitrary_payload_is_refused_or_decoded(body: Vec<u8>) {
            if let Ok(value) = decode(&with_footer(&body), 1 << 10) {
                prop_assert!(value.len() <= 1 << 10);
            }
            value_bytes(&body);
        }
    }
}
