//! RESP2 as a client needs it.

/// What a server answers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A simple or a bulk string.
    Text(Vec<u8>),
    /// That it did not do it, and why.
    Error(String),
    Integer(i64),
    /// No string, or no list.
    Nothing,
    Parts(Vec<Answer>),
}

/// Appends a command.
pub(crate) fn write_command(words: &[&[u8]], text: &mut Vec<u8>) {
    text.extend(format!("*{}\r\n", words.len()).bytes());
    for word in words {
        text.extend(format!("${}\r\n", word.len()).bytes());
        text.extend_from_slice(word);
        text.extend_from_slice(b"\r\n");
    }
}
