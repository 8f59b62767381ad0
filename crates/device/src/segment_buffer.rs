//! The memory in which a log segment is built. One appender, many readers, and the kernel writing closed frames to a
//! device share the same bytes.
//!
//! ```text
//! 0            hole.start   hole.end             published = tail        capacity
//! | published   | open hole  | published          | not yet written       |
//! ```
//!
//! The bytes below `published` never change until the buffer is recycled, with one exception: the *hole*, a frame
//! header that is filled in when the frame closes. A slice may therefore cover all published bytes except those of the
//! open hole.
//!
//! Proof that a reader's slice is never written to and contains the appended bytes:
//!
//! 1. Only the [`Appender`] writes, there is one per buffer, and its methods take `&mut self`.
//! 2. It writes to bytes at or above `published`, and raises `published` (Release) after the write. A slice ends at or
//!    below the `published` that its reader loaded (Acquire), so such a write is either complete and visible, or above
//!    the slice.
//! 3. It writes to the open hole, and nowhere else below `published`. The hole is announced (Release) before
//!    `published` is raised past it, so a reader that loads `published` and *then* `hole` sees this announcement or a
//!    later value. If it sees the hole, a slice that touches it is refused. If it sees a later value (Acquire), the
//!    hole was filled before that value was stored (Release), and will not be written again.
//! 4. Recycling needs the only reference to the buffer, and slices borrow from a reference.
//!
//! A mapped file must not be written or truncated by another process while it is mapped; the device lock of its owner
//! ensures that. `mapped` allocates the blocks, so a full file system is an error there and not a SIGBUS in `append`.
#![expect(unsafe_code, reason = "readers borrow a part of memory that an appender writes elsewhere")]

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use memmap2::{MmapMut, MmapOptions};

use crate::BUFFER_ALIGNMENT;

/// No hole is open: an empty range overlaps nothing.
const NO_HOLE: u64 = 0;

/// The shared side of a segment under construction: published bytes can be borrowed from any thread.
pub struct SegmentBuffer {
    /// Owns the memory; only touched through `start`.
    _memory: MmapMut,
    start: NonNull<u8>,
    capacity: usize,
    published: AtomicUsize,
    /// Start (high half) and end (low half) of the open hole.
    hole: AtomicU64,
}

// SAFETY: `start` points into `_memory`, which moves between threads freely.
unsafe impl Send for SegmentBuffer {}
// SAFETY: shared access only returns slices that are never written to (see the proof at the top).
unsafe impl Sync for SegmentBuffer {}

/// The one writer of a [`SegmentBuffer`].
#[derive(Debug)]
pub struct Appender {
    buffer: Arc<SegmentBuffer>,
    tail: usize,
    hole: Option<Range<usize>>,
    /// Offset up to which all bytes belong to closed frames.
    closed: usize,
}

impl SegmentBuffer {
    /// Creates a buffer in private memory of this process.
    pub fn anonymous(bytes: usize) -> io::Result<Appender> {
        SegmentBuffer::check_size(bytes)?;
        Ok(SegmentBuffer::over(MmapMut::map_anon(bytes)?))
    }

