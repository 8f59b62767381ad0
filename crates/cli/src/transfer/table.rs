//! CSV with four columns: key, value, expiry in milliseconds since the Unix epoch or empty, and the
//! number of the database. The names of the columns give the encoding of bytes:
//! `key_base64,value_base64,expires_at_ms,database` or `key_hex,value_hex,expires_at_ms,database`. In a
//! file without the last column all keys are in database 0.

use base64ct::{Base64, Encoding as _};
use clap::ValueEnum;
use esker_engine::Bytes;

use super::input::Input;
use super::record::{LeftOut, Record, Source};
use crate::terminal::Failure;

/// How bytes are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Encoding {
    /// Four characters for three bytes.
    Base64,
    /// Two digits for each byte.
    Hex,
}

const ENCODINGS: [(Encoding, &str); 2] = [
    (Encoding::Base64, "key_base64,value_base64,expires_at_ms"),
    (Encoding::Hex, "key_hex,value_hex,expires_at_ms"),
];

/// The last column, which a file may lack.
const DATABASE: &str = ",database";

impl Encoding {
    fn encode(self, bytes: &[u8], text: &mut Vec<u8>) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        match self {
            Encoding::Base64 => text.extend_from_slice(Base64::encode_string(bytes).as_bytes()),
            Encoding::Hex => {
                let digits = |byte: &u8| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
                text.extend(bytes.iter().flat_map(digits));
            }
        }
    }

    fn decode(self, text: &str) -> Option<Bytes> {
        if self == Encoding::Base64 {
            return Base64::decode_vec(text).ok().map(Bytes::from);
        }
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let digit = |digit: u8| char::from(digit).to_digit(16).map(|digit| digit as u8);
        let byte = |&[high, low]: &[u8; 2]| Some(digit(high)? << 4 | digit(low)?);
        let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
        bytes.filter(|_| rest.is_empty()).map(Bytes::from)
    }
}

pub(super) fn write_head(encoding: Encoding, text: &mut Vec<u8>) {
    let (_, head) = ENCODINGS.iter().find(|(of, _)| *of == encoding).expect("each has one");
    text.extend_from_slice(head.as_bytes());
    text.extend_from_slice(DATABASE.as_bytes());
    text.push(b'\n');
}

pub(super) fn write(record: &Record, encoding: Encoding, text: &mut Vec<u8>) {
    encoding.encode(&record.key, text);
    text.push(b',');
    encoding.encode(&record.value, text);
    text.push(b',');
    text.extend(record.expires_at_ms.map(|at| at.to_string()).unwrap_or_default().bytes());
    text.extend_from_slice(format!(",{}", record.database).as_bytes());
    text.push(b'\n');
}

/// Reads records from CSV.
pub(super) struct Reader {
    input: Input,
    encoding: Encoding,
    /// True if the file has the database column.
    has_database: bool,
}

impl Reader {
    pub(super) fn new(mut input: Input) -> Result<Reader, Failure> {
        let head = input.line()?.ok_or_else(|| input.ends_early())?;
        let short = head.strip_suffix(DATABASE.as_bytes());
        let has_database = short.is_some();
        let known = ENCODINGS.iter().find(|(_, known)| known.as_bytes() == short.unwrap_or(&head));
        let encoding = known.map(|(encoding, _)| *encoding).ok_or_else(|| {
            let [(_, one), (_, other)] = ENCODINGS;
            input
                .wrong(&format!("the columns have to be {one} or {other}, and {DATABASE} behind them or not"))
        })?;
        Ok(Reader { input, encoding, has_database })
    }
}

impl Source for Reader {
    fn next(&mut self, _: &mut LeftOut) -> Result<Option<Record>, Failure> {
        let Some(line) = self.input.line()? else { return Ok(None) };
        let line = String::from_utf8_lossy(&line);
        let mut fields = line.split(',').map(|field| field.trim_matches('"'));
        let mut next = || fields.next();
        let (Some(key), Some(value), Some(expires)) = (next(), next(), next()) else {
            return Err(self.input.wrong("it has other columns than the first line"));
        };
        let (database, None) = (if self.has_database { next() } else { Some("0") }, next()) else {
            return Err(self.input.wrong("it has other columns than the first line"));
        };
        let database = database.and_then(|number| number.parse().ok());
        let database = database.ok_or_else(|| self.input.wrong("the database is not a number"))?;
        let wrong = |name| self.input.wrong(&format!("the {name} is not encoded as the column's name says"));
        let key = self.encoding.decode(key).ok_or_else(|| wrong("key"))?;
        let value = self.encoding.decode(value).ok_or_else(|| wrong("value"))?;
        let expires_at_ms = match expires {
            "" => None,
            number => Some(number.parse().map_err(|_| wrong("time of expiry"))?),
        };
        Ok(Some(Record { database, key, value, expires_at_ms }))
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (self.input.passed, self.input.total)
    }
}
