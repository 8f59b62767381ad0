//! Frames: a head with length, version, kind, request and checksum, and a payload. See the documentation of [`wire`](super).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use esker_seeded_bugs::{Bug, planted};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Instant, timeout};

/// Version of the frames of the hello and of refusals. Their format never changes, because the hello chooses the version.
pub(super) const HELLO_VERSION: u8 = 0;

/// Length of a head in bytes.
pub(super) const HEAD_BYTES: usize = 18;
/// Bytes of the head that the checksum covers, before the payload.
const CHECKED_BYTES: usize = HEAD_BYTES - 4;

/// Bytes of a payload that are allocated before any of it has arrived.
const FIRST_BYTES_MAX: usize = 1 << 20;

/// Kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Hello = 1,
    Challenge = 2,
    Proof = 3,
    Welcome = 4,
    Refused = 5,
    Request = 6,
    Response = 7,
    Ping = 8,
}

impl Kind {
    const ALL: [Kind; 8] = [
        Kind::Hello,
        Kind::Challenge,
        Kind::Proof,
        Kind::Welcome,
        Kind::Refused,
        Kind::Request,
        Kind::Response,
        Kind::Ping,
    ];
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Length of the payload in bytes.
    pub(super) length: usize,
    pub(super) kind: Kind,
    /// Number of the request; 0 where there is none.
    pub(super) id: u64,
    /// CRC-32C of the head before it and the payload.
    checksum: u32,
    /// CRC-32C of the head before the checksum, to be continued over the payload.
    begun: u32,
}

/// The reason why bytes are no frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FrameError {
    #[error("a frame has version {0}, and {1} was agreed on")]
    Version(u8, u8),
    #[error("a frame has the unknown kind {0}")]
    Kind(u8),
    #[error("a frame's checksum does not match")]
    Checksum,
}

impl Head {
    /// Decodes a head. The payload is not there yet, so its checksum is compared later.
    pub(super) fn decode(bytes: &[u8; HEAD_BYTES], version: u8) -> Result<Head, FrameError> {
        let mut rest = &bytes[..];
        let length = rest.get_u32_le() as usize;
        let (of, number) = (rest.get_u8(), rest.get_u8());
        let is_refusal = of == HELLO_VERSION && number == Kind::Refused as u8;
        if of != version && !is_refusal {
            return Err(FrameError::Version(of, version));
        }
        let kind = Kind::ALL.into_iter().find(|kind| *kind as u8 == number);
        let kind = kind.ok_or(FrameError::Kind(number))?;
        let begun = crc32c::crc32c(&bytes[..CHECKED_BYTES]);
        Ok(Head { length, kind, id: rest.get_u64_le(), checksum: rest.get_u32_le(), begun })
    }

    /// Compares the checksum.
    pub(super) fn check(&self, payload: &[u8]) -> Result<(), FrameError> {
        let is_whole =
            crc32c::crc32c_append(self.begun, payload) == self.checksum || planted(Bug::WireChecksumIgnored);
        is_whole.then_some(()).ok_or(FrameError::Checksum)
    }
}

/// Returns a frame; `put` appends its payload.
pub(super) fn frame(version: u8, kind: Kind, id: u64, put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = vec![0; HEAD_BYTES];
    put(&mut bytes);
    seal(&mut bytes, version, kind, id);
    bytes
}

/// Writes the head of a frame into the first [`HEAD_BYTES`] bytes, before the payload.
pub(super) fn seal(bytes: &mut [u8], version: u8, kind: Kind, id: u64) {
    let length = (bytes.len() - HEAD_BYTES) as u32;
    let mut head = &mut bytes[..CHECKED_BYTES];
    head.put_u32_le(length);
    head.put_u8(version);
    head.put_u8(kind as u8);
    head.put_u64_le(id);
    let head = crc32c::crc32c(&bytes[..CHECKED_BYTES]);
    let checksum = crc32c::crc32c_append(head, &bytes[HEAD_BYTES..]);
    bytes[CHECKED_BYTES..HEAD_BYTES].copy_from_slice(&checksum.to_le_bytes());
}

/// The time at which bytes of a node arrived last, on any of its connections.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    started: Instant,
    /// Milliseconds since `started`, plus one; 0 for never.
    at: Arc<AtomicU64>,
}

impl Heard {
    pub(super) fn never() -> Heard {
        Heard { started: Instant::now(), at: Arc::default() }
    }

    pub(super) fn note(&self) {
        self.at.store(self.started.elapsed().as_millis() as u64 + 1, Ordering::Relaxed);
    }

    /// Returns true if bytes arrived within the last `window`.
    pub(super) fn is_within(&self, window: Duration) -> bool {
        let at = self.at.load(Ordering::Relaxed);
        at > 0 && self.started.elapsed().as_millis() as u64 + 1 - at <= window.as_millis() as u64
    }
}

/// Reads frames.
pub(super) struct FrameReader<R> {
    from: R,
    /// Maximum time without a byte.
    silence_max: Duration,
    heard: Option<Heard>,
    version: u8,
}

fn invalid(error: FrameError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(super) fn new(from: R, version: u8, silence_max: Duration, heard: Option<Heard>) -> FrameReader<R> {
        FrameReader { from, silence_max, heard, version }
    }

    async fn fill(&mut self, mut to: impl BufMut) -> io::Result<usize> {
        let read = timeout(self.silence_max, self.from.read_buf(&mut to)).await;
        let read = read.unwrap_or_else(|_| {
            let what = format!("nothing arrived for {:?}", self.silence_max);
            Err(io::Error::new(io::ErrorKind::TimedOut, what))
        })?;
        if read == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the other side closed the connection"));
        }
        if let Some(heard) = &self.heard {
            heard.note();
        }
        Ok(read)
    }

    /// Reads a head.
    pub(super) async fn head(&mut self) -> io::Result<Head> {
        let mut bytes = [0; HEAD_BYTES];
        let mut at = 0;
        while at < HEAD_BYTES {
            at += self.fill(&mut bytes[at..]).await?;
        }
        Head::decode(&bytes, self.version).map_err(invalid)
    }

    /// Reads the payload after a head, whose length the caller has checked.
    pub(super) async fn payload(&mut self, head: &Head) -> io::Result<Bytes> {
        let mut payload = BytesMut::with_capacity(head.length.min(FIRST_BYTES_MAX));
        while payload.len() < head.length {
            let left = head.length - payload.len();
            if payload.capacity() == payload.len() {
                payload.reserve(left.min(payload.len()));
            }
            self.fill((&mut payload).limit(left)).await?;
        }
        head.check(&payload).map_err(invalid)?;
        Ok(payload.freeze())
    }

    /// Reads a frame of one kind with a payload of at most `bytes_max`, or a refusal. Other frames are errors.
    pub(super) async fn expect(&mut self, kind: Kind, bytes_max: usize) -> io::Result<(Head, Bytes)> {
        let head = self.head().await?;
        if head.kind != kind && head.kind != Kind::Refused {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a frame {:?} where {kind:?} was expected", head.kind),
            ));
        }
        check_length(&head, bytes_max)?;
        let payload = self.payload(&head).await?;
        Ok((head, payload))
    }
}

/// Checks the length of a payload before memory for it is allocated.
pub(super) fn check_length(head: &Head, bytes_max: usize) -> io::Result<()> {
    if head.length > bytes_max && !planted(Bug::WireLengthIgnored) {
        let (kind, length) = (head.kind, head.length);
        let what = format!("a frame {kind:?} has {length} bytes, and at most {bytes_max} are accepted");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(())
}
