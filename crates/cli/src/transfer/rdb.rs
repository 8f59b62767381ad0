//! The strings of an RDB file.

use std::io::{BufReader, Read};

use esker_engine::Store;
use esker_rdb::{Entry, Error, Limits, Reader, Value};

use super::input::Input;
use super::record::{KEY_TOO_LONG, LeftOut, Record, VALUE_TOO_LONG, no_database};
use crate::terminal::Failure;

/// Limits of entries: Esker accepts no longer keys, and Redis has no longer values.
const LIMITS: Limits = Limits { key_bytes_max: 65_536, value_bytes_max: 512 << 20 };

/// An RDB file being read.
pub(super) struct Rdb {
    reader: Reader<BufReader<Box<dyn Read>>>,
    name: String,
    total: Option<u64>,
    /// The only database to read, or `None` for all.
    database: Option<u64>,
    functions: u64,
}

fn failed(name: &str, error: &Error) -> Failure {
    Failure::Failed(format!("{name}: {error}"))
}

impl Rdb {
    /// Reads the head of a file.
    ///
    /// # Errors
    /// If the file is not an RDB file or cannot be read.
    pub(super) fn new(input: Input, database: Option<u64>) -> Result<Rdb, Failure> {
        let (name, total) = (input.name.clone(), input.total);
        let reader = Reader::new(input.into_reader(), LIMITS).map_err(|error| match error {
            Error::NotRdb => {
                Failure::Usage(format!("{name}: {error}, and is not an append-only file either"))
            }
            other => failed(&name, &other),
        })?;
        Ok(Rdb { reader, name, total, database, functions: 0 })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns true if commands follow the snapshot. Valid only at the end of the snapshot.
    pub(super) fn is_preamble(&self) -> bool {
        self.reader.is_preamble()
    }

    /// Returns the bytes after the snapshot.
    pub(super) fn into_rest(self) -> BufReader<Box<dyn Read>> {
        self.reader.into_inner()
    }

    /// Returns the next string; `None` after the last entry, when the checksum has been compared.
    ///
    /// # Errors
    /// The defect of the file, and its offset.
    pub(super) fn next(&mut self, left_out: &mut LeftOut) -> Result<Option<Record>, Failure> {
        while let Some(entry) = self.reader.read().map_err(|error| failed(&self.name, &error))? {
            let Entry { database, key, value, expires_at_ms } = entry;
            if self.database.is_some_and(|wanted| wanted != database) {
                left_out.add(format!("database {database}"));
                continue;
            }
            let known = u8::try_from(database).ok().filter(|number| *number < Store::DATABASES);
            match (value, known) {
                (Value::String(value), Some(database)) => {
                    let (key, value) = (key.into(), value.into());
                    return Ok(Some(Record { database, key, value, expires_at_ms }));
                }
                (Value::Other(kind), _) => left_out.add(kind.to_string()),
                (_, None) => left_out.miss(no_database(database)),
                (Value::TooLong { .. }, _) => left_out.miss(VALUE_TOO_LONG),
                (Value::KeyTooLong { .. }, _) => left_out.miss(KEY_TOO_LONG),
            }
        }
        left_out.add_many("library of functions", self.reader.functions() - self.functions);
        self.functions = self.reader.functions();
        Ok(None)
    }

    /// Returns the bytes read, and the bytes of the file if known.
    pub(super) fn progress(&self) -> (u64, Option<u64>) {
        (self.reader.offset(), self.total)
    }
}
