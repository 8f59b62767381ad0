//! Memory for buckets, directly from the operating system: zero until touched, released page by page.
//!
//! The only file of this crate with unsafe code. Tables are allocated and freed in sizes that each exceed the previous one by a
//! tenth; on the heap they would leave holes that no later table fits into.
#![expect(unsafe_code, reason = "buckets in an anonymous mapping, whose pages can be given back")]

use std::io;
use std::ops::Range;
use std::ptr::NonNull;

use memmap2::{MmapMut, MmapOptions};

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
use crate::bucket::SLOTS;
use crate::bucket::{BUCKET_BYTES, Bucket};
use crate::slot::{Label, Layout};

/// A fixed number of buckets in an anonymous mapping, which lives as long as the region: released buckets read as empty slots
/// or as their previous content, never as anything else.
#[derive(Debug)]
pub(crate) struct Region {
    first: NonNull<Bucket>,
    count: usize,
    map: MmapMut,
}

// SAFETY: the region owns its mapping, and all access to it is through `&[Bucket]`, which is made of atomics.
unsafe impl Send for Region {}
// SAFETY: as above; `Bucket` is `Sync`, and `give_back` has only the effect of a store of zeros.
unsafe impl Sync for Region {}

impl Region {
    /// Maps address space for `count` empty buckets.
    pub(crate) fn new(count: usize) -> io::Result<Region> {
        let bytes = count.checked_mul(BUCKET_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut options = MmapOptions::new();
        options.len(bytes);
        // Most of the mapping is touched late, or never. Miri does not support such mappings.
        if !cfg!(miri) {
            options.no_reserve_swap();
        }
        let mut map = options.map_anon()?;
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

    /// Releases the pages in this range of bytes, which must start and end at a page boundary (or at the region's end). They
    /// read as empty slots or as before, until they are written.
    pub(crate) fn give_back(&self, bytes: Range<usize>) {
        assert!(bytes.start.is_multiple_of(page_bytes()) && bytes.end <= self.map.len());
        if bytes.is_empty() {
            return;
        }
        // Miri does not support the call, and does not need it.
        #[cfg(all(target_os = "linux", not(miri)))]
        {
            // SAFETY: the range lies in this private anonymous mapping, where the call has the effect of a store of
            // zeros to every slot in it, and those are atomics. It starts at a page, so memmap2 does not widen it.
            let advised = unsafe {
                let advice = memmap2::UncheckedAdvice::DontNeed;
                self.map.unchecked_advise_range(advice, bytes.start, bytes.len())
            };
            // A refusal costs only memory.
            debug_assert!(advised.is_ok(), "{advised:?}");
        }
    }

    /// Returns the huge pages that lie completely in the region and intersect this range of bytes.
    pub(crate) fn huge_pages(&self, bytes: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        // Huge pages are aligned in the address space; the region need not be.
        let shift = self.first.as_ptr().addr() % HUGE_PAGE_BYTES;
        let first = (bytes.start + shift) / HUGE_PAGE_BYTES;
        let end = (bytes.end + shift).div_ceil(HUGE_PAGE_BYTES);
        (first..end).filter_map(move |page| {
            let start = (page * HUGE_PAGE_BYTES).checked_sub(shift)?;
            (start + HUGE_PAGE_BYTES <= self.map.len()).then_some(start..start + HUGE_PAGE_BYTES)
        })
    }

    /// Requests huge pages for this range on first touch. Where the kernel has none, small pages are used.
    pub(crate) fn prefer_huge_pages(&self, bytes: Range<usize>) {
        #[cfg(all(target_os = "linux", not(miri)))]
        self.map.advise_range(memmap2::Advice::HugePage, bytes.start, bytes.len()).ok();
        #[cfg(not(all(target_os = "linux", not(miri))))]
        drop(bytes);
    }

    /// Collapses the pages in this range, one of [`Region::huge_pages`], into a huge page, keeping the content. Where the
    /// kernel does not do that (before Linux 6.1, or short of memory), look-ups have more TLB misses.
    pub(crate) fn collapse(&self, huge_page: Range<usize>) {
        assert!(huge_page.end <= self.map.len());
        #[cfg(all(target_os = "linux", not(miri)))]
        {
            let start = self.map.as_ptr().wrapping_add(huge_page.start).cast_mut().cast();
            // SAFETY: the range lies in this mapping, and the call changes no content that a program can see.
            let _ = unsafe { libc::madvise(start, huge_page.len(), libc::MADV_COLLAPSE) };
        }
    }
}

/// Bytes per huge page.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Returns the granularity of releasing memory in bytes.
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

/// Prefetches the cache line at the start of `at`. The processor continues at once, and so can start many such loads, while
/// ordinary loads would stall it after a few.
#[inline]
pub fn prefetch<T>(at: &T) {
    let at = std::ptr::from_ref(at);
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: it neither reads nor writes anything that a program can see, wherever it points.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) at, options(nostack, readonly, preserves_flags));
    }
    // Other processors fetch the line in the look-up itself.
    std::hint::black_box(at);
}

