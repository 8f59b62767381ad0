//! Fuzz targets: the parser of commands, and patterns.

use bytes::Bytes;

use super::commands::Commands;
use super::frame::{Parser, Unparsed};
use super::glob::Pattern;
use crate::Limits;

/// Checks that the parsed commands do not depend on how the input is split. The first byte is the piece size, less
/// one; the rest is the input.
pub fn commands(bytes: &[u8]) {
    let Some((piece, input)) = bytes.split_first() else { return };
    let whole = parsed(input, input.len().max(1));
    let pieces = parsed(input, 1 + usize::from(*piece));
    assert_eq!(whole, pieces, "commands depend on how their bytes were cut");
}

/// Returns the commands and refusals of an input that arrives in pieces of `piece` bytes.
fn parsed(input: &[u8], piece: usize) -> Vec<Result<Vec<Vec<u8>>, Unparsed>> {
    let limits =
        Limits { bulk_bytes_max: 100, arguments_max: 20, inline_bytes_max: 200, ..Limits::default() };
    let mut parser = Parser::new(&limits);
    let (mut waiting, mut found) = (Vec::new(), Vec::new());
    for arrived in input.chunks(piece) {
        waiting.extend_from_slice(arrived);
        loop {
            let mut commands = Commands::default();
            let (taken, outcome) = parser.parse(&mut waiting, &mut commands, limits.pipeline_max);
            let data = Bytes::copy_from_slice(&waiting[..taken]);
            for index in 0..commands.len() {
                let command = commands.get(index, &data);
                found.push(Ok(command.arguments(0).map(<[u8]>::to_vec).collect()));
            }
            waiting.drain(..taken);
            match outcome {
                Ok(()) if taken == 0 => break,
                Ok(()) => {}
                Err(why @ Unparsed::Broken(_)) => {
                    found.push(Err(why));
                    return found;
                }
                Err(why) => found.push(Err(why)),
            }
        }
    }
    found
}

/// Checks a pattern on a text. A zero byte separates the two.
pub fn pattern(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == 0);
    let (pattern, text) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let Ok(compiled) = Pattern::new(pattern) else { return };
    let matches = compiled.matches(text);
    // A leading star removes every condition on the start of the text.
    let starred = Pattern::new(&[b"*", pattern].concat());
    assert!(
        !matches || starred.map_or(true, |starred| starred.matches(text)),
        "a star in front matches less"
    );
    let plain = pattern.iter().all(|byte| !b"*?[\\".contains(byte));
    assert!(!plain || matches == (pattern == text), "a plain pattern matches itself alone");
}
