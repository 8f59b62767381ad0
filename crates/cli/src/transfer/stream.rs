//! RESP commands: one SET per record, and a SELECT before the first record of a database. `redis-cli
//! --pipe` and any server accept them unchanged.

use esker_engine::Bytes;

use super::input::Input;
use super::record::{LeftOut, Record, Source};
use crate::client::write_command;
use crate::terminal::Failure;

/// Limit of words in a SET: the verb, key, value, an option and a number.
const WORDS_MAX: u64 = 5;

/// Longest string in Redis, in bytes.
const WORD_BYTES_MAX: u64 = 512 << 20;

/// Appends a record. `database` is the selected database.
pub(super) fn write(record: &Record, database: &mut u8, text: &mut Vec<u8>) {
    if *database != record.database {
        *database = record.database;
        write_command(&[b"SELECT", database.to_string().as_bytes()], text);
    }
    let expires = record.expires_at_ms.map(|at| at.to_string());
    let words: &[&[u8]] = match &expires {
        Some(at) => &[b"SET", &record.key, &record.value, b"PXAT", at.as_bytes()],
        None => &[b"SET", &record.key, &record.value],
    };
    write_command(words, text);
}

/// Reads records from such a file.
pub(super) struct Reader {
    input: Input,
    /// The selected database.
    database: u8,
}

impl Reader {
    pub(super) fn new(input: Input) -> Reader {
        Reader { input, database: 0 }
    }

    /// Parses the number after a sign, up to a limit.
    fn number(&self, line: &[u8], sign: u8, most: u64) -> Result<u64, Failure> {
        let digits = line.strip_prefix(&[sign]).and_then(|digits| std::str::from_utf8(digits).ok());
        let number = digits.and_then(|digits| digits.parse().ok()).filter(|&number| number <= most);
        number.ok_or_else(|| {
            let sign = char::from(sign);
            self.input.wrong(&format!("expected '{sign}' and a number of at most {most}"))
        })
    }

    fn command(&mut self) -> Result<Option<Vec<Bytes>>, Failure> {
        let Some(line) = self.input.line()? else { return Ok(None) };
        let count = self.number(&line, b'*', WORDS_MAX)?;
        let mut words = Vec::new();
        for _ in 0..count {
            let line = self.input.line()?.ok_or_else(|| self.input.ends_early())?;
            let bytes = self.number(&line, b'$', WORD_BYTES_MAX)?;
            words.push(self.input.bytes(bytes)?.into());
            if self.input.bytes(2)? != b"\r\n" {
                return Err(self.input.wrong("the previous word is longer than its length says"));
            }
        }
        Ok(Some(words))
    }
}

impl Source for Reader {
    fn next(&mut self, _: &mut LeftOut) -> Result<Option<Record>, Failure> {
        let is = |word: &Bytes, name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        let words = loop {
            let Some(words) = self.command()? else { return Ok(None) };
            match &words[..] {
                [verb, number] if is(verb, "select") => {
                    let number = std::str::from_utf8(number).ok().and_then(|number| number.parse().ok());
                    self.database = number.ok_or_else(|| self.input.wrong("SELECT needs a number"))?;
                }
                _ => break words,
            }
        };
        let (record, expires) = match &words[..] {
            [verb, key, value] if is(verb, "set") => ((key, value), None),
            [verb, key, value, word, at] if is(verb, "set") && is(word, "pxat") => {
                let at = std::str::from_utf8(at).ok().and_then(|at| at.parse().ok());
                ((key, value), Some(at.ok_or_else(|| self.input.wrong("PXAT needs a number"))?))
            }
            _ => {
                return Err(self
                    .input
                    .wrong("only SET key value, SET key value PXAT ms and SELECT can be imported"));
            }
        };
        let (key, value) = record;
        let (key, value, database) = (key.clone(), value.clone(), self.database);
        Ok(Some(Record { database, key, value, expires_at_ms: expires }))
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (self.input.passed, self.input.total)
    }
}
