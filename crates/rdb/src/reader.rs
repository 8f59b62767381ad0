//! What a file holds, entry by entry.

use std::io::Read;

use crate::input::Input;
use crate::kind::{Dialect, Kind, STRING};
use crate::strings::Text;
use crate::{Error, Result};

/// What is longer is passed over.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Of a key.
    pub key_bytes_max: u64,
    /// Of a value.
    pub value_bytes_max: u64,
}

/// A key with its value, and what stands with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The database that it is in.
    pub database: u64,
    /// The key; empty if it is too long.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Value,
    /// When it expires, in milliseconds since the Unix epoch.
    pub expires_at_ms: Option<u64>,
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A string.
    String(Vec<u8>),
    /// Something else, which was passed over.
    Other(Kind),
    /// A string that is longer than the limit, and was passed over.
    TooLong {
        /// How long.
        bytes: u64,
    },
    /// The key is longer than the limit; both were passed over.
    KeyTooLong {
        /// How long.
        bytes: u64,
    },
}

/// A file that is being read.
pub struct Reader<R> {
    input: Input<R>,
    limits: Limits,
    version: u32,
    database: u64,
    functions: u64,
    is_preamble: bool,
    is_over: bool,
}

/// Of Redis 8.6: what modules say of the key that follows. Of Valkey 9: slots that are being moved.
const KEY_METADATA_OR_SLOTS: u8 = 243;
const SLOT_INFO: u8 = 244;
const FUNCTION: u8 = 245;
/// Of a release candidate of Redis 7.0.
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

/// What is no type of a value has a number from here on.
const OPCODE_LEAST: u8 = 240;

/// The fields that mark a file that commands follow, in the same file before Redis 7 and in files of their own since.
const PREAMBLE_FIELDS: [&[u8]; 2] = [b"aof-preamble", b"aof-base"];

/// Bytes of a field's name or value beyond which the field is skipped.
const FIELD_BYTES_MAX: u64 = 64;

/// Which module says something of a key.
const METADATA_CLASS_BYTES: u64 = 4;

/// From this version on a file ends in a checksum.
const CHECKSUM_SINCE: u32 = 5;

impl<R: Read> Reader<R> {
    /// Reads the head of a file. The input should be buffered: it is read a few bytes at a time.
    ///
    /// # Errors
    /// It cannot be read, or is no RDB file.
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

    /// The version of the format.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// How many bytes were read, for whoever shows how far it is.
    pub fn offset(&self) -> u64 {
        self.input.offset()
    }

    /// Libraries of functions that were passed over.
    pub fn functions(&self) -> u64 {
        self.functions
    }

    /// Returns true if the file says that it is the preamble of an append-only file, whose commands follow the checksum.
    /// Known once the first entry was read.
    pub fn is_preamble(&self) -> bool {
        self.is_preamble
    }

    /// Returns the reader of the bytes that were not consumed.
    pub fn into_inner(self) -> R {
        self.input.into_inner()
    }

    /// The next entry; `None` behind the last, when the checksum has been compared.
    ///
    /// # Errors
    /// What is wrong with the file, and where. Nothing can be read behind that.
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
                    // One before the epoch has expired as well.
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

    /// What stands between entries.
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
                // Which module, and when it wants this to be read, with the type of that number in front.
                input.skip_lengths(3)?;
                input.skip_module_value()?;
            }
            _ => return Err(self.unknown(format!("what is numbered {opcode}"), offset)),
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
            Value::Other(kind.ok_or_else(|| self.unknown(format!("the type of value {of}"), offset))?)
        };
        let (key, value) = match key {
            Text::Whole(key) => (key, value),
            Text::TooLong { bytes } => (Vec::new(), Value::KeyTooLong { bytes }),
        };
        Ok(Entry { database: self.database, key, value, expires_at_ms })
    }

    /// Compares the checksum; zero stands for none.
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
