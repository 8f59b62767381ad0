//! What is fuzzed: bytes to commands, and patterns.

use bytes::Bytes;

use super::commands::Commands;
use super::frame::{Parser, Unparsed};
use super::glob::Pattern;
use crate::Limits;

/// Bytes as a client may send them, behind one that says in pieces of what length they arrive. The commands do not depend on
/// that.
pub fn commands(bytes: &[u8]) {
    let Some((piece, input)) = bytes.split_first() else { return };
    let whole = parsed(input, input.len().max(1));
    let pieces = parsed(input, 1 + usize::from(*piece));
    assert_eq!(whole, pieces, "commands depend on how their bytes were cut");
}

/// The commands and refusals of an input that arrives in pieces.
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

/// A pattern, and behind a zero a text.
pub fn pattern(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == 0);
    let (pattern, text) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let Ok(compiled) = Pattern::new(pattern) else { return };
    let matches = compiled.matches(text);
    // A star in front takes away what it demands of the start.
    let starred = Pattern::new(&[b"*", pattern].concat());
    assert!(
        !matches || starred.map_or(true, |starred| starred.matches(text)),
        "a star in front matches less"
    );
    let plain = pattern.iter().all(|byte| !b"*?[\\".contains(byte));
    assert!(!plain || matches == (pattern == text), "a plain pattern matches itself alone");
}
