//! Parses bytes into commands.
//!
//! A client sends a command as an array of bulk strings, `*2\r\n$3\r\nGET\r\n$1\r\nk\r\n`, or inline as a line of
//! words, `GET k\r\n`. [`Parser::parse`] takes all complete commands at the front of the input. It keeps its position
//! in an incomplete command, so that no byte is parsed twice however the input is split.
//!
//! Invariants:
//! - Arguments are positions in the input, never copies. A quoted inline argument is unescaped in place, because the
//!   unescaped form is never longer than the quoted one.
//! - Nothing is allocated for a length that a client declares; memory use follows the bytes that arrived.
//! - The resulting commands do not depend on how the bytes were split.
//! - A command that exceeds its length limit, or has an argument that does, is reported as soon as this is known. The
//!   rest of it is skipped as it arrives, because the client may read no answer before it has sent all of it.

use self::inline::split_words;
use super::commands::{Commands, Span};
use super::number::parse_integer;
use crate::Limits;

mod inline;

/// The reason why parsing stopped, as the text of an error reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unparsed {
    /// The bytes are not RESP. The connection ends after the error is sent.
    Broken(String),
    /// The next command is too long; the parser skips the rest of it and continues after it.
    TooLong(String),
}

/// Parses input into commands, and keeps its position between calls.
pub(crate) struct Parser {
    limits: Limits,
    /// Bytes of the current command that are parsed, from its first byte.
    position: usize,
    /// Bytes after `position` that are known to contain no line end.
    searched: usize,
    /// Arguments of the current array that have not arrived.
    missing: usize,
    /// Length of the argument whose bytes are next.
    bulk: Option<usize>,
    /// Set while the rest of a refused command is skipped.
    passing: Option<Passing>,
    /// Arguments of the current command, from its first byte.
    arguments: Vec<Span>,
    /// Arguments that one call of [`parse`](Self::parse) parses at most, and those that the current call may still parse.
    pause_after: usize,
    left: usize,
}

/// The rest of a refused command.
struct Passing {
    /// Bytes of the current argument, with its line end, that have not arrived.
    bytes: usize,
    /// Limit of the bytes of further arguments that may be skipped.
    most: usize,
}

enum Progress {
    Incomplete,
    Command,
    /// A blank line or an empty array: nothing to run.
    Nothing,
}

impl Parser {
    pub(crate) fn new(limits: &Limits) -> Parser {
        let limits = limits.clone();
        Parser {
            limits,
            position: 0,
            searched: 0,
            missing: 0,
            bulk: None,
            passing: None,
            arguments: Vec::new(),
            pause_after: usize::MAX,
            left: usize::MAX,
        }
    }

    /// Sets the maximum number of arguments that one call of [`parse`](Self::parse) parses.
    pub(crate) fn pause_after(&mut self, arguments: usize) {
        self.pause_after = arguments;
    }

    /// Returns true if the last call of [`parse`](Self::parse) ended because of its number of arguments. The next call continues,
    /// also with the same input.
    pub(crate) fn is_paused(&self) -> bool {
        self.left == 0
    }

    /// Sets the limits from the next byte on.
    pub(crate) fn set_limits(&mut self, limits: &Limits) {
        self.limits = limits.clone();
    }

    /// Returns true if all input so far was complete commands.
    pub(crate) fn is_between_commands(&self) -> bool {
        self.position == 0 && self.searched == 0 && !self.is_passing()
    }

    /// Returns true if the rest of a refused command has not arrived.
    pub(crate) fn is_passing(&self) -> bool {
        self.passing.is_some()
    }

    /// Returns the missing bytes of the argument whose length was declared last, or `None` if none are missing.
    pub(crate) fn missing_bytes(&self, input_len: usize) -> Option<usize> {
        let end = self.position + self.bulk? + 2;
        end.checked_sub(input_len).filter(|&missing| missing > 0)
    }

    /// Returns the bytes of memory for the positions of an incomplete command.
    pub(crate) fn held_bytes(&self) -> usize {
        self.arguments.capacity() * size_of::<Span>()
    }

    /// Releases unused memory.
    pub(crate) fn trim(&mut self) {
        self.arguments.shrink_to_fit();
    }

