//! Reads the output of MONITOR: `1339518083.107412 [0 127.0.0.1:60866] "set" "key" "value"`.

use std::collections::HashSet;
use std::io::BufRead;

use esker_server::served::Caller;

use super::report::{At, Report};
use crate::terminal::Failure;

/// Longest line in bytes. Redis escapes a byte as up to four, and shows arguments in full.
const LINE_BYTES_MAX: u64 = 256 << 20;

/// The client of calls by scripts.
const OF_SCRIPT: &[u8] = b"lua";

/// Reads all lines. The last one may be cut, as when the program that wrote it was ended.
///
/// # Errors
/// If another line is no output of MONITOR, or there is no command at all.
pub(super) fn read(reader: &mut dyn BufRead, name: &str, report: &mut Report) -> Result<(), Failure> {
    let (mut number, mut commands) = (0, 0);
    let mut clients = Clients::default();
    while let Some((line, is_whole)) = line_of(reader, name)? {
        number += 1;
        if line.is_empty() || is_confirmation(&line) {
            continue;
        }
        match parse(&line) {
            Some(call) => {
                clients.note(&call, At::Line { name, number }, report);
                commands += 1;
            }
            None if !is_whole => {}
            None => {
                return Err(Failure::Usage(format!(
                    "{name}, line {number}: expected output of MONITOR, such as 1339518083.107412 [0 127.0.0.1:60866] \"get\" \"key\""
                )));
            }
        }
    }
    match commands {
        0 => Err(Failure::Usage(format!("{name} has no command: let MONITOR run while clients work"))),
        _ => Ok(()),
    }
}

/// Reads a line without its end, and true if it had one; `None` at the end of the input.
pub(super) fn line_of(reader: &mut dyn BufRead, name: &str) -> Result<Option<(Vec<u8>, bool)>, Failure> {
    let mut line = Vec::new();
    let mut limited = std::io::Read::take(reader, LINE_BYTES_MAX);
    let read = limited
        .read_until(b'\n', &mut line)
        .map_err(|error| Failure::Usage(format!("cannot read {name}: {error}")))?;
    if read as u64 == LINE_BYTES_MAX && line.last() != Some(&b'\n') {
        return Err(Failure::Usage(format!("{name}: a line is longer than {LINE_BYTES_MAX} bytes")));
    }
    let is_whole = line.pop_if(|last| *last == b'\n').is_some();
    line.pop_if(|last| *last == b'\r');
    Ok((read > 0).then_some((line, is_whole)))
}

/// Returns true for the answer to MONITOR itself.
pub(super) fn is_confirmation(line: &[u8]) -> bool {
    [&b"OK"[..], b"+OK"].contains(&line)
}

/// Returns true if a line begins like one of MONITOR.
pub(super) fn begins(line: &[u8]) -> bool {
    head_of(line).is_some()
}

/// The state of the clients whose commands are read.
#[derive(Default)]
struct Clients {
    /// Those between MULTI and EXEC.
    in_transaction: HashSet<Vec<u8>>,
    /// The keys that the last script declared. Redis shows the calls of a script right behind its EVAL.
    declared: Option<Vec<Vec<u8>>>,
}

impl Clients {
    fn note(&mut self, call: &Call, at: At<'_>, report: &mut Report) {
        let words: Vec<&[u8]> = call.words.iter().map(Vec::as_slice).collect();
        if call.client == OF_SCRIPT {
            return report.command(&words, Caller::Script(self.declared.as_deref()), at);
        }
        let is = |name: &str| words[0].eq_ignore_ascii_case(name.as_bytes());
        if ["eval", "eval_ro", "evalsha", "evalsha_ro", "fcall", "fcall_ro"].into_iter().any(is) {
            self.declared = declared(&call.words);
        }
        if is("exec") || is("discard") || is("reset") {
            self.in_transaction.remove(&call.client);
        }
        let in_transaction = self.in_transaction.contains(&call.client);
        report.command(&words, if in_transaction { Caller::Transaction } else { Caller::Client }, at);
        if is("multi") {
            self.in_transaction.insert(call.client.clone());
        }
    }
}