    /// A shared mapping of `bytes` bytes of `file` from `offset`, which outlives this process but not a power failure.
    /// Allocates the file's blocks and keeps their content; the appender starts at zero.
    pub fn mapped(file: &File, offset: u64, bytes: usize) -> io::Result<Appender> {
        SegmentBuffer::check_size(bytes)?;
        if !offset.is_multiple_of(BUFFER_ALIGNMENT as u64) {
            let what = format!("a mapping starts on a multiple of {BUFFER_ALIGNMENT}, not at {offset}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        crate::file::allocate(file, offset, bytes as u64)?;
        // SAFETY: the file is long enough for the mapping, and by the rule at the top no other process writes to it or
        // truncates it.
        let memory = unsafe { MmapOptions::new().offset(offset).len(bytes).map_mut(file)? };
        Ok(SegmentBuffer::over(memory))
    }

    fn check_size(bytes: usize) -> io::Result<()> {
        if bytes == 0 || u32::try_from(bytes).is_err() {
            let what = format!("a segment buffer holds 1 to {} bytes, not {bytes}", u32::MAX);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Ok(())
    }

    fn over(mut memory: MmapMut) -> Appender {
        let start = NonNull::new(memory.as_mut_ptr()).expect("a mapping is never at address zero");
        let capacity = memory.len();
        let buffer = SegmentBuffer {
            _memory: memory,
            start,
            capacity,
            published: AtomicUsize::new(0),
            hole: AtomicU64::new(NO_HOLE),
        };
        Appender { buffer: Arc::new(buffer), tail: 0, hole: None, closed: 0 }
    }

    /// Returns published bytes. They do not change until the buffer is recycled, which the borrow prevents.
    ///
    /// # Panics
    ///
    /// If a byte of the range is not published, or belongs to the header of an open frame.
    pub fn slice(&self, range: Range<usize>) -> &[u8] {
        self.get(range.clone()).unwrap_or_else(|| {
            let (published, hole) = (self.published(), unpack(self.hole.load(Ordering::Acquire)));
            assert!(range.start <= range.end, "slice {range:?} ends before it starts");
            assert!(range.end <= published, "slice {range:?} of a segment buffer published to {published}");
            panic!("slice {range:?} of a segment buffer touches the open header {hole:?}")
        })
    }

    /// As [`slice`](Self::slice), but returns `None` instead of panicking.
    #[inline]
    pub fn get(&self, range: Range<usize>) -> Option<&[u8]> {
        // `published` is loaded before `hole`, because otherwise a hole that is opened and passed in between would be
        // missed.
        let published = self.published.load(Ordering::Acquire);
        let hole = unpack(self.hole.load(Ordering::Acquire));
        let ordered = range.start <= range.end && range.end <= published;
        if !ordered || !(hole.is_empty() || range.start >= hole.end || range.end <= hole.start) {
            return None;
        }
        // SAFETY: the range lies within the `published <= capacity` bytes of initialised memory. By steps 1 to 4 at the
        // top it is not written to while `self` is borrowed, and earlier writes happened before the loads above.
        Some(unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(range.start), range.len()) })
    }

    /// Returns the bytes from `start` up to the first byte that [`get`](Self::get) would refuse.
    #[inline]
    pub fn get_from(&self, start: usize) -> &[u8] {
        // Loaded in this order, as in `get`.
        let published = self.published();
        let hole = unpack(self.hole.load(Ordering::Acquire));
        let end = if hole.start >= start && !hole.is_empty() { published.min(hole.start) } else { published };
        self.get(start..end).unwrap_or(&[])
    }

    /// Returns the offset up to which the buffer is published. Below it, only the header of the open frame may be
    /// missing.
    pub fn published(&self) -> usize {
        self.published.load(Ordering::Acquire)
    }

    /// Returns the capacity in bytes.
    pub fn capacity(&self) -> usize {
        self.capacity
    }
}

impl fmt::Debug for SegmentBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SegmentBuffer")
            .field("capacity", &self.capacity)
            .field("published", &self.published())
            .finish()
    }
}

fn pack(hole: &Range<usize>) -> u64 {
    // Both ends fit: a buffer is shorter than 4 GiB (`check_size`).
    (hole.start as u64) << 32 | hole.end as u64
}

fn unpack(hole: u64) -> Range<usize> {
    (hole >> 32) as usize..(hole & u64::from(u32::MAX)) as usize
}

impl Appender {
    /// Returns the shared side, for reads and device writes.
    pub fn buffer(&self) -> Arc<SegmentBuffer> {
        self.buffer.clone()
    }

    /// Returns the number of bytes in use, including the open header and padding. The same as [`Appender::tail`].
    pub fn len(&self) -> usize {
        self.tail
    }

    /// True if no bytes are in use.
    pub fn is_empty(&self) -> bool {
        self.tail == 0
    }

    /// Returns the offset of the next append.
    pub fn tail(&self) -> usize {
        self.tail
    }

    /// Returns the capacity in bytes.
    pub fn capacity(&self) -> usize {
        self.buffer.capacity
    }

    /// Returns the number of bytes that still fit.
    pub fn remaining(&self) -> usize {
        self.capacity() - self.tail
    }

    /// Reserves `bytes` bytes at the tail for a header that is filled in when the frame closes. Returns its offset.
    ///
    /// # Panics
    ///
    /// If a header is open already, or the bytes do not fit.
    pub fn reserve_header(&mut self, bytes: usize) -> usize {
        assert!(self.hole.is_none(), "the header at {:?} is still open", self.hole);
        let hole = self.claim(bytes);
        // Announced before `published` passes it, because otherwise a reader could borrow the hole (step 3).
        self.buffer.hole.store(pack(&hole), Ordering::Release);
        let start = hole.start;
        self.hole = Some(hole);
        start
    }

