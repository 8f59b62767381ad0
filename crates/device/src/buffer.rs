//! Memory that the kernel can transfer to and from: aligned for O_DIRECT, with one owner at a time.
//!
//! A [`Buffer`] comes from the heap or from a [`Pool`], one slab of memory cut into slots of a few sizes which a
//! backend can register with the kernel once. Dropping a buffer returns its slot to the pool; the slab lives until the
//! last buffer is dropped, so buffers may outlive their device.
//!
//! Threads: a `Buffer` has one owner and moves freely; a `Pool` is shared and never blocks.
#![expect(unsafe_code, reason = "aligned memory that a kernel writes to has no safe owner in std")]

use std::alloc::{self, Layout};
use std::fmt;
use std::io;
#[cfg(target_os = "linux")]
use std::ops::Range;
use std::ops::{Deref, DerefMut, RangeBounds};
use std::ptr::NonNull;
use std::sync::Arc;

use bytes::Bytes;
use crossbeam_queue::ArrayQueue;
use memmap2::MmapMut;

#[cfg(target_os = "linux")]
use crate::probe;

/// Alignment in bytes of every buffer: the strictest that O_DIRECT is known to require.
pub const BUFFER_ALIGNMENT: usize = 4096;

/// Minimum length in bytes of a buffer that is backed by huge pages, if the kernel has some. A direct transfer pins
/// each page of its buffer and describes it to the device: for 16 MiB, 4,096 small pages or 8 huge ones.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Slot sizes of a pool in bytes, and the share of the slab (in 16ths) that each gets. The largest is for sequential
/// writes: an allocator would map and unmap that much every time.
const CLASSES: [(usize, usize); 6] =
    [(4 << 10, 4), (8 << 10, 2), (16 << 10, 2), (32 << 10, 2), (64 << 10, 2), (256 << 10, 4)];

/// Owned, initialised memory whose start is aligned to [`BUFFER_ALIGNMENT`].
pub struct Buffer {
    start: NonNull<u8>,
    len: usize,
    home: Home,
}

enum Home {
    Heap(Layout),
    Slot { pool: Arc<Pool>, class: usize },
}

