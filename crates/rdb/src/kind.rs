//! Value types, and skipping of values.

use std::fmt;
use std::io::Read;

use crate::Result;
use crate::input::Input;

/// A value type other than string, by its type byte.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A list.
    List,
    /// A set.
    Set,
    /// A sorted set.
    SortedSet,
    /// A hash, with or without fields that expire.
    Hash,
    /// A stream.
    Stream,
    /// A module type, by its name.
    Module(String),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::List => f.write_str("list"),
            Kind::Set => f.write_str("set"),
            Kind::SortedSet => f.write_str("sorted set"),
            Kind::Hash => f.write_str("hash"),
            Kind::Stream => f.write_str("stream"),
            Kind::Module(name) => write!(f, "module type {name}"),
        }
    }
}

/// The numbering of types newer than Redis 7.2 in a file or payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Redis,
    Valkey,
}

impl Dialect {
    /// First version number of Valkey; lower ones belong to Redis.
    const VALKEY_SINCE: u32 = 80;

    pub(crate) fn of(version: u32) -> Dialect {
        if version < Dialect::VALKEY_SINCE { Dialect::Redis } else { Dialect::Valkey }
    }
}

/// Type number of a string.
pub(crate) const STRING: u8 = 0;

const LIST: u8 = 1;
const SET: u8 = 2;
const SORTED_SET: u8 = 3;
const HASH: u8 = 4;
const SORTED_SET_2: u8 = 5;
const MODULE_2: u8 = 7;
const HASH_ZIPMAP: u8 = 9;
const LIST_ZIPLIST: u8 = 10;
const SET_INTSET: u8 = 11;
const SORTED_SET_ZIPLIST: u8 = 12;
const HASH_ZIPLIST: u8 = 13;
const LIST_QUICKLIST: u8 = 14;
const STREAM: u8 = 15;
const HASH_LISTPACK: u8 = 16;
const SORTED_SET_LISTPACK: u8 = 17;
const LIST_QUICKLIST_2: u8 = 18;
const STREAM_2: u8 = 19;
const SET_LISTPACK: u8 = 20;
const STREAM_3: u8 = 21;

/// Type numbers from here on differ between Redis and Valkey.
const OWN_LEAST: u8 = 22;
/// From a release candidate of Redis 7.4: without the earliest expiry of the fields.
const HASH_METADATA_EARLY: u8 = 22;
const HASH_LISTPACK_EX_EARLY: u8 = 23;
const HASH_METADATA: u8 = 24;
const HASH_LISTPACK_EX: u8 = 25;
/// Redis 8.6: with producers.
const STREAM_4: u8 = 26;
/// Redis 8.8: with entries without a consumer.
const STREAM_5: u8 = 27;

/// Valkey 9: with an expiry after each field.
const HASH_OF_VALKEY: u8 = 22;

/// Length of a time in milliseconds.
const TIME_BYTES: u64 = 8;

/// Length of a stream entry id.
const STREAM_ID_BYTES: u64 = 16;

impl<R: Read> Input<R> {
    /// Skips a value that is not a string. Returns `None` if its type is unknown.
    pub(crate) fn skip_value(&mut self, of: u8, dialect: Dialect) -> Result<Option<Kind>> {
        if dialect == Dialect::Valkey && of >= OWN_LEAST {
            return self.skip_value_of_valkey(of);
        }
        let kind = match of {
            LIST | LIST_ZIPLIST | LIST_QUICKLIST | LIST_QUICKLIST_2 => Kind::List,
            SET | SET_INTSET | SET_LISTPACK => Kind::Set,
            SORTED_SET | SORTED_SET_2 | SORTED_SET_ZIPLIST | SORTED_SET_LISTPACK => Kind::SortedSet,
            STREAM | STREAM_2 | STREAM_3 | STREAM_4 | STREAM_5 => Kind::Stream,
            MODULE_2 => {
                let name = module_name(self.length()?);
                self.skip_module_value()?;
                return Ok(Some(Kind::Module(name)));
            }
            HASH | HASH_ZIPMAP | HASH_ZIPLIST | HASH_LISTPACK => Kind::Hash,
            HASH_METADATA_EARLY | HASH_LISTPACK_EX_EARLY | HASH_METADATA | HASH_LISTPACK_EX => Kind::Hash,
            _ => return Ok(None),
        };
        match of {
            LIST | SET | LIST_QUICKLIST => self.each(|input| input.skip_string())?,
            HASH => self.each(|input| input.skip_strings(2))?,
            SORTED_SET => self.each(|input| {
                input.skip_string()?;
                input.skip_decimal()
            })?,
            SORTED_SET_2 => self.each(|input| {
                input.skip_string()?;
                input.skip(8)
            })?,
            LIST_QUICKLIST_2 => self.each(|input| {
                input.length()?;
                input.skip_string()
            })?,
            HASH_METADATA_EARLY => self.skip_fields_with_expiry()?,
            HASH_METADATA => {
                self.skip(TIME_BYTES)?;
                self.skip_fields_with_expiry()?;
            }
            HASH_LISTPACK_EX => {
                self.skip(TIME_BYTES)?;
                self.skip_string()?;
            }
            STREAM | STREAM_2 | STREAM_3 | STREAM_4 | STREAM_5 => self.skip_stream(of)?,
            // These values are encoded as one string.
            _ => self.skip_string()?,
        }
        Ok(Some(kind))
    }

