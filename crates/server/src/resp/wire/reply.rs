//! Answers to bytes, in RESP2 or RESP3 as the client asked for with `HELLO`.
//!
//! [`Replies`] is the output of one connection: answers are appended in the order of the commands, and bytes are taken
//! off the front as the socket accepts them. Large values are not copied into it: they stand between its bytes, and go to
//! the socket as they are.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes};
use esker_engine::{Error, ErrorKind, View};

use crate::base::settings::text_of;
use crate::service::errors::{ErrorCounts, Uncounted};

/// Version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Resp2,
    Resp3,
}

/// An emptied buffer larger than this gives its memory back.
const KEPT_BYTES_MAX: usize = 256 << 10;

/// From this length on a value is handed on instead of copied.
const HANDED_BYTES_MIN: usize = 16 << 10;

/// Unsent answers.
pub(crate) struct Replies {
    bytes: Vec<u8>,
    /// How many of `bytes` are sent.
    sent: usize,
    /// Values that stand between them, in their order.
    handed: VecDeque<Handed>,
    /// What is not sent of all of those.
    handed_bytes: usize,
    /// Memory of all of those, which stays whole until the last byte is sent.
    handed_held: usize,
    /// Errors since they were last asked for.
    errors: u64,
    /// The same by code, until they are counted for the server.
    uncounted: Uncounted,
    /// The mark up to which answers may go; what is beyond is left out.
    end: usize,
    /// Whether anything was left out.
    is_cut_short: bool,
    pub(crate) protocol: Protocol,
}

/// A value that is not copied.
struct Handed {
    /// So many of the copied bytes stand before it.
    at: usize,
    /// What is not sent of it.
    value: Bytes,
    len: usize,
}

impl Replies {
    pub(crate) fn new() -> Replies {
        Replies {
            bytes: Vec::new(),
            sent: 0,
            handed: VecDeque::new(),
            handed_bytes: 0,
            handed_held: 0,
            errors: 0,
            uncounted: Uncounted::default(),
            end: usize::MAX,
            is_cut_short: false,
            protocol: Protocol::Resp2,
        }
    }

