//! A minimal HTTP/2 client for attacks: frames, uncompressed header blocks, and accounting of the send windows.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const ACK: u8 = 1;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// Maximum window.
pub(crate) const WINDOW_MAX: u32 = (1 << 31) - 1;

const WINDOW_AT_FIRST: i64 = 65_535;
const SETTING_WINDOW: u16 = 4;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Returns a settings frame with the initial window of every stream, in which the server may send.
pub(crate) fn settings(window: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&SETTING_WINDOW.to_be_bytes()[..], &window.to_be_bytes()].concat())
}

pub(crate) fn window(stream: u32, by: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &by.to_be_bytes())
}

/// Encodes a header without compression and indexing.
pub(crate) fn header(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0];
    for text in [name, value] {
        length(&mut bytes, text.len());
        bytes.extend(text.as_bytes());
    }
    bytes
}

/// An integer with a prefix of seven bits (RFC 7541, section 5.1).
fn length(bytes: &mut Vec<u8>, length: usize) {
    let Some(mut rest) = length.checked_sub(127) else { return bytes.push(length as u8) };
    bytes.push(127);
    while rest > 127 {
        bytes.push(rest as u8 | 128);
        rest >>= 7;
    }
    bytes.push(rest as u8);
}

/// Returns the header block of a call of `esker.v1.Esker`.
pub(crate) fn call(method: &str) -> Vec<u8> {
    [
        header(":method", "POST"),
        header(":scheme", "http"),
        header(":path", &format!("/esker.v1.Esker/{method}")),
        header(":authority", "x"),
        header("content-type", "application/grpc"),
        header("te", "trailers"),
    ]
    .concat()
}

/// Returns a message with a declared length, independent of its bytes.
pub(crate) fn message(declared: u32, bytes: &[u8]) -> Vec<u8> {
    [&[0], &declared.to_be_bytes()[..], bytes].concat()
}

/// Returns a complete call with a short message.
pub(crate) fn whole_call(stream: u32, method: &str, bytes: &[u8]) -> Vec<u8> {
    let message = message(bytes.len() as u32, bytes);
    [frame(HEADERS, END_HEADERS, stream, &call(method)), frame(DATA, END_STREAM, stream, &message)].concat()
}

/// A non-blocking connection.
pub(crate) struct Speaker {
    stream: TcpStream,
    waiting: Vec<u8>,
    input: Vec<u8>,
    /// Send window of the connection, and of each open stream.
    window: i64,
    at_first: i64,
    windows: HashMap<u32, i64>,
    next: u32,
    /// True if the server sent GOAWAY.
    pub(crate) sent_away: bool,
}

impl Speaker {
    /// Connects, and sends `first` after the preface.
    pub(crate) fn open(address: SocketAddr, first: &[u8]) -> Option<Speaker> {
        Speaker::on(TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok()?, first)
    }

    /// As [`open`](Self::open), on an existing connection.
    pub(crate) fn on(stream: TcpStream, first: &[u8]) -> Option<Speaker> {
        stream.set_nonblocking(true).ok()?;
        let waiting = [PREFACE, first].concat();
        let (window, at_first) = (WINDOW_AT_FIRST, WINDOW_AT_FIRST);
        let windows = HashMap::new();
        Some(Speaker {
            stream,
            waiting,
            input: Vec::new(),
            window,
            at_first,
            windows,
            next: 1,
            sent_away: false,
        })
    }

    /// Returns the id of a new stream. It counts as open until the server ends it.
    pub(crate) fn stream(&mut self) -> u32 {
        let stream = self.next;
        self.next += 2;
        self.windows.insert(stream, self.at_first);
        stream
    }

    pub(crate) fn open_streams(&self) -> Vec<u32> {
        self.windows.keys().copied().collect()
    }

    /// Returns true if all queued bytes were sent.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn say(&mut self, bytes: &[u8]) {
        self.waiting.extend_from_slice(bytes);
    }

    /// Queues as much data as the windows allow. Returns its length.
    pub(crate) fn say_data(&mut self, stream: u32, bytes: &[u8]) -> usize {
        let Some(own) = self.windows.get_mut(&stream) else { return 0 };
        let most = (*own).min(self.window).clamp(0, 16 << 10) as usize;
        let part = &bytes[..bytes.len().min(most)];
        if part.is_empty() {
            return 0;
        }
        *own -= part.len() as i64;
        self.window -= part.len() as i64;
        self.say(&frame(DATA, 0, stream, part));
        part.len()
    }

    /// Sends as much as the socket accepts; fails if the connection is closed.
    pub(crate) fn send(&mut self) -> std::io::Result<()> {
        while !self.waiting.is_empty() {
            match self.stream.write(&self.waiting) {
                Ok(sent) => drop(self.waiting.drain(..sent)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads and handles available frames; fails if the connection is closed.
    pub(crate) fn listen(&mut self) -> std::io::Result<()> {
        let mut bytes = [0; 64 << 10];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.input.extend_from_slice(&bytes[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let input = std::mem::take(&mut self.input);
        let mut rest = &input[..];
        while let [a, b, c, kind, flags, s, t, u, v, payload @ ..] = rest {
            let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            if payload.len() < length {
                break;
            }
            self.heed(*kind, *flags, u32::from_be_bytes([*s, *t, *u, *v]), &payload[..length]);
            rest = &payload[length..];
        }
        self.input = rest.to_vec();
        Ok(())
    }

    fn heed(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        match (kind, payload) {
            (SETTINGS, _) if flags & ACK == 0 => {
                for setting in payload.chunks_exact(6) {
                    if setting[..2] == SETTING_WINDOW.to_be_bytes() {
                        let window = i64::from(u32::from_be_bytes(setting[2..].try_into().unwrap()));
                        let more = window - std::mem::replace(&mut self.at_first, window);
                        self.windows.values_mut().for_each(|window| *window += more);
                    }
                }
                self.say(&frame(SETTINGS, ACK, 0, &[]));
            }
            (PING, _) if flags & ACK == 0 => self.say(&frame(PING, ACK, 0, payload)),
            (WINDOW_UPDATE, &[a, b, c, d]) => {
                let by = i64::from(u32::from_be_bytes([a, b, c, d]));
                match self.windows.get_mut(&stream) {
                    Some(window) => *window += by,
                    None if stream == 0 => self.window += by,
                    None => {}
                }
            }
            (RST_STREAM, _) => drop(self.windows.remove(&stream)),
            (HEADERS | DATA, _) if flags & END_STREAM != 0 => drop(self.windows.remove(&stream)),
            (GOAWAY, _) => self.sent_away = true,
            _ => {}
        }
    }
}
