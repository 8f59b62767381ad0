//! A look at the frames of HTTP/2 as they come in.
//!
//! Flow control bounds the bytes of data that wait to be read, and not what they take: every frame has a place of a few
//! hundred bytes in a queue, and keeps the buffer that it was read into, with whatever else came in that. So a window of
//! frames of one byte takes hundreds of windows. Both are counted here; a connection with too much of either ends.
//!
//! Frames that bring no data (PING, SETTINGS, WINDOW_UPDATE, the heads of calls) are slowed down to what a client needs that takes
//! its answers ([`Pace`]), and a connection that has work without end lets others have their turn.
//!
//! A call that gets no answer, since there are too many at a time or since it is taken back, costs as much as others. A client
//! that goes on making them is ended.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use self::pace::Pace;
use crate::base::turn::poll_pause;

mod pace;

/// A frame of data with fewer bytes than this is small: it takes more in the queue than it brings.
const SMALL_BYTES: usize = 256;

/// Small frames that may wait on one connection: 128 KiB of the queue.
const SMALL_MAX: usize = 512;

/// Bytes that may have come beside the data that waits.
const BESIDE_BYTES_MAX: usize = 128 << 10;

const PREFACE_BYTES: usize = 24;
const HEAD_BYTES: usize = 9;
/// The highest bit of a stream's number means nothing.
const STREAM_BITS: u32 = u32::MAX >> 1;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
/// A flag of frames of data that begin with the length of what stands behind the data and is none.
const PADDED: u8 = 8;

/// Calls that may be without an answer, more than got one.
const UNANSWERED_MAX: usize = 256;

/// What a connection's frames left behind: calls, and frames of data that came and that no call has read.
#[derive(Debug, Default)]
pub(super) struct Waiting(Mutex<Counts>);

#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    frames: usize,
    /// Those of them that are small.
    small: usize,
    /// What came between them and is no data.
    beside_bytes: usize,
    /// The last call that came.
    stream: u32,
    /// Calls without an answer, less those that got one.
    unanswered: usize,
    /// Calls whose frames somebody reads.
    readers: usize,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().expect("nobody panics with it")
    }

    fn came(&self, kind: u8, stream: u32, bytes: usize) -> io::Result<()> {
        let mut counts = self.lock();
        if kind == HEADERS && stream > counts.stream {
            counts.stream = stream;
            counts.unanswered += 1;
            if counts.unanswered > UNANSWERED_MAX {
                return Err(io::Error::other("too many calls at a time, or taken back"));
            }
        }
        if kind == DATA {
            counts.frames += 1;
            counts.small += usize::from(bytes < SMALL_BYTES);
        } else if counts.frames > 0 {
            counts.beside_bytes += bytes + HEAD_BYTES;
        }
        if counts.small > SMALL_MAX || counts.beside_bytes > BESIDE_BYTES_MAX {
            return Err(io::Error::other(
                "too many small frames wait to be read, or too much came between them",
            ));
        }
        Ok(())
    }

    /// Whether any call ever came.
    pub(super) fn has_calls(&self) -> bool {
        self.lock().stream > 0
    }

    /// A call was answered to the end, which makes up for one that was not.
    pub(super) fn answered(&self) {
        let mut counts = self.lock();
        counts.unanswered = counts.unanswered.saturating_sub(2);
    }

    /// A call read a frame, and with it goes its part of what came beside.
    pub(super) fn read(&self, bytes: usize) {
        let mut counts = self.lock();
        counts.beside_bytes -= counts.beside_bytes / counts.frames.max(1);
        counts.frames = counts.frames.saturating_sub(1);
        counts.small = counts.small.saturating_sub(usize::from(bytes < SMALL_BYTES));
    }

    /// Somebody begins to read the frames of a call.
    pub(super) fn reader_began(&self) {
        self.lock().readers += 1;
    }

    /// Somebody reads no more of a call. If nobody reads anything, nothing waits: what is left is thrown away.
    pub(super) fn reader_ended(&self) {
        let mut counts = self.lock();
        counts.readers -= 1;
        if counts.readers == 0 {
            *counts = Counts { stream: counts.stream, unanswered: counts.unanswered, ..Counts::default() };
        }
    }
}

/// A connection whose frames are looked at.
pub(super) struct Frames<S> {
    stream: S,
    waiting: Arc<Waiting>,
    /// Bytes to pass by before the next head.
    pass: usize,
    head: [u8; HEAD_BYTES],
    /// Bytes of the head that are there.
    known: usize,
    /// The stream and the length of a frame of data whose padding is not known yet.
    padded: Option<(u32, usize)>,
    asked: Pace,
}

impl<S> Frames<S> {
    pub(super) fn new(stream: S, waiting: Arc<Waiting>) -> Frames<S> {
        Frames {
            stream,
            waiting,
            pass: PREFACE_BYTES,
            head: [0; HEAD_BYTES],
            known: 0,
            padded: None,
            asked: Pace::default(),
        }
    }