    /// Bytes of answers that are not sent.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.bytes.len() - self.sent + self.handed_bytes
    }

    /// What is to be sent next, in as many pieces as fit.
    pub(crate) fn unsent<const PIECES: usize>(&self) -> ([IoSlice<'_>; PIECES], usize) {
        let mut pieces = [IoSlice::new(&[]); PIECES];
        let (mut count, mut from) = (0, self.sent);
        let handed = self.handed.iter().map(|handed| (handed.at, &*handed.value));
        for (at, value) in handed.chain([(self.bytes.len(), &[][..])]) {
            for piece in [&self.bytes[from..at], value].into_iter().filter(|piece| !piece.is_empty()) {
                if count == PIECES {
                    return (pieces, count);
                }
                pieces[count] = IoSlice::new(piece);
                count += 1;
            }
            from = at;
        }
        (pieces, count)
    }

    pub(crate) fn mark_sent(&mut self, bytes: usize) {
        let mut left = bytes;
        while let Some(first) = self.handed.front_mut() {
            let before = left.min(first.at - self.sent);
            let of_value = (left - before).min(first.value.len());
            self.sent += before;
            self.handed_bytes -= of_value;
            left -= before + of_value;
            first.value.advance(of_value);
            if !first.value.is_empty() {
                break;
            }
            self.handed_held -= first.len;
            self.handed.pop_front();
        }
        self.sent += left;
        assert!(self.sent <= self.bytes.len(), "more bytes sent than there were");
        if self.unsent_bytes() == 0 {
            self.sent = 0;
            self.bytes.clear();
            if self.bytes.capacity() > KEPT_BYTES_MAX {
                self.bytes = Vec::new();
            }
        }
    }

    /// Where the next answer begins.
    pub(crate) fn mark(&self) -> usize {
        self.bytes.len() + self.handed_bytes
    }

    /// Takes back what was answered since a mark. Nothing was sent since then: commands are answered between two writes.
    pub(crate) fn cut(&mut self, mark: usize) {
        // A value ends behind the mark if its answer does: marks are at the beginnings of answers.
        while let Some(last) = self.handed.back().filter(|last| last.at + self.handed_bytes > mark) {
            self.handed_bytes -= last.value.len();
            self.handed_held -= last.len;
            self.handed.pop_back();
        }
        let copied = mark - self.handed_bytes;
        assert!(self.sent <= copied, "an answer that was sent is taken back");
        self.bytes.truncate(copied);
    }

    /// Leaves out what answers have from here on beyond so many bytes.
    pub(crate) fn limit(&mut self, bytes: usize) {
        self.end = self.mark().saturating_add(bytes);
    }

    /// Leaves out nothing any more; whether anything was.
    pub(crate) fn unlimit(&mut self) -> bool {
        self.end = usize::MAX;
        std::mem::take(&mut self.is_cut_short)
    }

    /// Memory that so many bytes more would take beyond what is held. A buffer doubles when it grows.
    pub(crate) fn growth(&self, bytes: usize) -> usize {
        let (capacity, wanted) = (self.bytes.capacity(), self.bytes.len().saturating_add(bytes));
        if wanted <= capacity { 0 } else { wanted.max(2 * capacity) - capacity }
    }

    /// Moves the first so many bytes, which are whole answers, behind those of others.
    pub(crate) fn move_to(&mut self, others: &mut Replies, bytes: usize) {
        others.uncounted.append(&mut self.uncounted);
        let mut left = bytes;
        while self.handed.front().is_some_and(|first| self.sent + left > first.at) {
            let Some(Handed { at, value, len }) = self.handed.pop_front() else { break };
            others.put(&self.bytes[self.sent..at]);
            left -= at - self.sent + len;
            self.sent = at;
            self.handed_bytes -= len;
            self.handed_held -= len;
            others.put_value(value);
        }
        others.put(&self.bytes[self.sent..self.sent + left]);
        self.sent += left;
        if self.sent == self.bytes.len() && self.handed.is_empty() {
            self.bytes.clear();
            self.sent = 0;
        }
    }

    /// Whether anything is left out since there is a limit.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.is_cut_short
    }

    /// All that is not sent, as one piece.
    pub(crate) fn joined(&mut self) -> &[u8] {
        if !self.handed.is_empty() {
            let mut joined = Vec::with_capacity(self.unsent_bytes());
            for handed in self.handed.drain(..) {
                joined.extend_from_slice(&self.bytes[self.sent..handed.at]);
                joined.extend_from_slice(&handed.value);
                self.sent = handed.at;
            }
            joined.extend_from_slice(&self.bytes[self.sent..]);
            self.bytes = joined;
            (self.sent, self.handed_bytes, self.handed_held) = (0, 0, 0);
        }
        &self.bytes[self.sent..]
    }

    /// Forgets what is not sent.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.handed.clear();
        (self.sent, self.handed_bytes, self.handed_held) = (0, 0, 0);
    }

    /// An error was answered that was counted elsewhere by its code.
    pub(crate) fn note_error(&mut self) {
        self.errors += 1;
    }

    /// Whether errors were answered since they were taken.
    pub(crate) fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// How many errors were answered since the last time that this was asked.
    pub(crate) fn take_errors(&mut self) -> u64 {
        std::mem::take(&mut self.errors)
    }

    /// Counts the errors since the last time by their codes.
    pub(in crate::resp) fn count_errors(&mut self, counts: &ErrorCounts) {
        counts.take(&mut self.uncounted);
    }

    /// Memory that unsent answers, and room for more, take.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.capacity() + self.handed_held + self.handed.capacity() * size_of::<Handed>()
    }

    /// Gives memory back that no answer needs.
    pub(crate) fn trim(&mut self) {
        if self.unsent_bytes() == 0 {
            self.bytes = Vec::new();
            self.handed = VecDeque::new();
        }
    }

    /// `+OK` and other short texts without line breaks.
    pub(crate) fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// A text without line breaks that may have any other bytes.
    pub(crate) fn simple_bytes(&mut self, text: &[u8]) {
        self.line(b'+', text);
    }

    /// An error. Line breaks in it would end the reply early, so they become spaces. Characters up to U+00FF stand for one
    /// byte each, so that a text can show what a client sent, whatever it is.
    pub(crate) fn error(&mut self, text: &str) {
        self.errors += 1;
        self.uncounted.add(text);
        self.put(b"-");
        // As Redis writes an error that quotes an argument: line breaks at its end go, others become blanks.
        for character in text.trim_end_matches(['\r', '\n']).chars() {
            match u8::try_from(character) {
                Ok(b'\r' | b'\n') => self.put(b" "),
                Ok(byte) => self.put(&[byte]),
                Err(_) => self.put(character.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        self.put(b"\r\n");
    }

    /// An error whose text is what bytes say.
    pub(crate) fn error_bytes(&mut self, text: &[u8]) {
        let text: String = text.iter().copied().map(char::from).collect();
        self.error(&text);
    }

    /// A short text that is what bytes say, without line breaks.
    pub(crate) fn status_bytes(&mut self, text: &[u8]) {
        let text: Vec<_> =
            text.iter().map(|byte| if b"\r\n".contains(byte) { b' ' } else { *byte }).collect();
        self.line(b'+', &text);
    }

    /// Yes or no; a number in RESP2.
    pub(crate) fn boolean(&mut self, value: bool) {
        match self.protocol {
            Protocol::Resp2 => self.integer(value.into()),
            Protocol::Resp3 => self.put(if value { b"#t\r\n" } else { b"#f\r\n" }),
        }
    }

    /// A number with a fraction, which is spelled already. A bulk string in RESP2.
    pub(crate) fn double(&mut self, spelled: &str) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(spelled.as_bytes()),
            Protocol::Resp3 => self.line(b',', spelled.as_bytes()),
        }
    }

    /// A number of any length. A bulk string in RESP2.
    pub(crate) fn big_number(&mut self, digits: &[u8]) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(digits),
            Protocol::Resp3 => {
                let digits: Vec<_> =
                    digits.iter().map(|byte| if b"\r\n".contains(byte) { b' ' } else { *byte }).collect();
                self.line(b'(', &digits);
            }
        }
    }

    pub(crate) fn integer(&mut self, value: i64) {
        self.line(b':', itoa::Buffer::new().format(value).as_bytes());
    }

    pub(crate) fn bulk(&mut self, value: &[u8]) {
        self.header(b'$', value.len());
        self.put(value);
        self.put(b"\r\n");
    }

    pub(crate) fn null(&mut self) {
        self.put(match self.protocol {
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
        if value.len() < HANDED_BYTES_MIN { self.bulk(value) } else { self.hand(value.clone()) }
    }

    /// A value as it lies in the store's memory.
    pub(crate) fn shown(&mut self, view: &View<'_>) {
        let large = view.value.len() >= HANDED_BYTES_MIN;
        match large.then(|| view.shared()).flatten() {
            Some(value) => self.hand(value),
            None => self.bulk(view.value),
        }
    }

    fn hand(&mut self, value: Bytes) {
        self.header(b'$', value.len());
        self.put_value(value);
        self.put(b"\r\n");
    }

    fn put_value(&mut self, value: Bytes) {
        let len = value.len();
        if self.has_room(len) {
            self.handed.push_back(Handed { at: self.bytes.len(), value, len });
            self.handed_bytes += len;
            self.handed_held += len;
        }
    }

    pub(crate) fn value_or_null(&mut self, value: Option<&Bytes>) {
        match value {
            Some(value) => self.value(value),
            None => self.null(),
        }
    }

    /// Nothing, where an array was to be.
    pub(crate) fn null_array(&mut self) {
        self.put(match self.protocol {
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

    /// The head of what nobody asked for; `count` replies follow. An array in RESP2.
    pub(crate) fn push(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', count),
            Protocol::Resp3 => self.header(b'>', count),
        }
    }

    /// Text for people. A bulk string in RESP2.
    pub(crate) fn text(&mut self, text: &[u8]) {
        self.verbatim(b"txt", text);
    }

    /// Text in a format that has a name of three letters. A bulk string in RESP2.
    pub(crate) fn verbatim(&mut self, format: &[u8], text: &[u8]) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text),
            Protocol::Resp3 => {
                let mut name = *b"   ";
                format.iter().zip(&mut name).for_each(|(byte, place)| *place = *byte);
                self.header(b'=', text.len() + 4);
                self.put(&name);
                self.put(b":");
                self.put(text);
                self.put(b"\r\n");
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
            _ => "ERR ",
        };
        format!("{code}{}", text_of(error))
    }

    fn header(&mut self, kind: u8, count: usize) {
        self.line(kind, itoa::Buffer::new().format(count).as_bytes());
    }

    fn line(&mut self, kind: u8, rest: &[u8]) {
        let bytes = rest.len() + 3;
        if self.has_room(bytes) {
            self.bytes.reserve(bytes);
            self.bytes.push(kind);
            self.bytes.extend_from_slice(rest);
            self.bytes.extend_from_slice(b"\r\n");
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        if self.has_room(bytes.len()) {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// So many bytes more are sure to follow; if there is no room for them, it is cut short now.
    pub(crate) fn must_have_room(&mut self, bytes: usize) {
        self.has_room(bytes);
    }

    /// Nothing follows what was left out, or else what is there would mean something else.
    fn has_room(&mut self, bytes: usize) -> bool {
        self.is_cut_short |= self.mark().saturating_add(bytes) > self.end;
        !self.is_cut_short
    }
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