    fn skip_value_of_valkey(&mut self, of: u8) -> Result<Option<Kind>> {
        if of != HASH_OF_VALKEY {
            return Ok(None);
        }
        self.each(|input| {
            input.skip_strings(2)?;
            input.skip(TIME_BYTES)
        })?;
        Ok(Some(Kind::Hash))
    }

    /// Skips as many elements as a length says. Each takes at least a byte, so a wrong length ends with the input.
    pub(crate) fn each(&mut self, mut skip: impl FnMut(&mut Input<R>) -> Result<()>) -> Result<()> {
        for _ in 0..self.length()? {
            skip(self)?;
        }
        Ok(())
    }

    pub(crate) fn skip_strings(&mut self, count: usize) -> Result<()> {
        (0..count).try_for_each(|_| self.skip_string())
    }

    pub(crate) fn skip_lengths(&mut self, count: usize) -> Result<()> {
        (0..count).try_for_each(|_| self.length().map(drop))
    }

    /// Skips a decimal number with a length prefix; three prefixes stand for numbers without digits.
    fn skip_decimal(&mut self) -> Result<()> {
        match self.byte()? {
            253.. => Ok(()),
            digits => self.skip(digits.into()),
        }
    }

    fn skip_fields_with_expiry(&mut self) -> Result<()> {
        self.each(|input| {
            input.length()?;
            input.skip_strings(2)
        })
    }

    fn skip_stream(&mut self, of: u8) -> Result<()> {
        self.each(|input| input.skip_strings(2))?;
        // Number of entries and last id; then first id, greatest deleted id, and number of entries ever added.
        self.skip_lengths(if of == STREAM { 3 } else { 8 })?;
        self.each(|input| input.skip_group(of))?;
        if of >= STREAM_4 { self.skip_producers() } else { Ok(()) }
    }

    /// Skips the deduplication limits (duration and number), then each producer with its entries and their ids, then
    /// the totals.
    fn skip_producers(&mut self) -> Result<()> {
        self.skip_lengths(2)?;
        self.each(|input| {
            input.skip_string()?;
            input.each(|input| {
                input.skip_string()?;
                input.skip_lengths(2)
            })
        })?;
        self.skip_lengths(2)
    }

    fn skip_group(&mut self, of: u8) -> Result<()> {
        self.skip_string()?;
        self.skip_lengths(if of == STREAM { 2 } else { 3 })?;
        self.each(|input| {
            input.skip(STREAM_ID_BYTES + TIME_BYTES)?;
            input.length().map(drop)
        })?;
        self.each(|input| {
            input.skip_string()?;
            input.skip(if of >= STREAM_3 { 2 * TIME_BYTES } else { TIME_BYTES })?;
            input.each(|input| input.skip(STREAM_ID_BYTES))
        })?;
        if of >= STREAM_5 { self.each(|input| input.skip(STREAM_ID_BYTES)) } else { Ok(()) }
    }

    /// Skips a module value: pieces with a type prefix, up to an end marker.
    pub(crate) fn skip_module_value(&mut self) -> Result<()> {
        loop {
            match self.length()? {
                0 => return Ok(()),
                1 | 2 => drop(self.length()?),
                3 => self.skip(4)?,
                4 => self.skip(8)?,
                5 => self.skip_string()?,
                _ => return Err(self.corrupt("a module value has a piece of an unknown type")),
            }
        }
    }
}

/// Decodes nine characters of six bits each, above ten bits of version.
fn module_name(id: u64) -> String {
    const CHARACTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let character = |place: u32| char::from(CHARACTERS[(id >> (10 + 6 * place) & 0x3f) as usize]);
    (0..9).rev().map(character).collect()
}
