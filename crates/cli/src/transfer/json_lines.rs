//! JSON Lines: `{"key":"k","value":"v","expires_at_ms":1767225600000}`. Bytes that are not UTF-8 are in
//! base64, as `key_base64` or `value_base64`. A record of a database other than 0 also has its number:
//! `"database":3`.

use std::borrow::Cow;

use base64ct::{Base64, Encoding};
use esker_engine::Bytes;
use serde::{Deserialize, Serialize};

use super::input::Input;
use super::record::{LeftOut, Record, Source};
use crate::terminal::Failure;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at_ms: Option<u64>,
    /// `None` means database 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    database: Option<u8>,
}

pub(super) fn write(record: &Record, text: &mut Vec<u8>) {
    let [(key, key_base64), (value, value_base64)] =
        [&record.key, &record.value].map(|bytes| match std::str::from_utf8(bytes) {
            Ok(text) => (Some(Cow::Borrowed(text)), None),
            Err(_) => (None, Some(Cow::Owned(Base64::encode_string(bytes)))),
        });
    let database = Some(record.database).filter(|number| *number > 0);
    let line = Line { key, key_base64, value, value_base64, expires_at_ms: record.expires_at_ms, database };
    serde_json::to_writer(&mut *text, &line).expect("it has strings and a number");
    text.push(b'\n');
}

/// Reads records from JSON Lines.
pub(super) struct Reader(Input);

impl Reader {
    pub(super) fn new(input: Input) -> Reader {
        Reader(input)
    }
}

impl Source for Reader {
    fn next(&mut self, _: &mut LeftOut) -> Result<Option<Record>, Failure> {
        let line = loop {
            match self.0.line()? {
                Some(line) if line.is_empty() => {}
                Some(line) => break line,
                None => return Ok(None),
            }
        };
        let line: Line<'_> =
            serde_json::from_slice(&line).map_err(|error| self.0.wrong(&error.to_string()))?;
        let bytes = |name, text: Option<Cow<'_, str>>, base64: Option<Cow<'_, str>>| match (text, base64) {
            (Some(text), None) => Ok(Bytes::from(text.into_owned())),
            (None, Some(text)) => Base64::decode_vec(&text)
                .map(Bytes::from)
                .map_err(|_| self.0.wrong(&format!("{name}_base64 is not base64"))),
            _ => Err(self.0.wrong(&format!("it needs either {name} or {name}_base64"))),
        };
        let key = bytes("key", line.key, line.key_base64)?;
        let value = bytes("value", line.value, line.value_base64)?;
        let database = line.database.unwrap_or(0);
        Ok(Some(Record { database, key, value, expires_at_ms: line.expires_at_ms }))
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (self.0.passed, self.0.total)
    }
}
