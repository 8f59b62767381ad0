//! Reads a file entry by entry.

use std::io::Read;

use crate::input::Input;
use crate::kind::{Dialect, Kind, STRING};
use crate::strings::Text;
use crate::{Error, Result};

/// Maximum lengths; longer keys and values are skipped.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum length of a key in bytes.
    pub key_bytes_max: u64,
    /// Maximum length of a value in bytes.
    pub value_bytes_max: u64,
}

/// A key with its value and metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Number of the database.
    pub database: u64,
    /// The key; empty if it is too long.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Value,
    /// Expiry in milliseconds since the Unix epoch.
    pub expires_at_ms: Option<u64>,
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A string.
    String(Vec<u8>),
    /// A value of another type, which was skipped.
    Other(Kind),
    /// A string longer than the limit, which was skipped.
    TooLong {
        /// Length of the string.
        bytes: u64,
    },
    /// A key longer than the limit; key and value were skipped.
    KeyTooLong {
        /// Length of the key.
        bytes: u64,
    },
}

/// A reader of a file.
pub struct Reader<R> {
    input: Input<R>,
    limits: Limits,
    version: u32,
    database: u64,
    functions: u64,
    is_preamble: bool,
    is_over: bool,
}

/// Redis 8.6: module metadata of the key that follows. Valkey 9: slots in migration.
const KEY_METADATA_OR_SLOTS: u8 = 243;
const SLOT_INFO: u8 = 244;
const FUNCTION: u8 = 245;
/// From a release candidate of Redis 7.0.
const FUNCTION_EARLY: u8 = 246;
const MODULE_AUX: u8 = 247;
const IDLE: u8 = 248;
const FREQUENCY: u8 = 249;
const AUX: u8 = 250;
const RESIZE: u8 = 251;
const EXPIRES_AT_MS: u8 = 252;
const EXPIRES_AT_S: u8 = 253;
const SELECT: u8 = 254;
const EOF: u8 = 255;

/// Numbers from here on are opcodes, not value types.
const OPCODE_LEAST: u8 = 240;

/// Fields that mark a file followed by commands: in the same file before Redis 7, in a file of their own since.
const PREAMBLE_FIELDS: [&[u8]; 2] = [b"aof-preamble", b"aof-base"];

/// Maximum bytes of a field's name or value; longer fields are skipped.
const FIELD_BYTES_MAX: u64 = 64;

/// Length of the identifier of a metadata class.
const METADATA_CLASS_BYTES: u64 = 4;

/// First version with a checksum at the end.
const CHECKSUM_SINCE: u32 = 5;

impl<R: Read> Reader<R> {
    /// Reads the head of a file. The input should be buffered, because it is read a few bytes at a time.
    ///
    /// # Errors
    /// If the input cannot be read, or is not an RDB file.
    pub fn new(input: R, limits: Limits) -> Result<Reader<R>> {
        let mut input = Input::new(input);
        let head: [u8; 9] = input.array().map_err(|error| match error {
            Error::EndsEarly { .. } => Error::NotRdb,
            other => other,
        })?;
        let version = head.strip_prefix(b"REDIS").or_else(|| head.strip_prefix(b"VALKEY"));
        let version = version.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        let version = version.ok_or(Error::NotRdb)?;
        Ok(Reader { input, limits, version, database: 0, functions: 0, is_preamble: false, is_over: false })
    }

    /// Returns the version of the format.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Returns the number of bytes read, for progress reports.
    pub fn offset(&self) -> u64 {
        self.input.offset()
    }

    /// Returns the number of skipped function libraries.
    pub fn functions(&self) -> u64 {
        self.functions
    }

    /// True if the file is marked as the preamble of an append-only file, whose commands follow the checksum. Valid
    /// once the first entry was read.
    pub fn is_preamble(&self) -> bool {
        self.is_preamble
    }

    /// Returns the reader of the bytes that were not consumed.
    pub fn into_inner(self) -> R {
        self.input.into_inner()
    }