    /// Copies `parts` to the tail, one after the other, and publishes them. Returns the offset of the first.
    ///
    /// # Panics
    ///
    /// If they do not fit.
    pub fn append(&mut self, parts: &[&[u8]]) -> usize {
        self.append_with(parts.iter().map(|part| part.len()).sum(), |target| {
            let mut at = 0;
            for part in parts {
                target[at..at + part.len()].copy_from_slice(part);
                at += part.len();
            }
        })
    }

    /// Lets `fill` write the next `bytes` bytes in place, and publishes them. In a recycled buffer `fill` sees the old
    /// bytes. Returns their offset. If `fill` panics, nothing is published and the appender stays usable.
    ///
    /// # Panics
    ///
    /// If they do not fit.
    pub fn append_with(&mut self, bytes: usize, fill: impl FnOnce(&mut [u8])) -> usize {
        let before = self.tail;
        let range = self.claim(bytes);
        self.tail = before;
        fill(self.unpublished(range.clone()));
        self.tail = range.end;
        self.buffer.published.store(range.end, Ordering::Release);
        range.start
    }

    /// Fills the open header, pads the tail with zeros to a multiple of `align`, and publishes everything. Returns the
    /// range from the end of the last closed frame (or the start) to the new tail: the bytes to write to the device.
    ///
    /// # Panics
    ///
    /// If no header is open, it has another length, or the padding does not fit.
    pub fn close(&mut self, header: &[u8], align: usize) -> Range<usize> {
        let hole = self.hole.clone().expect("a frame that is closed has an open header");
        assert_eq!(header.len(), hole.len(), "a header of {} bytes for the hole {hole:?}", header.len());
        let padded = self.tail.next_multiple_of(align);
        assert!(padded <= self.capacity(), "padding to {padded} of {} bytes", self.capacity());
        // SAFETY: the hole lies within the memory, and no slice covers it until the store of NO_HOLE below (step 3).
        // It is not padding: the tail is at or above its end.
        unsafe { self.target(hole).copy_from_slice(header) };
        let padding = self.tail..padded;
        self.unpublished(padding).fill(0);
        // The header is filled before the hole is closed, because otherwise a reader could borrow bytes that still
        // change.
        self.buffer.hole.store(NO_HOLE, Ordering::Release);
        self.buffer.published.store(padded, Ordering::Release);
        self.hole = None;
        self.tail = padded;
        std::mem::replace(&mut self.closed, padded)..padded
    }

    /// Restarts at offset zero with the same memory. Returns `self` as an error if other references to the buffer
    /// exist.
    pub fn recycle(mut self) -> Result<Appender, Appender> {
        if self.restart() { Ok(self) } else { Err(self) }
    }

    /// As [`Appender::recycle`], in place. Returns false if other references to the buffer exist.
    pub fn restart(&mut self) -> bool {
        // `get_mut` fails while any other reference exists, strong or weak, and synchronises with the drop of the last
        // one: every slice that was ever borrowed is gone.
        let Some(buffer) = Arc::get_mut(&mut self.buffer) else { return false };
        *buffer.published.get_mut() = 0;
        *buffer.hole.get_mut() = NO_HOLE;
        (self.tail, self.hole, self.closed) = (0, None, 0);
        true
    }

    /// Advances the tail by `bytes` bytes.
    fn claim(&mut self, bytes: usize) -> Range<usize> {
        assert!(
            bytes <= self.remaining(),
            "{bytes} bytes at {} of a buffer of {}",
            self.tail,
            self.capacity()
        );
        let start = self.tail;
        self.tail += bytes;
        start..self.tail
    }

    fn unpublished(&mut self, range: Range<usize>) -> &mut [u8] {
        // The tail is never below `published`, and readers stay below that.
        assert!(range.start >= self.buffer.published.load(Ordering::Relaxed), "{range:?} is published");
        // SAFETY: the range is within the memory (`claim`), and no slice covers it (step 2).
        unsafe { self.target(range) }
    }

    /// # Safety
    ///
    /// The range lies within the memory, and no reader's slice overlaps it while the result is in use.
    unsafe fn target(&mut self, range: Range<usize>) -> &mut [u8] {
        debug_assert!(range.end <= self.capacity());
        // SAFETY: by the contract; `&mut self` keeps the only appender from making a second one.
        unsafe { std::slice::from_raw_parts_mut(self.buffer.start.as_ptr().add(range.start), range.len()) }
    }
}

#[cfg(test)]
#[path = "segment_buffer_tests.rs"]
mod tests;
