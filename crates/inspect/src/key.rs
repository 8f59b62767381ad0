//! Keys in a form for people and programs.

use std::fmt;

use esker_log::{Databases, KeyHash};
use serde::{Serialize, Serializer};

/// A key of a database.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The number of its database.
    pub database: u8,
    /// Its name in the database.
    pub name: Name,
}

/// The bytes of a key, or its digest if the bytes cannot be read.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// The bytes.
    Bytes(Vec<u8>),
    /// The digest, because the bytes cannot be read.
    Digest(u64, u64),
}

impl Key {
    /// The key with these bytes in a database.
    pub fn named(database: u8, bytes: &[u8]) -> Key {
        Key { database, name: Name::Bytes(bytes.to_vec()) }
    }

    pub(crate) fn of_digest(databases: &Databases, hash: &KeyHash) -> Key {
        Key { database: databases.database(hash.keyspace()), name: Name::Digest(hash.slot, hash.check) }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Text without control characters as it is; other keys with escapes.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Name::Bytes(bytes) => f.write_str(&shown(bytes))?,
            Name::Digest(slot, check) => {
                write!(f, "(a key that cannot be read; digest {slot:016x}{check:016x})")?;
            }
        }
        if self.database == 0 { Ok(()) } else { write!(f, " (database {})", self.database) }
    }
}

/// Returns printable text as it is, and other bytes with escapes.
pub fn shown(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => bytes.escape_ascii().to_string(),
    }
}

/// Formats bytes in hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Serializes as a string if the key is text and of database 0, else as an object: `{"hex": "00ff"}`,
/// `{"digest": "…"}` or `{"key": "text", "database": 3}`.
impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let (name, value) = match &self.name {
            Name::Bytes(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) if self.database == 0 => return serializer.serialize_str(text),
                Ok(text) => ("key", text.to_owned()),
                Err(_) => ("hex", hex(bytes)),
            },
            Name::Digest(slot, check) => ("digest", format!("{slot:016x}{check:016x}")),
        };
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(name, &value)?;
        if self.database != 0 {
            map.serialize_entry("database", &self.database)?;
        }
        map.end()
    }
}
