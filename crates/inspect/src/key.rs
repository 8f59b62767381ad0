//! Keys as people and programs read them.

use std::fmt;

use esker_log::{Databases, KeyHash};
use serde::{Serialize, Serializer};

/// A key of a database.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The number of its database.
    pub database: u8,
    /// What it is called there.
    pub name: Name,
}

/// The bytes of a key, or what is left of them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// Its bytes.
    Bytes(Vec<u8>),
    /// Its digest: its bytes cannot be read.
    Digest(u64, u64),
}

impl Key {
    /// The key of these bytes in a database.
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

/// As text, where it is text without control characters; else with escapes.
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

/// A string if the key is text and of database 0, else an object: `{"hex": "00ff"}`, `{"digest": "…"}` or
/// `{"key": "text", "database": 3}`.
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
