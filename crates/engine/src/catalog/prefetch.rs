//! Getting memory into the processor's cache before it is needed.

use esker_index::{KeyHash, Pointer, prefetch};
use smallvec::SmallVec;

use crate::catalog::Catalog;
use crate::catalog::place::Place;
use crate::catalog::verify::ROW;
use crate::segments::buffers::HeldBuffered;

/// What is fetched of a record: a short one as a whole. The processor itself goes on with a long one.
const FETCHED_BYTES: usize = 192;
const CACHE_LINE_BYTES: usize = 64;

impl Catalog {
    /// Gets what puts will look at when they are published into the processor's cache: slots of the index, and the records
    /// that they may displace. Under the lane's lock each put would wait for its own.
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

    /// Gets a record's first bytes on their way into the processor's cache.
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