/// Returns the keys of an EVAL, or `None` if their number is none.
fn declared(words: &[Vec<u8>]) -> Option<Vec<Vec<u8>>> {
    let count = std::str::from_utf8(words.get(2)?).ok()?.parse().ok()?;
    words.get(3..)?.get(..count).map(<[_]>::to_vec)
}

/// One line: the client, and the words of its command.
#[derive(Debug, PartialEq, Eq)]
struct Call {
    client: Vec<u8>,
    words: Vec<Vec<u8>>,
}

fn parse(line: &[u8]) -> Option<Call> {
    let (client, rest) = head_of(line)?;
    let words = words(rest)?;
    (!words.is_empty()).then(|| Call { client: client.to_vec(), words })
}

/// Returns the client's address, and the words behind it.
fn head_of(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = line.strip_prefix(b"+").unwrap_or(line);
    let time = line.iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'.').count();
    let rest = line[time..].strip_prefix(b" [")?;
    // The address of IPv6 has brackets of its own.
    let end = rest.windows(3).position(|part| part == b"] \"" || part == b"] (")?;
    let (inside, rest) = (&rest[..end], &rest[end + 2..]);
    let blank = inside.iter().position(|byte| *byte == b' ')?;
    let is_number = |digits: &[u8]| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    (time > 0 && is_number(&inside[..blank])).then_some((&inside[blank + 1..], rest))
}

/// Parses words in quotes with the escapes of Redis, and `(redacted)`.
fn words(mut rest: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    while !rest.is_empty() {
        let (word, behind) = match rest.strip_prefix(b"(redacted)") {
            Some(behind) => (b"(redacted)".to_vec(), behind),
            None => quoted(rest.strip_prefix(b"\"")?)?,
        };
        words.push(word);
        rest = match behind {
            [] => behind,
            [b' ', more @ ..] => more,
            _ => return None,
        };
    }
    Some(words)
}

fn quoted(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let (mut word, mut at) = (Vec::new(), 0);
    loop {
        let byte = *text.get(at)?;
        at += 1;
        match byte {
            b'"' => return Some((word, &text[at..])),
            b'\\' => {
                let escaped = *text.get(at)?;
                at += 1;
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'a' => 7,
                    b'b' => 8,
                    b'x' => {
                        let digits = std::str::from_utf8(text.get(at..at + 2)?).ok()?;
                        at += 2;
                        u8::from_str_radix(digits, 16).ok()?
                    }
                    other => other,
                });
            }
            other => word.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed_with_escapes_and_addresses() {
        let call = |client: &str, words: &[&[u8]]| {
            let words = words.iter().map(|word| word.to_vec()).collect();
            Some(Call { client: client.as_bytes().to_vec(), words })
        };
        assert_eq!(
            parse(br#"1339518083.107412 [0 127.0.0.1:60866] "set" "a \"b\"" "\x00\xff\n""#),
            call("127.0.0.1:60866", &[b"set", b"a \"b\"", b"\0\xff\n"])
        );
        assert_eq!(parse(br#"+1.2 [12 [::1]:60866] "ping""#), call("[::1]:60866", &[b"ping"]));
        assert_eq!(parse(br#"1.2 [0 unix:/a b] "ping""#), call("unix:/a b", &[b"ping"]));
        assert_eq!(parse(br#"1.2 [0 lua] "get" "k""#), call("lua", &[b"get", b"k"]));
        assert_eq!(parse(br#"1.2 [0 x:1] "auth" (redacted)"#), call("x:1", &[b"auth", b"(redacted)"]));
        for line in [
            &b""[..],
            b"OK",
            b"1.2 [0 x:1]",
            b"1.2 [0 x:1] \"get",
            b"1.2 [0 x:1] \"get\"\"k\"",
            b"1.2 [a x:1] \"get\"",
            b"[0 x:1] \"get\"",
            b"1.2 [0 x:1] \"\\x1\"",
        ] {
            assert_eq!(parse(line), None, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn keys_of_a_script_are_those_that_it_declares() {
        let words = |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
        assert_eq!(declared(&words("eval x 2 a b c")), Some(words("a b")));
        assert_eq!(declared(&words("eval x 0")), Some(Vec::new()));
        assert_eq!(declared(&words("eval x 3 a b")), None);
        assert_eq!(declared(&words("eval x y")), None);
    }
}
