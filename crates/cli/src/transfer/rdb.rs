//! The strings of an RDB file.

use std::io::Read;
use std::path::Path;

use esker_engine::Store;
use esker_rdb::{Entry, Error, Limits, Reader, Value};

use super::input::Input;
use super::record::{KEY_TOO_LONG, LeftOut, Record, Source, VALUE_TOO_LONG};
use crate::terminal::Failure;

/// Longer keys are left out: Esker takes none of them. Redis has no longer values.
const LIMITS: Limits = Limits { key_bytes_max: 65_536, value_bytes_max: 512 << 20 };

pub(super) struct Rdb<R> {
    reader: Reader<R>,
    name: String,
    total: Option<u64>,
    /// The only one that is wanted.
    database: Option<u64>,
    functions: u64,
}

pub(super) fn open(path: &Path, database: Option<u64>) -> Result<Rdb<impl Read + use<>>, Failure> {
    let input = Input::open(path)?;
    let (name, total) = (input.name.clone(), input.total);
    let reader = Reader::new(input.into_reader(), LIMITS).map_err(|error| match error {
        Error::NotRdb => Failure::Usage(format!("{name}: {error}")),
        other => failed(&name, &other),
    })?;
    Ok(Rdb { reader, name, total, database, functions: 0 })
}

fn failed(name: &str, error: &Error) -> Failure {
    Failure::Failed(format!("{name}: {error}"))
}

impl<R: Read> Source for Rdb<R> {
    fn next(&mut self, left_out: &mut LeftOut) -> Result<Option<Record>, Failure> {
        while let Some(entry) = self.reader.read().map_err(|error| failed(&self.name, &error))? {
            let Entry { database, key, value, expires_at_ms } = entry;
            let known = u8::try_from(database).ok().filter(|number| *number < Store::DATABASES);
            let wanted = self.database.is_none_or(|wanted| wanted == database);
            let Some(known) = known.filter(|_| wanted) else {
                left_out.add(format!("database {database}"));
                continue;
            };
            match value {
                Value::String(value) => {
                    let (key, value) = (key.into(), value.into());
                    return Ok(Some(Record { database: known, key, value, expires_at_ms }));
                }
                Value::Other(kind) => left_out.add(kind.to_string()),
                Value::TooLong { .. } => left_out.add(VALUE_TOO_LONG),
                Value::KeyTooLong { .. } => left_out.add(KEY_TOO_LONG),
            }
        }
        left_out.add_many("library of functions", self.reader.functions() - self.functions);
        self.functions = self.reader.functions();
        Ok(None)
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (self.reader.offset(), self.total)
    }
}