    /// Appends the complete commands at the front of `input` to `commands` until it has `most` commands. Returns the
    /// number of bytes consumed; the caller must remove them from the input of the next call. The commands before an
    /// error are valid. After `Broken`, the parser must not be called again.
    pub(crate) fn parse(
        &mut self,
        input: &mut [u8],
        commands: &mut Commands,
        most: usize,
    ) -> (usize, Result<(), Unparsed>) {
        let mut base = 0;
        self.left = self.pause_after;
        while base < input.len() && commands.len() < most && self.left > 0 {
            match self.advance(&mut input[base..]) {
                // Skipped bytes are consumed at once.
                Ok(Progress::Incomplete) if self.is_passing() && self.position > 0 => {}
                Ok(Progress::Incomplete) => break,
                Ok(Progress::Command) => commands.push(base, &self.arguments),
                Ok(Progress::Nothing) => {}
                Err(why @ Unparsed::Broken(_)) => return (base, Err(why)),
                Err(why) => {
                    base += std::mem::take(&mut self.position);
                    self.arguments.clear();
                    return (base, Err(why));
                }
            }
            base += self.position;
            self.position = 0;
            self.arguments.clear();
            // Blank lines and words of a line take time, too.
            self.left = self.left.saturating_sub(1);
        }
        (base, Ok(()))
    }

    fn advance(&mut self, input: &mut [u8]) -> Result<Progress, Unparsed> {
        if self.is_passing() {
            return self.pass(input);
        }
        if self.position == 0 {
            if input[0] != b'*' {
                return self.inline(input);
            }
            let Some(count) = self.header(input, "too big mbulk count string", "invalid multibulk length")?
            else {
                return Ok(Progress::Incomplete);
            };
            if count > self.limits.arguments_max as i64 {
                return Err(error("invalid multibulk length"));
            }
            if count <= 0 {
                return Ok(Progress::Nothing);
            }
            self.missing = count as usize;
        }
        while self.missing > 0 {
            if self.left == 0 || !(self.short_argument(input) || self.argument(input)?) {
                return Ok(Progress::Incomplete);
            }
            self.missing -= 1;
            self.left -= 1;
        }
        Ok(Progress::Command)
    }

    /// Skips the bytes of a refused command that have arrived.
    fn pass(&mut self, input: &[u8]) -> Result<Progress, Unparsed> {
        while let Some(passing) = &mut self.passing {
            let passed = passing.bytes.min(input.len() - self.position);
            passing.bytes -= passed;
            self.position += passed;
            if passing.bytes > 0 {
                return Ok(Progress::Incomplete);
            }
            if self.missing == 0 {
                self.passing = None;
                return Ok(Progress::Nothing);
            }
            let Some(bytes) = self.bulk_header(input)? else { return Ok(Progress::Incomplete) };
            self.refuse(bytes)?;
        }
        Ok(Progress::Nothing)
    }

    /// Skips the argument whose header was read last. Returns an error if the skipped bytes exceed
    /// `refused_bytes_max`.
    fn refuse(&mut self, bytes: usize) -> Result<(), Unparsed> {
        let most = self.passing.as_ref().map_or(self.limits.refused_bytes_max, |passing| passing.most);
        let most = most.checked_sub(bytes).ok_or_else(|| error("invalid bulk length"))?;
        self.missing -= 1;
        self.passing = Some(Passing { bytes: bytes + 2, most });
        Ok(())
    }

