//! Keys as people and programs read them.

use std::fmt;

use esker_log::KeyHash;
use serde::{Serialize, Serializer};

/// A key, or what is left of its name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// Its bytes.
    Named(Vec<u8>),
    /// Its digest: its bytes cannot be read.
    Digest(u64, u64),
}

impl Key {
    pub(crate) fn of_digest(hash: &KeyHash) -> Key {
        Key::Digest(hash.slot, hash.check)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// As text, where it is text without control characters; else with escapes.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Named(bytes) => f.write_str(&shown(bytes)),
            Key::Digest(slot, check) => {
                write!(f, "(a key that cannot be read; digest {slot:016x}{check:016x})")
            }
        }
    }
}

/// Bytes as text if they are printable text, else with escapes.
pub fn shown(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => bytes.escape_ascii().to_string(),
    }
}

/// Bytes in hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A string if the key is text, else an object: `{"hex": "00ff"}` or `{"digest": "…"}`.
impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let (name, value) = match self {
            Key::Named(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => return serializer.serialize_str(text),
                Err(_) => ("hex", hex(bytes)),
            },
            Key::Digest(slot, check) => ("digest", format!("{slot:016x}{check:016x}")),
        };
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(name, &value)?;
        map.end()
    }
}
