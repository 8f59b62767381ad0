//! Encodes answers as bytes, in RESP2 or RESP3 as the client chose with `HELLO`.
//!
//! [`Replies`] is the output of one connection: answers are appended in the order of the commands, and removed from
//! the front as the socket accepts them. Large values are not copied into the buffer: they are kept between its bytes
//! by reference, and written to the socket from there.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes};
use esker_engine::{Error, ErrorKind, View};

use super::error_text;
use crate::base::settings::text_of;
use crate::service::errors::{ErrorCounts, Uncounted};

/// Version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Resp2,
    Resp3,
}

/// Capacity in bytes above which an emptied buffer is freed.
const KEPT_BYTES_MAX: usize = 256 << 10;

/// Length in bytes from which a value is kept by reference instead of copied.
const HANDED_BYTES_MIN: usize = 16 << 10;

/// Unsent answers.
pub(crate) struct Replies {
    bytes: Vec<u8>,
    /// Number of bytes at the front of `bytes` that are sent.
    sent: usize,
    /// Values by reference that belong between the bytes, in their order.
    handed: VecDeque<Handed>,
    /// Unsent bytes of `handed`.
    handed_bytes: usize,
    /// Memory of `handed` in bytes: a value is held completely until its last byte is sent.
    handed_held: usize,
    /// Errors since the last [`take_errors`](Self::take_errors).
    errors: u64,
    /// All errors that were taken.
    errors_taken: u64,
    /// Errors by code that the server's counters do not yet include.
    uncounted: Uncounted,
    /// The mark up to which answers are accepted; everything beyond is dropped.
    end: usize,
    /// True if part of an answer was dropped.
    is_cut_short: bool,
    pub(crate) protocol: Protocol,
}

