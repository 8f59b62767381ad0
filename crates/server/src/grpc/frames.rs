//! Inspection of incoming HTTP/2 frames.
//!
//! Flow control limits the bytes of data that wait to be read, but not their memory: every frame has a queue slot of a few
//! hundred bytes, and keeps the read buffer that it arrived in, with all other bytes of that buffer. A window full of one-byte
//! frames therefore takes hundreds of windows. Both overheads are counted here, and a connection that exceeds either limit is
//! closed.
//!
//! Frames without data (PING, SETTINGS, WINDOW_UPDATE, HEADERS) are slowed down to the rate that a client needs to receive its
//! responses ([`Pace`]), and a connection with endless input yields to others.
//!
//! A call without a response, because there are too many at a time or because it was cancelled, costs as much as any other. A
//! client that keeps making such calls is disconnected.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use self::pace::Pace;
use crate::base::turn::poll_pause;

mod pace;

/// Length below which a data frame is small: its queue slot takes more memory than its data. In bytes.
const SMALL_BYTES: usize = 256;

/// Maximum number of small frames waiting on one connection: 128 KiB of queue slots.
const SMALL_MAX: usize = 512;

/// Maximum bytes received in between the waiting data frames.
const BESIDE_BYTES_MAX: usize = 128 << 10;

const PREFACE_BYTES: usize = 24;
const HEAD_BYTES: usize = 9;
/// Mask of the stream id; the highest bit is reserved.
const STREAM_BITS: u32 = u32::MAX >> 1;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
/// Flag of data frames that begin with the length of their trailing padding.
const PADDED: u8 = 8;

/// Maximum of the balance of unanswered calls.
const UNANSWERED_MAX: usize = 256;

/// Accounting of a connection's frames: calls, and received data frames that no call has read.
#[derive(Debug, Default)]
pub(super) struct Waiting(Mutex<Counts>);

#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    frames: usize,
    /// Number of small frames among them.
    small: usize,
    /// Bytes of other frames received in between.
    beside_bytes: usize,
    /// Highest stream id of a call.
    stream: u32,
    /// Balance of unanswered calls: every call adds one, every answered call subtracts two.
    unanswered: usize,
    /// Number of calls with a reader.
    readers: usize,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().expect("the lock is never poisoned: no code panics while holding it")
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

    /// Returns true if the client has ever made a call.
    pub(super) fn has_calls(&self) -> bool {
        self.lock().stream > 0
    }

    /// Records a complete response, which compensates for one call without a response.
    pub(super) fn answered(&self) {
        let mut counts = self.lock();
        counts.unanswered = counts.unanswered.saturating_sub(2);
    }

    /// Records that a call read a data frame, and removes the frame's part of the bytes in between.
    pub(super) fn read(&self, bytes: usize) {
        let mut counts = self.lock();
        counts.beside_bytes -= counts.beside_bytes / counts.frames.max(1);
        counts.frames = counts.frames.saturating_sub(1);
        counts.small = counts.small.saturating_sub(usize::from(bytes < SMALL_BYTES));
    }

    /// Records that a call's frames are being read.
    pub(super) fn reader_began(&self) {
        self.lock().readers += 1;
    }

    /// Records the end of a call's reader. Without any reader nothing waits, because the remaining frames are discarded.
    pub(super) fn reader_ended(&self) {
        let mut counts = self.lock();
        counts.readers -= 1;
        if counts.readers == 0 {
            *counts = Counts { stream: counts.stream, unanswered: counts.unanswered, ..Counts::default() };
        }
    }
}

/// A connection whose frames are inspected.
pub(super) struct Frames<S> {
    stream: S,
    waiting: Arc<Waiting>,
    /// Bytes to skip before the next frame header.
    pass: usize,
    head: [u8; HEAD_BYTES],
    /// Received bytes of the frame header.
    known: usize,
    /// Stream and length of a data frame whose padding length is not received yet.
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
        // The caller reads for as long as there is input.
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
    fn waiting_frames_are_counted_until_they_are_read() {
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
        // The result does not depend on how the bytes are split.
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

    /// Padding takes no queue memory, and its window is returned at once.
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
        waiting.came(HEADERS, 1, 50).expect("trailers do not count as a call");
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
        // Without waiting data, any frames are accepted.
        let waiting = Arc::new(Waiting::default());
        let mut frames = Frames::new((), waiting);
        frames.look_at(&[0; PREFACE_BYTES]).unwrap();
        frames.look_at(&frame(9, 16_000).repeat(100)).unwrap();
        frames.look_at(&frame(DATA, 1)).unwrap();
        frames.look_at(&frame(9, 16_000).repeat(8)).unwrap();
        assert!(frames.look_at(&frame(9, 16_000)).is_err());
    }
}
