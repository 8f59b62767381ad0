//! Memory for buckets, straight from the operating system: zero until touched, given back page by page.
//!
//! The only file of this crate with unsafe code. Tables come and go in sizes that each exceed the last by a tenth;
//! from the heap they would leave holes that nothing fits into.
#![expect(unsafe_code, reason = "buckets in an anonymous mapping, whose pages can be given back")]

use std::io;
use std::ops::Range;
use std::ptr::NonNull;

use memmap2::{MmapMut, MmapOptions};

use crate::bucket::{BUCKET_BYTES, Bucket};

/// A fixed number of buckets in an anonymous mapping. The mapping lives as long as this does: what was given back
/// reads as empty slots or as what it was, never as anything else.
#[derive(Debug)]
pub(crate) struct Region {
    first: NonNull<Bucket>,
    count: usize,
    map: MmapMut,
}

// SAFETY: the region owns its mapping, and all access to it is through `&[Bucket]`, which is made of atomics.
unsafe impl Send for Region {}
// SAFETY: as above; `Bucket` is `Sync`, and `give_back` only does what a store of zeros would.
unsafe impl Sync for Region {}

impl Region {
    /// Address space for so many buckets, all of them empty.
    pub(crate) fn new(count: usize) -> io::Result<Region> {
        let bytes = count.checked_mul(BUCKET_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
        // Without a reservation of swap: most of it is touched late, or never.
        let mut map = MmapOptions::new().len(bytes).no_reserve_swap().map_anon()?;
        let first = NonNull::new(map.as_mut_ptr().cast::<Bucket>()).ok_or(io::ErrorKind::OutOfMemory)?;
        assert!(first.is_aligned(), "a mapping starts at a page");
        Ok(Region { first, count, map })
    }

    #[inline]
    pub(crate) fn buckets(&self) -> &[Bucket] {
        // SAFETY: `first` is aligned for `Bucket` and starts `count * BUCKET_BYTES` mapped, readable and writable
        // bytes, which stay mapped until `self.map` is dropped, after every borrow of `self`. Zeros, and any other
        // content, are valid atomics. Nothing makes a reference to the mapping but this function, so there is no
        // `&mut` to alias.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }

    /// Gives the pages in this range of bytes back, which must start and end at a page (or at the region's end).
    /// They read as empty slots or as before, until they are written to.
    pub(crate) fn give_back(&self, bytes: Range<usize>) {
        assert!(bytes.start.is_multiple_of(page_bytes()) && bytes.end <= self.map.len());
        if bytes.is_empty() {
            return;
        }
        #[cfg(target_os = "linux")]
        {
            // SAFETY: the range lies in this private anonymous mapping, where the call has the effect of a store of
            // zeros to every slot in it, and those are atomics. It starts at a page, so memmap2 does not widen it.
            let advised = unsafe {
                let advice = memmap2::UncheckedAdvice::DontNeed;
                self.map.unchecked_advise_range(advice, bytes.start, bytes.len())
            };
            // A refusal costs memory and nothing else.
            debug_assert!(advised.is_ok(), "{advised:?}");
        }
    }
}

/// The granularity in which memory is given back.
pub(crate) fn page_bytes() -> usize {
    #[cfg(unix)]
    {
        rustix::param::page_size()
    }
    #[cfg(not(unix))]
    {
        4096
    }
}
