//! Upper bounds of the bytes that reads take, without any I/O.

use esker_index::{Pointer, Step};
use esker_log::{MAX_KEY_BYTES, class_bytes};

use crate::catalog::records::LARGE_BYTES;
use crate::read::Reader;
use crate::read::probe::Probe;
use crate::read::scan::Cursor;

impl Reader {
    pub(crate) fn bytes_hint(&self, database: u8, key: &[u8]) -> usize {
        self.probed_bytes_hint(&self.probe(database, key))
    }

    pub(crate) fn probed_bytes_hint(&self, probe: &Probe<'_>) -> usize {
        probe.pointer.map_or(0, |pointer| self.hint_at(pointer))
    }

    pub(crate) fn scan_bytes_hint(&self, database: u8, cursor: Cursor, limit: usize) -> usize {
        self.step_bytes(database, cursor, limit, |bytes| bytes)
    }

    pub(crate) fn scan_keys_bytes_hint(&self, database: u8, cursor: Cursor, limit: usize) -> usize {
        self.step_bytes(database, cursor, limit, |bytes| bytes.min(MAX_KEY_BYTES))
    }

    /// Of displaced records, only the heads are read, a few at a time; a key that is only found there is then read from
    /// its current record.
    fn step_bytes(&self, database: u8, cursor: Cursor, limit: usize, of: impl Fn(usize) -> usize) -> usize {
        let Some((keyspace, at)) = self.position(database, cursor) else { return 0 };
        let Step { current, displaced, .. } = self.catalog.index.scan(keyspace, at, limit.max(1));
        let bytes = |pointer: &Pointer| of(self.hint_at(*pointer));
        current.iter().map(bytes).sum::<usize>() + displaced.iter().map(bytes).max().unwrap_or(0)
    }

    fn hint_at(&self, pointer: Pointer) -> usize {
        let location = self.catalog.packing.unpack(pointer.get());
        let most = self.writer.max_value_bytes(0, true);
        let value = self.catalog.expansions.in_memory(location.class).min(most);
        // Until it is decompressed, the stored value is in memory too, unless it is small: then it is in the device's
        // memory.
        let beside = class_bytes(location.class, location.offset).min(most);
        let is_beside = self.catalog.expansions.are_there(location.class) && beside >= LARGE_BYTES as u64;
        (value + if is_beside { beside } else { 0 }) as usize
    }
}
