//! How many bytes reads take at most, without any I/O.

use esker_index::{Cursor as IndexCursor, Pointer};
use esker_log::{MAX_KEY_BYTES, class_bytes};

use crate::read::Reader;
use crate::read::scan::Cursor;

impl Reader {
    pub(crate) fn bytes_hint(&self, key: &[u8]) -> usize {
        let hash = self.catalog.hash(key);
        self.catalog.index.get(&hash).map_or(0, |pointer| self.hint_at(pointer))
    }

    pub(crate) fn scan_bytes_hint(&self, cursor: Cursor, limit: usize) -> usize {
        self.pointers(cursor, limit).map(|pointer| self.hint_at(pointer)).sum()
    }

    pub(crate) fn scan_keys_bytes_hint(&self, cursor: Cursor, limit: usize) -> usize {
        self.pointers(cursor, limit).map(|pointer| self.hint_at(pointer).min(MAX_KEY_BYTES)).sum()
    }

    fn pointers(&self, cursor: Cursor, limit: usize) -> impl Iterator<Item = Pointer> + use<> {
        let (pointers, _) = self.catalog.index.scan(IndexCursor::from_u64(cursor.to_u64()), limit.max(1));
        pointers.into_iter()
    }

    fn hint_at(&self, pointer: Pointer) -> usize {
        let location = self.catalog.packing.unpack(pointer.get());
        class_bytes(location.class, location.offset).min(self.writer.max_value_bytes(0, true)) as usize
    }
}