// SAFETY: a buffer is the only owner of its memory, as a `Box<[u8]>` is; nothing in it is tied to a thread.
unsafe impl Send for Buffer {}
// SAFETY: a shared reference gives only shared access to the bytes.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// `len` bytes of zeros from the heap.
    pub fn zeroed(len: usize) -> Buffer {
        let alignment = if len >= HUGE_PAGE_BYTES { HUGE_PAGE_BYTES } else { BUFFER_ALIGNMENT };
        let layout = Layout::from_size_align(len.max(1), alignment)
            .expect("a buffer is shorter than the address space");
        // SAFETY: the layout's size is at least one.
        let start = unsafe { alloc::alloc(layout) };
        let Some(start) = NonNull::new(start) else { alloc::handle_alloc_error(layout) };
        #[cfg(all(target_os = "linux", not(miri)))]
        if len >= HUGE_PAGE_BYTES {
            let whole = len / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
            // Only advice: without huge pages the memory works too, but slower.
            // SAFETY: `whole` bytes from `start` are whole pages, all of them in memory that was just allocated.
            unsafe { libc::madvise(start.as_ptr().cast(), whole, libc::MADV_HUGEPAGE) };
        }
        // SAFETY: `start` points to `layout.size()` bytes that were just allocated and have no other owner.
        unsafe { start.as_ptr().write_bytes(0, layout.size()) };
        Buffer { start, len, home: Home::Heap(layout) }
    }

    /// Returns a heap buffer with a copy of `bytes`.
    pub fn copy_from(bytes: &[u8]) -> Buffer {
        let mut buffer = Buffer::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }

    /// Shortens the buffer to `len` bytes. Its memory stays allocated until the buffer is dropped.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Returns the maximum length for [`fit`](Self::fit).
    pub fn capacity(&self) -> usize {
        match &self.home {
            Home::Heap(layout) => layout.size(),
            Home::Slot { class, .. } => CLASSES[*class].0,
        }
    }

    /// Sets the length to `len` bytes for reuse. Returns false if the memory is too small. The content is unspecified.
    pub fn fit(&mut self, len: usize) -> bool {
        let fits = len <= self.capacity();
        if fits {
            self.len = len;
        }
        fits
    }

    /// True if the memory is on the heap, not a slot of a pool that others may be waiting for.
    pub fn is_own(&self) -> bool {
        matches!(self.home, Home::Heap(_))
    }

    /// True if a reader may keep this memory for an unbounded time: it is on the heap, or a slot of a class of which
    /// more than a quarter is free.
    pub fn is_spare(&self) -> bool {
        match &self.home {
            Home::Heap(_) => true,
            Home::Slot { pool, class } => pool.free[*class].len() > pool.free[*class].capacity() / 4,
        }
    }

    /// Shortens the buffer to `len` bytes, and returns the memory after it to the system if the buffer is on the heap.
    pub fn shrink(&mut self, len: usize) {
        self.truncate(len);
        #[cfg(target_os = "linux")]
        if let Home::Heap(layout) = &self.home {
            let pages = whole_pages(self.start.addr().get(), self.len, layout.size(), probe::page_bytes());
            if !pages.is_empty() {
                // SAFETY: the range consists of whole system pages, by address and not only by distance from the start,
                // between `len` and the end of memory that this buffer alone owns. So it contains no byte of another
                // owner, and its content is not needed. It reads as zeros afterwards, so it stays initialised.
                unsafe {
                    let start = self.start.as_ptr().add(pages.start);
                    #[cfg(not(miri))]
                    libc::madvise(start.cast(), pages.len(), libc::MADV_DONTNEED);
                    // Miri does not support the call; this has the same effect.
                    #[cfg(miri)]
                    start.write_bytes(0, pages.len());
                };
            }
        }
    }

    /// Returns a part of the buffer as [`Bytes`], without a copy. The whole buffer (including a pool slot) stays in use
    /// until the last clone is dropped, so copy bytes that are kept for long.
    pub fn into_bytes(self, range: impl RangeBounds<usize>) -> Bytes {
        Bytes::from_owner(self).slice(range)
    }

    /// True if the memory is a slot of `pool`, and therefore registered with the ring that the pool is registered with.
    pub(crate) fn is_from(&self, pool: &Arc<Pool>) -> bool {
        matches!(&self.home, Home::Slot { pool: home, .. } if Arc::ptr_eq(home, pool))
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` points to at least `len` initialised bytes that this buffer alone owns; all memory is zeroed
        // on allocation, so this holds for every later `len`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let home = match self.home {
            Home::Heap(_) => "heap",
            Home::Slot { .. } => "pool",
        };
        f.debug_struct("Buffer").field("len", &self.len).field("home", &home).finish()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        match &self.home {
            // SAFETY: allocated in `zeroed` with this very layout, freed only here.
            Home::Heap(layout) => unsafe { alloc::dealloc(self.start.as_ptr(), *layout) },
            Home::Slot { pool, class } => pool.give_back(*class, self.start),
        }
    }
}

/// Returns the whole pages of `page_bytes` bytes within the bytes `from..to` of memory that begins at address `start`.
/// The kernel rounds the length of a released range up to whole pages, and the memory may begin within a page if pages
/// are larger than [`BUFFER_ALIGNMENT`].
#[cfg(target_os = "linux")]
fn whole_pages(start: usize, from: usize, to: usize, page_bytes: usize) -> Range<usize> {
    let first = (start + from).next_multiple_of(page_bytes) - start;
    let end = ((start + to) / page_bytes * page_bytes).saturating_sub(start);
    first..end.max(first)
}

/// A slab cut into slots of a few sizes.
pub(crate) struct Pool {
    slab: MmapMut,
    start: NonNull<u8>,
    /// Per size class, the byte offsets of free slots.
    free: Vec<ArrayQueue<usize>>,
}

// SAFETY: `start` is the address of `slab`, which is Send and Sync; slots are handed out to one owner at a time.
unsafe impl Send for Pool {}
// SAFETY: as above; the free lists are concurrent queues.
unsafe impl Sync for Pool {}

impl Pool {
    /// Returns a pool over about `bytes` bytes of memory, which is touched only when used.
    pub(crate) fn new(bytes: usize) -> io::Result<Arc<Pool>> {
        let mut slab = MmapMut::map_anon(bytes.max(BUFFER_ALIGNMENT))?;
        let start = NonNull::new(slab.as_mut_ptr()).expect("a mapping is never at address zero");
        let mut next = 0;
        let mut free = Vec::new();
        for (slot_bytes, share) in CLASSES {
            let count = bytes / 16 * share / slot_bytes;
            let slots = ArrayQueue::new(count.max(1));
            for _ in 0..count {
                slots.push(next).expect("the queue has room for every slot");
                next += slot_bytes;
            }
            free.push(slots);
        }
        assert!(next <= slab.len(), "slots of {next} bytes in a slab of {}", slab.len());
        Ok(Arc::new(Pool { slab, start, free }))
    }

    /// Takes a slot of at least `len` bytes; `None` if all slots that fit are in use. Its content is unspecified.
    pub(crate) fn take(self: &Arc<Pool>, len: usize) -> Option<Buffer> {
        let class = CLASSES.iter().position(|(slot_bytes, _)| len <= *slot_bytes)?;
        // A slot up to four times too large is better than memory that is not registered.
        (class..CLASSES.len().min(class + 3)).find_map(|class| {
            let offset = self.free[class].pop()?;
            // SAFETY: the offset of a slot lies within the slab (asserted in `new`).
            let start = unsafe { self.start.add(offset) };
            Some(Buffer { start, len, home: Home::Slot { pool: self.clone(), class } })
        })
    }

    fn give_back(&self, class: usize, start: NonNull<u8>) {
        let offset = start.as_ptr() as usize - self.start.as_ptr() as usize;
        self.free[class].push(offset).expect("a slot was given back twice");
    }

    /// Start and length of the slab, for registration.
    pub(crate) fn slab(&self) -> (*mut u8, usize) {
        (self.start.as_ptr(), self.slab.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_spare_until_a_quarter_is_left() {
        let pool = Pool::new(64 << 10).unwrap();
        // The pool has four slots of 4 KiB.
        let taken: Vec<Buffer> = (0..3).map(|_| pool.take(4096).unwrap()).collect();
        assert!(!taken[0].is_spare(), "one is left");
        drop(taken);
        let taken: Vec<Buffer> = (0..2).map(|_| pool.take(4096).unwrap()).collect();
        assert!(taken[1].is_spare() && Buffer::zeroed(1).is_spare(), "two are left");
    }

    #[test]
    fn heap_buffers_are_aligned_and_zero() {
        let large: &[usize] = if cfg!(miri) { &[] } else { &[2 << 20, (5 << 20) + 1] };
        for len in [0, 1, 511, 512, 4096, 70_000].iter().chain(large).copied() {
            let buffer = Buffer::zeroed(len);
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.as_ptr() as usize % BUFFER_ALIGNMENT, 0);
            assert!(buffer.iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn a_buffer_is_used_again_up_to_its_first_length() {
        let pool = Pool::new(64 << 10).unwrap();
        for mut buffer in [Buffer::zeroed(4096), pool.take(4096).unwrap()] {
            assert!(buffer.fit(100) && buffer.len() == 100);
            assert!(!buffer.fit(4097) && buffer.len() == 100);
            assert!(buffer.fit(4096) && buffer.iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn a_shrunk_buffer_keeps_its_start_and_can_be_made_long_again() {
        const LONG: usize = if cfg!(miri) { 16 << 10 } else { 1 << 20 };
        for len in [4096, 10_000, LONG] {
            let mut buffer = Buffer::zeroed(len);
            buffer.fill(7);
            buffer.shrink(5000);
            assert!(buffer.len() == len.min(5000) && buffer.iter().all(|byte| *byte == 7));
            assert!(buffer.fit(len));
            assert!(buffer[..len.min(5000)].iter().all(|byte| *byte == 7));
            if len == LONG {
                let behind = 5000usize.next_multiple_of(probe::page_bytes()) + probe::page_bytes();
                let given_back = behind..LONG - probe::page_bytes();
                assert!(buffer[given_back].iter().all(|byte| *byte == 0), "its memory was given back");
            }
        }
    }

    /// Foreign memory begins directly after a buffer, and ends directly before it.
    #[test]
    fn only_pages_without_foreign_bytes_are_given_back() {
        const KIB: usize = 1 << 10;
        for page_bytes in [4 * KIB, 16 * KIB, 64 * KIB] {
            let page = page_bytes * 100;
            assert_eq!(
                whole_pages(page, 5000, 4 * page_bytes, page_bytes),
                5000usize.next_multiple_of(page_bytes)..4 * page_bytes
            );
            // The heap aligns to 4 KiB, whatever the page size.
            for into_page in (0..page_bytes).step_by(4 * KIB) {
                for (from, to) in [(0, 20 * KIB), (1, 70_000), (5000, 128 * KIB), (4096, 4097), (100, 100)] {
                    let start = page + into_page;
                    let pages = whole_pages(start, from, to, page_bytes);
                    if pages.is_empty() {
                        continue;
                    }
                    assert!(from <= pages.start && pages.end <= to, "{pages:?} of {from}..{to}");
                    assert!((start + pages.start).is_multiple_of(page_bytes), "{pages:?} at {start}");
                    assert!(pages.len().is_multiple_of(page_bytes), "{pages:?}");
                }
            }
        }
        assert_eq!(whole_pages(4 * KIB, 0, 16 * KIB, 16 * KIB), 12 * KIB..12 * KIB, "no whole page");
        assert_eq!(whole_pages(4 * KIB, 0, 28 * KIB, 16 * KIB), 12 * KIB..28 * KIB);
        assert_eq!(whole_pages(60 * KIB, 5000, 68 * KIB, 64 * KIB), 68 * KIB..68 * KIB);
        assert_eq!(whole_pages(60 * KIB, 4000, 68 * KIB, 64 * KIB), 4 * KIB..68 * KIB);
    }

    #[test]
    #[cfg_attr(miri, ignore = "a megabyte byte by byte takes minutes")]
    fn slots_are_disjoint_and_come_back() {
        let pool = Pool::new(1 << 20).unwrap();
        let mut taken = Vec::new();
        for fill in 0.. {
            let Some(mut buffer) = pool.take(4096) else { break };
            buffer.fill(fill as u8);
            taken.push((fill as u8, buffer));
        }
        assert!(
            taken.len() >= 80,
            "a quarter of 1 MiB in 4 KiB slots, and larger ones after them: {}",
            taken.len()
        );
        for (fill, buffer) in &taken {
            assert_eq!(buffer.as_ptr() as usize % BUFFER_ALIGNMENT, 0);
            assert!(buffer.iter().all(|byte| byte == fill));
        }
        let count = taken.len();
        taken.clear();
        let again: Vec<Buffer> = std::iter::from_fn(|| pool.take(4096)).collect();
        assert_eq!(again.len(), count);
        assert!(pool.take((256 << 10) + 1).is_none());
    }

    #[test]
    fn bytes_keep_the_slot_until_dropped() {
        let pool = Pool::new(64 << 10).unwrap();
        let mut buffer = pool.take(4000).unwrap();
        buffer[7] = 42;
        let bytes = buffer.into_bytes(7..8);
        let held: Vec<Buffer> = std::iter::from_fn(|| pool.take(4096)).collect();
        assert_eq!(&bytes[..], &[42]);
        drop(pool);
        drop(held);
        assert_eq!(&bytes[..], &[42], "the slab outlives its pool handle");
    }
}
