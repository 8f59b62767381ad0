//! Reads the commands of an append-only file: RESP arrays, and lines of annotations that begin with `#`.

use std::io::{BufRead, ErrorKind, Read};

use esker_engine::Bytes;

use crate::terminal::Failure;

/// Limit of words per command, as in redis-server.
const WORDS_MAX: u64 = 1 << 20;

/// Limit of a word in bytes, the `proto-max-bulk-len` of redis-server.
const WORD_BYTES_MAX: u64 = 512 << 20;

/// Limit of a line in bytes: a sign, a number and the line end, or an annotation.
const LINE_BYTES_MAX: u64 = 1 << 10;

/// The next item of a file.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::transfer) enum Step {
    /// A command, and the offset of its first byte.
    Command { at: u64, words: Vec<Bytes> },
    /// The file ends after a command.
    End,
    /// The file ends within the command that begins at this offset.
    Cut { at: u64 },
}

/// Reads the commands of one file.
pub(in crate::transfer) struct Commands<R> {
    reader: R,
    name: String,
    /// The offset of the next byte in the file.
    offset: u64,
}

/// The reason why a command was not read to its end.
enum Stop {
    Cut,
    Failed(Failure),
}

impl<R: BufRead> Commands<R> {
    /// Reads commands from `offset` of the file `name` on.
    pub(in crate::transfer) fn new(reader: R, name: String, offset: u64) -> Commands<R> {
        Commands { reader, name, offset }
    }

    pub(in crate::transfer) fn name(&self) -> &str {
        &self.name
    }

    pub(in crate::transfer) fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads the next command.
    ///
    /// # Errors
    /// If the file cannot be read, or the bytes are not a command. The message names the offset.
    pub(in crate::transfer) fn next(&mut self) -> Result<Step, Failure> {
        loop {
            let at = self.offset;
            let line = match self.line(at) {
                Ok(Some(line)) => line,
                Ok(None) => return Ok(Step::End),
                Err(Stop::Cut) => return Ok(Step::Cut { at }),
                Err(Stop::Failed(failure)) => return Err(failure),
            };
            if line.starts_with(b"#") {
                continue;
            }
            return match self.words(&line, at) {
                Ok(words) => Ok(Step::Command { at, words }),
                Err(Stop::Cut) => Ok(Step::Cut { at }),
                Err(Stop::Failed(failure)) => Err(failure),
            };
        }
    }

    fn words(&mut self, line: &[u8], at: u64) -> Result<Vec<Bytes>, Stop> {
        let count = self.number(line, b'*', WORDS_MAX, at)?;
        if count == 0 {
            return Err(self.no_command(at, "a command has at least one word"));
        }
        let mut words = Vec::new();
        for _ in 0..count {
            let at = self.offset;
            let line = self.line(at)?.ok_or(Stop::Cut)?;
            let bytes = self.number(&line, b'$', WORD_BYTES_MAX, at)?;
            let mut word = self.bytes(bytes + 2)?;
            if !word.ends_with(b"\r\n") {
                return Err(self.no_command(at, "a word is longer than its length says"));
            }
            word.truncate(bytes as usize);
            words.push(word.into());
        }
        Ok(words)
    }

    /// Parses the number after a sign, up to a limit.
    fn number(&self, line: &[u8], sign: u8, most: u64, at: u64) -> Result<u64, Stop> {
        let digits = line.strip_prefix(&[sign]).and_then(|digits| std::str::from_utf8(digits).ok());
        let number = digits.and_then(|digits| digits.parse().ok()).filter(|number| *number <= most);
        number.ok_or_else(|| {
            let sign = char::from(sign);
            self.no_command(at, &format!("expected '{sign}' and a number of at most {most}"))
        })
    }

    /// Reads a line without its end; `None` at the end of the file.
    fn line(&mut self, at: u64) -> Result<Option<Vec<u8>>, Stop> {
        let mut line = Vec::new();
        let read = self.reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        let read = read.map_err(|error| self.unreadable(&error))?;
        self.offset += read as u64;
        match read as u64 {
            0 => return Ok(None),
            _ if line.ends_with(b"\r\n") => line.truncate(line.len() - 2),
            LINE_BYTES_MAX => return Err(self.no_command(at, "a line is longer than 1024 bytes")),
            _ if line.ends_with(b"\n") => return Err(self.no_command(at, "a line does not end in CR LF")),
            _ => return Err(Stop::Cut),
        }
        Ok(Some(line))
    }

    /// Reads `count` bytes. Memory grows with the bytes that arrive, not with the length that the file
    /// claims.
    fn bytes(&mut self, count: u64) -> Result<Vec<u8>, Stop> {
        let mut bytes = Vec::new();
        let read = self.reader.by_ref().take(count).read_to_end(&mut bytes);
        let read = read.map_err(|error| self.unreadable(&error))? as u64;
        self.offset += read;
        if read < count { Err(Stop::Cut) } else { Ok(bytes) }
    }

    fn unreadable(&self, error: &std::io::Error) -> Stop {
        match error.kind() {
            ErrorKind::UnexpectedEof => Stop::Cut,
            _ => Stop::Failed(Failure::Failed(format!("cannot read {}: {error}", self.name))),
        }
    }

    fn no_command(&self, at: u64, what: &str) -> Stop {
        Stop::Failed(Failure::Failed(format!(
            "{}, byte {at}: the bytes are no command of an append-only file: {what}; check the file with redis-check-aof",
            self.name
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(text: &[u8]) -> Vec<Result<Step, String>> {
        let mut commands = Commands::new(text, "file".to_owned(), 100);
        let mut steps = Vec::new();
        loop {
            let step = commands.next().map_err(|failure| format!("{failure:?}"));
            let ends = !matches!(step, Ok(Step::Command { .. }));
            steps.push(step);
            if ends {
                return steps;
            }
        }
    }

    fn command(at: u64, words: &[&'static str]) -> Result<Step, String> {
        Ok(Step::Command {
            at,
            words: words.iter().map(|word| Bytes::from_static(word.as_bytes())).collect(),
        })
    }

    #[test]
    fn commands_and_annotations_are_read_with_offsets() {
        let text = b"#TS:1700000000\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n#x\r\n*1\r\n$4\r\nEXEC\r\n";
        assert_eq!(steps(text), [command(116, &["SELECT", "0"]), command(143, &["EXEC"]), Ok(Step::End)]);
    }

    #[test]
    fn file_cut_within_a_command_names_its_offset() {
        let text = b"*1\r\n$4\r\nEXEC\r\n*2\r\n$3\r\nDEL\r\n$1\r\na\r\n";
        for end in 15..text.len() {
            let expected = match end {
                14 => Ok(Step::End),
                _ => Ok(Step::Cut { at: 114 }),
            };
            assert_eq!(steps(&text[..end]), [command(100, &["EXEC"]), expected], "{end}");
        }
    }

    #[test]
    fn bytes_that_are_no_command_are_refused_with_their_offset() {
        for (text, expected) in [
            (&b"hello\r\n"[..], "byte 100: the bytes are no command"),
            (b"*0\r\n", "at least one word"),
            (b"*1\n", "CR LF"),
            (b"*1\r\n$2\r\nabc\r\n", "byte 104"),
            (b"*1\r\n$99999999999\r\n", "'$' and a number of at most 536870912"),
            (&[b'*'; 2000], "longer than 1024"),
        ] {
            let error = steps(text).pop().expect("a step").expect_err("the bytes are no command");
            assert!(error.contains(expected) && error.contains("redis-check-aof"), "{error}");
        }
    }
}
