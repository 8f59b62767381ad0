//! Keys of the records in the log of replicated groups: which change of which group a record is.

use esker_log::MAX_KEY_BYTES;

/// A change of a group, without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogKey {
    /// The entry of an index.
    Entry { group: u8, index: u64 },
    /// A small value that replaces the one with the same number.
    State { group: u8, number: u8 },
    /// Entries from this index on are void.
    Truncate { group: u8, from: u64 },
    /// Entries up to this index are no longer needed. The value is the owner's note about the last of them.
    Purge { group: u8, through: u64 },
}

/// Length of the longest key in bytes.
const KEY_BYTES: usize = 10;
const _: () = assert!(KEY_BYTES <= MAX_KEY_BYTES);

/// A key as it is written: group, kind of change, and an index in big-endian order or the number of a state.
pub(crate) struct EncodedKey {
    bytes: [u8; KEY_BYTES],
    len: usize,
}

impl std::ops::Deref for EncodedKey {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl LogKey {
    pub(crate) fn group(self) -> u8 {
        match self {
            LogKey::Entry { group, .. }
            | LogKey::State { group, .. }
            | LogKey::Truncate { group, .. }
            | LogKey::Purge { group, .. } => group,
        }
    }

    pub(crate) fn encode(self) -> EncodedKey {
        let mut bytes = [0; KEY_BYTES];
        bytes[0] = self.group();
        let index = match self {
            LogKey::State { number, .. } => {
                (bytes[1], bytes[2]) = (b'S', number);
                return EncodedKey { bytes, len: 3 };
            }
            LogKey::Entry { index, .. } => {
                bytes[1] = b'E';
                index
            }
            LogKey::Truncate { from, .. } => {
                bytes[1] = b'T';
                from
            }
            LogKey::Purge { through, .. } => {
                bytes[1] = b'P';
                through
            }
        };
        bytes[2..].copy_from_slice(&index.to_be_bytes());
        EncodedKey { bytes, len: KEY_BYTES }
    }

    /// Returns the key of these bytes; `None` if they are none of this version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<LogKey> {
        let (&[group, what], rest) = bytes.split_first_chunk::<2>()?;
        if let (b'S', &[number]) = (what, rest) {
            return Some(LogKey::State { group, number });
        }
        let index = u64::from_be_bytes(rest.try_into().ok()?);
        match what {
            b'E' => Some(LogKey::Entry { group, index }),
            b'T' => Some(LogKey::Truncate { group, from: index }),
            b'P' => Some(LogKey::Purge { group, through: index }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_written() {
        for key in [
            LogKey::Entry { group: 0, index: u64::MAX },
            LogKey::State { group: 255, number: 7 },
            LogKey::Truncate { group: 3, from: 1 },
            LogKey::Purge { group: 9, through: 1 << 40 },
        ] {
            assert_eq!(LogKey::decode(&key.encode()), Some(key));
        }
        for bytes in [&b""[..], b"\x01", b"\x01E", b"\x01X12345678", b"\x01S12", b"\x01E123456789"] {
            assert_eq!(LogKey::decode(bytes), None, "{bytes:?}");
        }
    }
}