/// A value that is kept by reference.
struct Handed {
    /// The position of the value: the number of bytes in `Replies::bytes` before it.
    at: usize,
    /// The unsent part of the value.
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
            errors_taken: 0,
            uncounted: Uncounted::default(),
            end: usize::MAX,
            is_cut_short: false,
            protocol: Protocol::Resp2,
        }
    }

    /// Returns the number of unsent bytes.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.bytes.len() - self.sent + self.handed_bytes
    }

    /// Returns all unsent bytes if none of them are in values by reference.
    pub(crate) fn unsent_piece(&self) -> Option<&[u8]> {
        self.handed.is_empty().then(|| &self.bytes[self.sent..])
    }

    /// Returns the next unsent bytes, in up to `PIECES` slices, and the number of slices.
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

    /// Returns the position at which the next answer begins.
    pub(crate) fn mark(&self) -> usize {
        self.bytes.len() + self.handed_bytes
    }

    /// Removes the answers since a mark. None of them has been sent, because commands are answered between two
    /// writes.
    pub(crate) fn cut(&mut self, mark: usize) {
        // A value by reference ends behind the mark if its answer does, because marks are at the beginnings of
        // answers.
        while let Some(last) = self.handed.back().filter(|last| last.at + self.handed_bytes > mark) {
            self.handed_bytes -= last.value.len();
            self.handed_held -= last.len;
            self.handed.pop_back();
        }
        let copied = mark - self.handed_bytes;
        assert!(self.sent <= copied, "an answer is removed after it was sent");
        self.bytes.truncate(copied);
    }

    /// Limits the answers from here on to `bytes` bytes in total; everything beyond is dropped.
    pub(crate) fn limit(&mut self, bytes: usize) {
        self.end = self.mark().saturating_add(bytes);
    }

    /// Ends the limit. Returns true if part of an answer was dropped.
    pub(crate) fn unlimit(&mut self) -> bool {
        self.end = usize::MAX;
        std::mem::take(&mut self.is_cut_short)
    }

    /// Returns the memory that `bytes` more bytes would allocate. The buffer doubles when it grows.
    pub(crate) fn growth(&self, bytes: usize) -> usize {
        let (capacity, wanted) = (self.bytes.capacity(), self.bytes.len().saturating_add(bytes));
        if wanted <= capacity { 0 } else { wanted.max(2 * capacity) - capacity }
    }

    /// Moves the first `bytes` bytes, which are whole answers, to the end of `others`.
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

    /// Returns true if part of an answer was dropped since the limit was set.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.is_cut_short
    }

    /// Returns all unsent bytes as one slice.
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

    /// Discards all unsent bytes.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.handed.clear();
        (self.sent, self.handed_bytes, self.handed_held) = (0, 0, 0);
    }

    /// Counts an error whose code was counted elsewhere.
    pub(crate) fn note_error(&mut self) {
        self.errors += 1;
    }

    /// Returns true if errors were answered since the last [`take_errors`](Self::take_errors).
    pub(crate) fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// Returns the number of errors answered since the last call.
    pub(crate) fn take_errors(&mut self) -> u64 {
        self.errors_taken += self.errors;
        std::mem::take(&mut self.errors)
    }

    /// Returns the number of all errors answered so far.
    pub(crate) fn errors_ever(&self) -> u64 {
        self.errors_taken + self.errors
    }

    /// Adds the errors since the last call to `counts`, by code.
    pub(in crate::resp) fn count_errors(&mut self, counts: &ErrorCounts) {
        counts.take(&mut self.uncounted);
    }

    /// Returns the bytes of memory of the unsent answers, including unused capacity.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.capacity() + self.handed_held + self.handed.capacity() * size_of::<Handed>()
    }

    /// Releases unused memory.
    pub(crate) fn trim(&mut self) {
        if self.unsent_bytes() == 0 {
            self.bytes = Vec::new();
            self.handed = VecDeque::new();
        }
    }

    /// Appends `+OK`.
    #[inline]
    pub(crate) fn ok(&mut self) {
        self.put(b"+OK\r\n");
    }

    /// Appends `+OK` or another short text without line breaks.
    pub(crate) fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// Appends a text of any bytes but line breaks.
    pub(crate) fn simple_bytes(&mut self, text: &[u8]) {
        self.line(b'+', text);
    }

    /// Appends an error. Line breaks would end the reply early, so they are replaced by spaces. A character up to
    /// U+00FF is written as one byte, so that an error can quote arbitrary bytes of a client.
    pub(crate) fn error(&mut self, text: &str) {
        self.errors += 1;
        self.uncounted.add(text);
        self.put(b"-");
        // As Redis quotes an argument in an error: trailing line breaks are removed, others become spaces.
        for character in text.trim_end_matches(['\r', '\n']).chars() {
            match u8::try_from(character) {
                Ok(b'\r' | b'\n') => self.put(b" "),
                Ok(byte) => self.put(&[byte]),
                Err(_) => self.put(character.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        self.put(b"\r\n");
    }

    /// Appends an error whose text is bytes.
    pub(crate) fn error_bytes(&mut self, text: &[u8]) {
        let text: String = text.iter().copied().map(char::from).collect();
        self.error(&text);
    }

    /// Appends a short text of bytes; line breaks become spaces.
    pub(crate) fn status_bytes(&mut self, text: &[u8]) {
        let text: Vec<_> =
            text.iter().map(|byte| if b"\r\n".contains(byte) { b' ' } else { *byte }).collect();
        self.line(b'+', &text);
    }

    /// Appends a boolean. An integer in RESP2.
    pub(crate) fn boolean(&mut self, value: bool) {
        match self.protocol {
            Protocol::Resp2 => self.integer(value.into()),
            Protocol::Resp3 => self.put(if value { b"#t\r\n" } else { b"#f\r\n" }),
        }
    }

    /// Appends a formatted floating-point number. A bulk string in RESP2.
    pub(crate) fn double(&mut self, spelled: &str) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(spelled.as_bytes()),
            Protocol::Resp3 => self.line(b',', spelled.as_bytes()),
        }
    }

    /// Appends an integer of any length. A bulk string in RESP2.
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

    /// Appends a value read from the store.
    pub(crate) fn value(&mut self, value: &Bytes) {
        if value.len() < HANDED_BYTES_MIN { self.bulk(value) } else { self.hand(value.clone()) }
    }

    /// Appends a value in the store's memory.
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

    /// Appends a null in place of an array.
    pub(crate) fn null_array(&mut self) {
        self.put(match self.protocol {
            Protocol::Resp2 => b"*-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// Appends the head of an array; `count` replies must follow.
    pub(crate) fn array(&mut self, count: usize) {
        self.header(b'*', count);
    }

    /// Appends the head of a map; `count` keys must follow, each with its value. A flat array in RESP2.
    pub(crate) fn map(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', count * 2),
            Protocol::Resp3 => self.header(b'%', count),
        }
    }

    /// Appends the head of a set. An array in RESP2.
    pub(crate) fn set(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', count),
            Protocol::Resp3 => self.header(b'~', count),
        }
    }

    /// Appends the head of a push message; `count` replies must follow. An array in RESP2.
    pub(crate) fn push(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', count),
            Protocol::Resp3 => self.header(b'>', count),
        }
    }

    /// Appends text for people. A bulk string in RESP2.
    pub(crate) fn text(&mut self, text: &[u8]) {
        self.verbatim(b"txt", text);
    }

    /// Appends text in a format with a three-letter name. A bulk string in RESP2.
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

    /// Appends an error of the store, with the code that Redis clients expect.
    pub(crate) fn store_error(&mut self, error: &Error) {
        self.error(&Replies::text_of(error));
    }

    /// Returns the text of [`store_error`](Self::store_error).
    pub(crate) fn text_of(error: &Error) -> String {
        if let Error::Cluster(error) = error {
            return error_text::of_cluster(error);
        }
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

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        if self.has_room(bytes.len()) {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// Announces `bytes` more bytes, so that an answer that would exceed the limit is dropped now.
    pub(crate) fn must_have_room(&mut self, bytes: usize) {
        self.has_room(bytes);
    }

    /// Returns true if `bytes` more bytes may be appended. Once something was dropped, nothing may follow, because
    /// otherwise the answer would have another meaning.
    fn has_room(&mut self, bytes: usize) -> bool {
        self.is_cut_short |= self.mark().saturating_add(bytes) > self.end;
        !self.is_cut_short
    }
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