    /// Returns the length in the header of an argument, or `None` if the header is incomplete.
    fn bulk_header(&mut self, input: &[u8]) -> Result<Option<usize>, Unparsed> {
        match input.get(self.position) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(&other) => return Err(error(&format!("expected '$', got '{}'", printable(other)))),
        }
        let Some(bytes) = self.header(input, "too big bulk count string", "invalid bulk length")? else {
            return Ok(None);
        };
        usize::try_from(bytes).map(Some).map_err(|_| error("invalid bulk length"))
    }

    /// Parses one complete bulk string of less than 1,000 bytes, the usual case. Returns false without a change for others, which
    /// are left to [`argument`](Self::argument), and so are all errors.
    #[inline]
    fn short_argument(&mut self, input: &[u8]) -> bool {
        let Some([b'$', rest @ ..]) = input.get(self.position..) else { return false };
        let Some((bytes, header_bytes)) = short_number(rest) else { return false };
        let start = self.position + 1 + header_bytes;
        let end = start + bytes as usize;
        let is_complete = input.get(end..end + 2) == Some(b"\r\n");
        let is_long = end > self.limits.command_bytes_max || bytes as usize > self.limits.bulk_bytes_max;
        if self.bulk.is_some() || !is_complete || is_long {
            return false;
        }
        self.searched = 0;
        self.arguments.push(Span { start: start as u32, end: end as u32 });
        self.position = end + 2;
        true
    }

    /// Parses one bulk string of an array. Returns false if it is incomplete.
    fn argument(&mut self, input: &[u8]) -> Result<bool, Unparsed> {
        let bytes = match self.bulk {
            Some(bytes) => bytes,
            None => {
                let Some(bytes) = self.bulk_header(input)? else { return Ok(false) };
                if let Some(why) = self.too_long(bytes) {
                    let limit = self.limits.command_bytes_max;
                    let is_alone = bytes > self.limits.bulk_bytes_max;
                    let broken = |_| match is_alone {
                        true => error("invalid bulk length"),
                        false => error(&format!("command of more than {limit} bytes")),
                    };
                    self.refuse(bytes).map_err(broken)?;
                    return Err(Unparsed::TooLong(why));
                }
                self.bulk = Some(bytes);
                bytes
            }
        };
        let start = self.position;
        let end = start + bytes;
        if input.len() < end + 2 {
            return Ok(false);
        }
        if &input[end..end + 2] != b"\r\n" {
            return Err(error("bulk string is not followed by CRLF"));
        }
        self.arguments.push(Span { start: start as u32, end: end as u32 });
        self.position = end + 2;
        self.bulk = None;
        Ok(true)
    }

    /// Returns an error text if an argument of `bytes` bytes is too long at this position.
    fn too_long(&self, bytes: usize) -> Option<String> {
        let Limits { bulk_bytes_max, command_bytes_max, .. } = self.limits;
        const MOST: &str = "the most that there may be";
        if bytes > bulk_bytes_max {
            let what = format!("an argument of {bytes} bytes is longer than {bulk_bytes_max}");
            return Some(format!("ERR {what}, {MOST} (argument-limit)"));
        }
        let is_long = self.position.saturating_add(bytes) > command_bytes_max;
        is_long.then(|| format!("ERR a command is longer than {command_bytes_max} bytes, {MOST}"))
    }

    /// Returns the number in a header line such as `*3\r\n`, or `None` if the line is incomplete.
    #[inline]
    fn header(&mut self, input: &[u8], long: &str, wrong: &str) -> Result<Option<i64>, Unparsed> {
        let start = self.position;
        if let Some((number, bytes)) = short_number(&input[start + 1..]) {
            self.searched = 0;
            self.position = start + 1 + bytes;
            return Ok(Some(number));
        }
        self.unusual_header(input, long, wrong)
    }

    /// Like [`header`](Self::header), for longer numbers, incomplete lines and errors.
    #[inline(never)]
    fn unusual_header(&mut self, input: &[u8], long: &str, wrong: &str) -> Result<Option<i64>, Unparsed> {
        let start = self.position;
        let Some(end) = self.line_end(input, long)? else { return Ok(None) };
        let line = &input[start + 1..end];
        let number = line.strip_suffix(b"\r").and_then(parse_integer);
        number.map(Some).ok_or_else(|| error(wrong))
    }

    /// Moves behind the next line end and returns its position, or `None` if it has not arrived.
    fn line_end(&mut self, input: &[u8], long: &str) -> Result<Option<usize>, Unparsed> {
        let start = self.position;
        let limit = start + self.limits.inline_bytes_max;
        let found = memchr::memchr(b'\n', &input[start + self.searched..]);
        let found = found.map(|offset| start + self.searched + offset);
        match found {
            Some(end) if end <= limit => {
                self.searched = 0;
                self.position = end + 1;
                Ok(Some(end))
            }
            None if input.len() <= limit => {
                self.searched = input.len() - start;
                Ok(None)
            }
            _ => Err(error(long)),
        }
    }

    fn inline(&mut self, input: &mut [u8]) -> Result<Progress, Unparsed> {
        let Some(end) = self.line_end(input, "too big inline request")? else {
            return Ok(Progress::Incomplete);
        };
        let end = if end > 0 && input[end - 1] == b'\r' { end - 1 } else { end };
        split_words(&mut input[..end], &mut self.arguments)?;
        Ok(if self.arguments.is_empty() { Progress::Nothing } else { Progress::Command })
    }
}

/// Returns the number in a line of one to three digits, the usual case, and the line's length.
#[inline]
fn short_number(input: &[u8]) -> Option<(i64, usize)> {
    let number = |digits: &[u8]| digits.iter().fold(0, |all, digit| all * 10 + i64::from(digit - b'0'));
    // A leading zero must be the only digit.
    match input {
        [b'0'..=b'9', b'\r', b'\n', ..] => Some((number(&input[..1]), 3)),
        [b'1'..=b'9', b'0'..=b'9', b'\r', b'\n', ..] => Some((number(&input[..2]), 4)),
        [b'1'..=b'9', b'0'..=b'9', b'0'..=b'9', b'\r', b'\n', ..] => Some((number(&input[..3]), 5)),
        _ => None,
    }
}

fn printable(byte: u8) -> char {
    match byte {
        b'\r' | b'\n' => ' ',
        b' '..=b'~' => char::from(byte),
        _ => '?',
    }
}

fn error(what: &str) -> Unparsed {
    Unparsed::Broken(format!("ERR Protocol error: {what}"))
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