    /// Returns the next entry; `None` after the last one, once the checksum was verified.
    ///
    /// # Errors
    /// The problem with the file, and its offset. Nothing can be read after an error.
    pub fn read(&mut self) -> Result<Option<Entry>> {
        let mut expires_at_ms = None;
        while !self.is_over {
            let offset = self.input.offset();
            match self.input.byte()? {
                EOF => self.end()?,
                EXPIRES_AT_MS => expires_at_ms = Some(i64::from_le_bytes(self.input.array()?)),
                EXPIRES_AT_S => {
                    expires_at_ms = Some(i64::from(i32::from_le_bytes(self.input.array()?)) * 1000);
                }
                opcode @ OPCODE_LEAST.. => self.pass(opcode, offset)?,
                of => {
                    // An expiry before the epoch is in the past as well.
                    let expires_at_ms = expires_at_ms.map(|at| at.max(0) as u64);
                    return self.entry(of, offset, expires_at_ms).map(Some);
                }
            }
        }
        Ok(None)
    }

    fn dialect(&self) -> Dialect {
        Dialect::of(self.version)
    }

    /// Processes an opcode between entries.
    fn pass(&mut self, opcode: u8, offset: u64) -> Result<()> {
        let dialect = self.dialect();
        let input = &mut self.input;
        match opcode {
            SELECT => self.database = input.length()?,
            RESIZE => input.skip_lengths(2)?,
            SLOT_INFO => input.skip_lengths(3)?,
            KEY_METADATA_OR_SLOTS if dialect == Dialect::Valkey => {
                input.skip_string()?;
                input.each(|input| input.skip_lengths(2))?;
            }
            KEY_METADATA_OR_SLOTS => input.each(|input| {
                input.skip(METADATA_CLASS_BYTES)?;
                input.skip_module_value()
            })?,
            AUX => {
                let [name, value] = [input.string(FIELD_BYTES_MAX)?, input.string(FIELD_BYTES_MAX)?];
                let is = |text: &Text, known: &[u8]| matches!(text, Text::Whole(text) if text == known);
                self.is_preamble |= PREAMBLE_FIELDS.iter().any(|field| is(&name, field)) && is(&value, b"1");
            }
            IDLE => drop(input.length()?),
            FREQUENCY => drop(input.byte()?),
            FUNCTION => {
                input.skip_string()?;
                self.functions += 1;
            }
            FUNCTION_EARLY => {
                input.skip_strings(2)?;
                let has_description = input.length()? != 0;
                input.skip_strings(1 + usize::from(has_description))?;
                self.functions += 1;
            }
            MODULE_AUX => {
                // Module id, and the time at which the module wants this to be loaded, preceded by the type of that
                // number.
                input.skip_lengths(3)?;
                input.skip_module_value()?;
            }
            _ => return Err(self.unknown(format!("opcode {opcode}"), offset)),
        }
        Ok(())
    }

    fn entry(&mut self, of: u8, offset: u64, expires_at_ms: Option<u64>) -> Result<Entry> {
        let key = self.input.string(self.limits.key_bytes_max)?;
        let value = if of == STRING {
            match self.input.string(self.limits.value_bytes_max)? {
                Text::Whole(value) => Value::String(value),
                Text::TooLong { bytes } => Value::TooLong { bytes },
            }
        } else {
            let kind = self.input.skip_value(of, self.dialect())?;
            Value::Other(kind.ok_or_else(|| self.unknown(format!("value type {of}"), offset))?)
        };
        let (key, value) = match key {
            Text::Whole(key) => (key, value),
            Text::TooLong { bytes } => (Vec::new(), Value::KeyTooLong { bytes }),
        };
        Ok(Entry { database: self.database, key, value, expires_at_ms })
    }

    /// Verifies the checksum; zero means that there is none.
    fn end(&mut self) -> Result<()> {
        self.is_over = true;
        if self.version < CHECKSUM_SINCE {
            return Ok(());
        }
        let found = self.input.checksum();
        let expected = u64::from_le_bytes(self.input.array()?);
        if expected != 0 && expected != found {
            return Err(Error::Checksum { expected, found });
        }
        Ok(())
    }

    fn unknown(&self, what: String, offset: u64) -> Error {
        Error::Unknown { offset, what, version: self.version }
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
