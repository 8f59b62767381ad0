//! Getting memory into the processor's cache before it is needed.

use esker_index::{KeyHash, Pointer};
use smallvec::SmallVec;

use crate::catalog::Catalog;
use crate::catalog::place::Place;
use crate::catalog::verify::ROW;
use crate::segments::buffers::HeldBuffered;

impl Catalog {
    /// Gets what puts will look at when they are published into the processor's cache: slots of the index, and the records
    /// that they may displace. Under the lane's lock each put would wait for its own.
    pub(crate) fn touch_displaced(&self, puts: impl Iterator<Item = KeyHash>) {
        let mut pointers = puts.filter_map(|hash| self.index.get(&hash)).peekable();
        while pointers.peek().is_some() {
            let row: SmallVec<[_; ROW]> = pointers.by_ref().take(ROW).collect();
            let buffered = self.space.buffered.hold();
            row.into_iter().for_each(|pointer| self.touch(pointer, &buffered));
        }
    }

    /// Gets a record's first bytes on their way into the processor's cache.
    pub(crate) fn touch(&self, pointer: Pointer, buffered: &HeldBuffered<'_>) {
        let Place { location, segment, .. } = self.unchecked_place(pointer);
        if let Some(segment_buffer) = buffered.find(location.tier, location.slot, segment) {
            let at = location.offset as usize;
            std::hint::black_box(segment_buffer.buffer.get(at..at + 1).map(|byte| byte[0]));
        }
    }
}