    fn look_at(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.pass > 0 {
                let passed = self.pass.min(bytes.len());
                self.pass -= passed;
                bytes = &bytes[passed..];
                continue;
            }
            let next = bytes[0];
            bytes = &bytes[1..];
            if let Some((stream, length)) = self.padded.take() {
                self.pass = length - 1;
                self.waiting.came(DATA, stream, self.pass.saturating_sub(next.into()))?;
                continue;
            }
            self.head[self.known] = next;
            self.known = (self.known + 1) % HEAD_BYTES;
            if self.known > 0 {
                continue;
            }
            let [a, b, c, kind, flags, stream @ ..] = self.head;
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            let stream = u32::from_be_bytes(stream) & STREAM_BITS;
            if kind == DATA && flags & PADDED != 0 && length > 0 {
                self.padded = Some((stream, length));
                continue;
            }
            self.pass = length;
            if kind != DATA {
                self.asked.came();
            }
            self.waiting.came(kind, stream, length)?;
        }
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Frames<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // What reads from this does so as long as there is something.
        ready!(poll_pause(context));
        ready!(self.asked.poll_ready(context));
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        Poll::Ready(self.look_at(&buffer.filled()[before..]))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Frames<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        self.asked.sent(written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(context, bytes))?;
        self.asked.sent(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, payload: usize) -> Vec<u8> {
        let mut bytes = (payload as u32).to_be_bytes()[1..].to_vec();
        bytes.extend([kind, 0, 0, 0, 0, 1]);
        bytes.resize(bytes.len() + payload, 7);
        bytes
    }

    #[test]
    fn what_waits_is_counted_until_it_is_read() {
        let waiting = Arc::new(Waiting::default());
        let mut frames = Frames::new((), waiting.clone());
        waiting.reader_began();
        waiting.reader_began();
        let mut bytes = vec![b'x'; PREFACE_BYTES];
        for (kind, payload) in
            [(1, 50), (DATA, 0), (DATA, 255), (DATA, 256), (1, 3), (DATA, 70_000), (DATA, 1)]
        {
            bytes.extend(frame(kind, payload));
        }
        // However the bytes are cut.
        for part in bytes.chunks(5) {
            frames.look_at(part).unwrap();
        }
        let calls = |readers| Counts { stream: 1, unanswered: 1, readers, ..Counts::default() };
        assert_eq!(*waiting.lock(), Counts { frames: 5, small: 3, beside_bytes: 12, ..calls(2) });
        waiting.read(255);
        waiting.read(256);
        waiting.reader_ended();
        assert_eq!(*waiting.lock(), Counts { frames: 3, small: 2, beside_bytes: 8, ..calls(1) });
        waiting.reader_ended();
        assert_eq!(*waiting.lock(), calls(0));
    }

    /// Padding takes no room in the queue, and the window is given back for it at once.
    #[test]
    fn padding_makes_no_frame_larger() {
        let waiting = Arc::new(Waiting::default());
        let mut frames = Frames::new((), waiting.clone());
        let padded = |data: usize, padding: u8| {
            let mut bytes = frame(DATA, 1 + data + usize::from(padding));
            (bytes[4], bytes[HEAD_BYTES]) = (PADDED, padding);
            bytes
        };
        let bytes =
            [&[0; PREFACE_BYTES][..], &padded(1, 255), &padded(255, 1), &padded(256, 0), &frame(DATA, 7)];
        for part in bytes.concat().chunks(5) {
            frames.look_at(part).unwrap();
        }
        assert_eq!(*waiting.lock(), Counts { frames: 4, small: 3, ..Counts::default() });
        frames.look_at(&padded(1, 255).repeat(SMALL_MAX - 3)).unwrap();
        assert!(frames.look_at(&padded(1, 255)).is_err());
    }

    #[test]
    fn calls_without_an_answer_end_the_connection() {
        let waiting = Waiting::default();
        let call = |n: usize| waiting.came(HEADERS, 2 * n as u32 + 1, 50);
        for n in 0..1000 {
            call(n).unwrap();
            waiting.answered();
        }
        for n in 1000..1000 + UNANSWERED_MAX {
            call(n).unwrap();
        }
        waiting.came(HEADERS, 1, 50).expect("trailers of a call are no call");
        waiting.answered();
        call(2000).unwrap();
        call(2001).unwrap();
        assert!(call(2002).is_err());
    }

    #[test]
    fn too_much_ends_the_connection() {
        let waiting = Arc::new(Waiting::default());
        let mut frames = Frames::new((), waiting.clone());
        frames.look_at(&[0; PREFACE_BYTES]).unwrap();
        frames.look_at(&frame(DATA, 1).repeat(SMALL_MAX)).unwrap();
        frames.look_at(&frame(DATA, SMALL_BYTES).repeat(SMALL_MAX)).unwrap();
        waiting.read(1);
        frames.look_at(&frame(DATA, 1)).unwrap();
        assert!(frames.look_at(&frame(DATA, 1)).is_err());
        // While no data waits, anything may come.
        let waiting = Arc::new(Waiting::default());
        let mut frames = Frames::new((), waiting);
        frames.look_at(&[0; PREFACE_BYTES]).unwrap();
        frames.look_at(&frame(9, 16_000).repeat(100)).unwrap();
        frames.look_at(&frame(DATA, 1)).unwrap();
        frames.look_at(&frame(9, 16_000).repeat(8)).unwrap();
        assert!(frames.look_at(&frame(9, 16_000)).is_err());
    }
}
