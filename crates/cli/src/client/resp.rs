//! The part of RESP2 that a client needs.

/// An answer of a server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A simple or a bulk string.
    Text(Vec<u8>),
    /// An error with its message.
    Error(String),
    Integer(i64),
    /// A null string or a null list.
    Nothing,
    Parts(Vec<Answer>),
}

/// Appends an encoded command.
pub(crate) fn write_command(words: &[&[u8]], text: &mut Vec<u8>) {
    text.extend(format!("*{}\r\n", words.len()).bytes());
    for word in words {
        text.extend(format!("${}\r\n", word.len()).bytes());
        text.extend_from_slice(word);
        text.extend_from_slice(b"\r\n");
    }
}