/// Returns a bit for every slot of the first bucket that has the first label, then of the second bucket and label. The slots
/// may have changed since; bits of empty slots may be set if a label is zero.
///
/// Examines all slots: the position is unpredictable, and a mispredicted branch costs more than the rest of a look-up.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub(crate) fn candidates(buckets: [&Bucket; 2], labels: [Label; 2], layout: Layout) -> u32 {
    let mask: u32;
    // SAFETY: reads 64 bytes from each of two references to as many aligned bytes, and writes only the registers named. The
    // bytes read are atomics that other threads may write: each aligned load here takes whole slots, and no load of this
    // processor is reordered with a later one, so the loads are equivalent to eight acquiring loads.
    unsafe {
        std::arch::asm!(
            // The label lies in the upper half: gather the upper halves of four slots, clear the pointer's bits, compare.
            "movd {m}, {layout:e}",
            "pshufd {m}, {m}, 0",
            "movdqa {a}, [{first}]",
            "movdqa {b}, [{first} + 32]",
            "movdqa {c}, [{second}]",
            "movdqa {d}, [{second} + 32]",
            "shufps {a}, [{first} + 16], 0xDD",
            "shufps {b}, [{first} + 48], 0xDD",
            "shufps {c}, [{second} + 16], 0xDD",
            "shufps {d}, [{second} + 48], 0xDD",
            "pand {a}, {m}",
            "pand {b}, {m}",
            "pand {c}, {m}",
            "pand {d}, {m}",
            "movd {x}, {label:e}",
            "movd {y}, {other:e}",
            "pshufd {x}, {x}, 0",
            "pshufd {y}, {y}, 0",
            "pcmpeqd {a}, {x}",
            "pcmpeqd {b}, {x}",
            "pcmpeqd {c}, {y}",
            "pcmpeqd {d}, {y}",
            "packssdw {a}, {b}",
            "packssdw {c}, {d}",
            "packsswb {a}, {c}",
            "pmovmskb {mask:e}, {a}",
            first = in(reg) std::ptr::from_ref(buckets[0]),
            second = in(reg) std::ptr::from_ref(buckets[1]),
            layout = in(reg) layout.upper_mask(),
            label = in(reg) labels[0].upper(),
            other = in(reg) labels[1].upper(),
            mask = lateout(reg) mask,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            x = out(xmm_reg) _,
            y = out(xmm_reg) _,
            m = out(xmm_reg) _,
            options(nostack, readonly, preserves_flags),
        );
    }
    mask
}

/// Returns a bit for every slot of the first bucket that has the first label, then of the second bucket and label.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline]
pub(crate) fn candidates(buckets: [&Bucket; 2], labels: [Label; 2], layout: Layout) -> u32 {
    let has = |side: usize, position: usize| buckets[side].load(position).has(layout, labels[side]);
    (0..2 * SLOTS).fold(0, |bits, bit| bits | u32::from(has(bit / SLOTS, bit % SLOTS)) << bit)
}
