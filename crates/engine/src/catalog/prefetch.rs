//! Prefetches memory into the processor's cache.

use esker_index::{KeyHash, Pointer, prefetch};
use smallvec::SmallVec;

use crate::catalog::Catalog;
use crate::catalog::place::Place;
use crate::catalog::verify::ROW;
use crate::segments::buffers::HeldBuffered;

/// Bytes of a record that are prefetched: all of a short record. For a long one, the hardware prefetcher takes over.
const FETCHED_BYTES: usize = 192;
const CACHE_LINE_BYTES: usize = 64;

impl Catalog {
    /// Prefetches the memory that the publication of these puts will read: index slots, and the records that the puts
    /// may displace. Without it, each put would wait for its own cache misses under the lane's lock.
    pub(crate) fn touch_displaced(&self, puts: impl Iterator<Item = KeyHash>) {
        let mut puts = puts.peekable();
        while puts.peek().is_some() {
            let row: SmallVec<[_; ROW]> = puts.by_ref().take(ROW).collect();
            row.iter().for_each(|hash| self.index.prefetch(hash));
            let buffered = self.space.buffered.hold();
            let pointers = row.iter().filter_map(|hash| self.index.get(hash));
            pointers.for_each(|pointer| self.touch(pointer, &buffered));
        }
    }

    /// Prefetches the first bytes of a record.
    pub(crate) fn touch(&self, pointer: Pointer, buffered: &HeldBuffered) {
        let Place { location, segment, .. } = self.unchecked_place(pointer);
        if let Some(buffered_segment) = buffered.find(location.tier, location.slot, segment) {
            let at = location.offset as usize;
            for line in (at..at + FETCHED_BYTES).step_by(CACHE_LINE_BYTES) {
                if let Some([byte]) = buffered_segment.buffer.get(line..line + 1) {
                    prefetch(byte);
                }
            }
        }
    }
}
