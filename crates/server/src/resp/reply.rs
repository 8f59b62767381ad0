//! Answers to bytes, in RESP2 or RESP3 as the client asked for with `HELLO`.
//!
//! [`Replies`] is the output of one connection: answers are appended in the order of the commands, and bytes are taken
//! off the front as the socket accepts them.

use bytes::Bytes;
use esker_engine::{Error, ErrorKind};

/// Version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Resp2,
    Resp3,
}

/// An emptied buffer larger than this gives its memory back.
const KEPT_BYTES_MAX: usize = 256 << 10;

/// Unsent answers.
pub(crate) struct Replies {
    bytes: Vec<u8>,
    sent: usize,
    /// Errors since they were last asked for.
    errors: u64,
    pub(crate) protocol: Protocol,
}

impl Replies {
    pub(crate) fn new() -> Replies {
        Replies { bytes: Vec::new(), sent: 0, errors: 0, protocol: Protocol::Resp2 }
    }

    pub(crate) fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    pub(crate) fn mark_sent(&mut self, bytes: usize) {
        self.sent += bytes;
        assert!(self.sent <= self.bytes.len(), "more bytes sent than there were");
        if self.sent == self.bytes.len() {
            self.sent = 0;
            self.bytes.clear();
            if self.bytes.capacity() > KEPT_BYTES_MAX {
                self.bytes = Vec::new();
            }
        }
    }

    /// Where the next answer begins.
    pub(crate) fn mark(&self) -> usize {
        self.bytes.len()
    }

    /// Takes back what was answered since a mark. Nothing was sent since then: commands are answered between two writes.
    pub(crate) fn cut(&mut self, mark: usize) {
        assert!(self.sent <= mark, "an answer that was sent is taken back");
        self.bytes.truncate(mark);
    }

    /// How many errors were answered since the last time that this was asked.
    pub(crate) fn take_errors(&mut self) -> u64 {
        std::mem::take(&mut self.errors)
    }

    /// Memory that unsent answers, and room for more, take.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Gives memory back that no answer needs.
    pub(crate) fn trim(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = Vec::new();
        }
    }

    /// `+OK` and other short texts without line breaks.
    pub(crate) fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// An error. Line breaks in it would end the reply early, so they become spaces.
    pub(crate) fn error(&mut self, text: &str) {
        self.errors += 1;
        self.bytes.push(b'-');
        let clean = text.bytes().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte });
        self.bytes.extend(clean);
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(crate) fn integer(&mut self, value: i64) {
        self.line(b':', itoa::Buffer::new().format(value).as_bytes());
    }

    pub(crate) fn bulk(&mut self, value: &[u8]) {
        self.header(b'$', value.len());
        self.bytes.extend_from_slice(value);
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(crate) fn null(&mut self) {
        self.bytes.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    pub(crate) fn bulk_or_null(&mut self, value: Option<&[u8]>) {
        match value {
            Some(value) => self.bulk(value),
            None => self.null(),
        }
    }

    /// A value from the store.
    pub(crate) fn value(&mut self, value: &Bytes) {
        self.bulk(value);
    }

    pub(crate) fn value_or_null(&mut self, value: Option<&Bytes>) {
        match value {
            Some(value) => self.value(value),
            None => self.null(),
        }
    }

    /// Nothing, where an array was to be.
    pub(crate) fn null_array(&mut self) {
        self.bytes.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"*-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// The head of an array; `count` replies follow.
    pub(crate) fn array(&mut self, count: usize) {
        self.header(b'*', count);
    }

    /// The head of a map; `count` keys, each followed by its value. A flat array in RESP2.
    pub(crate) fn map(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', count * 2),
            Protocol::Resp3 => self.header(b'%', count),
        }
    }

    /// The head of a set. An array in RESP2.
    pub(crate) fn set(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', count),
            Protocol::Resp3 => self.header(b'~', count),
        }
    }

    /// Text for people. A bulk string in RESP2.
    pub(crate) fn text(&mut self, text: &[u8]) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text),
            Protocol::Resp3 => {
                self.header(b'=', text.len() + 4);
                self.bytes.extend_from_slice(b"txt:");
                self.bytes.extend_from_slice(text);
                self.bytes.extend_from_slice(b"\r\n");
            }
        }
    }

    /// What the store refused, in the words that clients of Redis look for.
    pub(crate) fn store_error(&mut self, error: &Error) {
        self.error(&Replies::text_of(error));
    }

    /// See [`store_error`](Self::store_error).
    pub(crate) fn text_of(error: &Error) -> String {
        let code = match error.kind() {
            ErrorKind::Full => "OOM command not allowed: ",
            ErrorKind::Busy => "BUSY ",
            _ => "ERR ",
        };
        format!("{code}{error}")
    }

    fn header(&mut self, kind: u8, count: usize) {
        self.line(kind, itoa::Buffer::new().format(count).as_bytes());
    }

    fn line(&mut self, kind: u8, rest: &[u8]) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(rest);
        self.bytes.extend_from_slice(b"\r\n");
    }
}
