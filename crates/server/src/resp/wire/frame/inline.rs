//! Commands typed by people: a line of words.

use super::{Unparsed, error};
use crate::resp::wire::commands::Span;

/// Splits an inline command into words and unescapes quoted ones in place.
///
/// `"..."` supports `\n \r \t \b \a \xHH`, `'...'` supports `\'`. A closing quote must end its word.
pub(super) fn split_words(line: &mut [u8], words: &mut Vec<Span>) -> Result<(), Unparsed> {
    let unbalanced = || error("unbalanced quotes in request");
    let is_space = |byte: u8| byte.is_ascii_whitespace() || byte == 0x0b;
    let mut read = 0;
    // `write` never passes `read`, because every step reads at least as many bytes as it writes.
    let mut write = 0;
    loop {
        while read < line.len() && is_space(line[read]) {
            read += 1;
        }
        if read == line.len() {
            return Ok(());
        }
        let start = write;
        let mut quote = None;
        loop {
            let Some(&byte) = line.get(read) else {
                if quote.is_some() {
                    return Err(unbalanced());
                }
                break;
            };
            read += 1;
            let plain = match (quote, byte) {
                (None, _) if is_space(byte) || byte == 0 => break,
                (None, b'"' | b'\'') => {
                    quote = Some(byte);
                    continue;
                }
                (Some(open), _) if open == byte => {
                    if line.get(read).is_some_and(|&next| !is_space(next)) {
                        return Err(unbalanced());
                    }
                    break;
                }
                (Some(b'"'), b'\\') => match *line.get(read).ok_or_else(unbalanced)? {
                    b'x' if hex(line.get(read + 1)).is_some() && hex(line.get(read + 2)).is_some() => {
                        let digits = [hex(line.get(read + 1)), hex(line.get(read + 2))];
                        read += 3;
                        digits.into_iter().flatten().fold(0, |value, digit| value << 4 | digit)
                    }
                    escaped => {
                        read += 1;
                        match escaped {
                            b'n' => b'\n',
                            b'r' => b'\r',
                            b't' => b'\t',
                            b'b' => 0x08,
                            b'a' => 0x07,
                            other => other,
                        }
                    }
                },
                (Some(b'\''), b'\\') if line.get(read) == Some(&b'\'') => {
                    read += 1;
                    b'\''
                }
                _ => byte,
            };
            assert!(write < read, "an unescaped word is longer than its source");
            line[write] = plain;
            write += 1;
        }
        words.push(Span { start: start as u32, end: write as u32 });
    }
}

fn hex(digit: Option<&u8>) -> Option<u8> {
    char::from(*digit?).to_digit(16).map(|value| value as u8)
}
