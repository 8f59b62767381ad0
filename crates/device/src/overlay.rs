//! A copy-on-write device: reads come from an immutable base, writes are kept in memory. A store on it can be opened
//! and recovered as usual without changing the base.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::counters::Counters;
use crate::file::check;
use crate::{
    Buffer, Device, DeviceCounters, DeviceError, Geometry, OperationKind, Pending, ReadAt, Source, WriteMode,
};

const PAGE_BYTES: u64 = 4096;

/// Written pages in memory over a read-only base. Operations run on the calling thread.
pub struct Overlay {
    base: Arc<dyn ReadAt>,
    path: Arc<str>,
    geometry: Geometry,
    /// Written pages, by page number.
    pages: Mutex<BTreeMap<u64, Box<[u8]>>>,
    counters: Counters,
}

impl Overlay {
    /// Returns a device that is `room_bytes` longer than its base.
    pub fn over(base: Arc<dyn ReadAt>, room_bytes: u64) -> Overlay {
        let bytes = (base.bytes() + room_bytes).next_multiple_of(PAGE_BYTES);
        let geometry = Geometry {
            block_bytes: PAGE_BYTES as u32,
            discard: false,
            write_cache: false,
            ..Geometry::memory(bytes)
        };
        let path = base.path().into();
        Overlay { base, path, geometry, pages: Mutex::default(), counters: Counters::default() }
    }

    /// Returns the bytes of written pages kept in memory.
    pub fn kept_bytes(&self) -> u64 {
        self.pages.lock().len() as u64 * PAGE_BYTES
    }

    fn check(&self, kind: OperationKind, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        check(kind, offset, bytes, self.geometry.block_bytes, self.geometry.bytes, &self.path)
    }

    fn error(&self, kind: OperationKind, offset: u64, bytes: u64, source: io::Error) -> DeviceError {
        DeviceError::from_io(kind, &self.path, offset, bytes, source)
    }

    fn read_now(&self, offset: u64, buffer: &mut Buffer) -> Result<(), DeviceError> {
        let bytes = buffer.len() as u64;
        self.check(OperationKind::Read, offset, bytes)?;
        self.base
            .read_at(offset, buffer)
            .map_err(|source| self.error(OperationKind::Read, offset, bytes, source))?;
        let first = offset / PAGE_BYTES;
        for (page, kept) in self.pages.lock().range(first..first + bytes / PAGE_BYTES) {
            buffer[part(page - first)].copy_from_slice(kept);
        }
        Ok(())
    }

    fn write_now(&self, offset: u64, source: &[u8]) -> Result<(), DeviceError> {
        self.check(OperationKind::Write, offset, source.len() as u64)?;
        let mut pages = self.pages.lock();
        for (page, bytes) in (offset / PAGE_BYTES..).zip(source.chunks(PAGE_BYTES as usize)) {
            pages.insert(page, bytes.into());
        }
        Ok(())
    }
}

fn part(page: u64) -> Range<usize> {
    (page * PAGE_BYTES) as usize..((page + 1) * PAGE_BYTES) as usize
}

impl Device for Overlay {
    fn geometry(&self) -> Geometry {
        self.geometry.clone()
    }

    fn path(&self) -> String {
        self.path.to_string()
    }

    fn buffer(&self, bytes: usize) -> Buffer {
        Buffer::zeroed(bytes)
    }

    fn read(&self, offset: u64, mut buffer: Buffer) -> Pending<(Buffer, Result<(), DeviceError>)> {
        self.counters.read(buffer.len());
        let read = self.read_now(offset, &mut buffer);
        self.counters.completed();
        Pending::ready((buffer, read))
    }

    fn write(&self, offset: u64, source: Source, _: WriteMode) -> Pending<Result<(), DeviceError>> {
        self.counters.write(source.len());
        let written = self.write_now(offset, source.as_slice());
        self.counters.completed();
        Pending::ready(written)
    }

    fn flush(&self) -> Pending<Result<(), DeviceError>> {
        Pending::ready(Ok(()))
    }

    fn discard(&self, _: u64, _: u64) -> Pending<Result<(), DeviceError>> {
        Pending::ready(Ok(()))
    }

    fn resize(&self, bytes: u64) -> Pending<Result<(), DeviceError>> {
        let refused = io::Error::from(io::ErrorKind::Unsupported);
        Pending::ready(Err(self.error(OperationKind::Resize, 0, bytes, refused)))
    }

    fn counters(&self) -> DeviceCounters {
        self.counters.snapshot()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlay_read_merges_writes_with_data_below() {
        let below = Arc::new(vec![1; 10_000]);
        let overlay = Overlay::over(below.clone(), 4096);
        assert_eq!(overlay.geometry().bytes, 16384);
        let two = Source::Owned(Buffer::copy_from(&[2; 4096]));
        overlay.write(4096, two, WriteMode::Durable).wait().expect("it fits");
        let (read, result) = overlay.read(0, Buffer::zeroed(16384)).wait();
        result.expect("it can be read");
        let wanted = [(0..4096, 1), (4096..8192, 2), (8192..10_000, 1), (10_000..16384, 0)];
        for (range, byte) in wanted {
            assert!(read[range.clone()].iter().all(|found| *found == byte), "{range:?}");
        }
        assert_eq!(overlay.kept_bytes(), 4096);
        assert!(below.iter().all(|byte| *byte == 1), "the data below is unchanged");
        let beyond = Source::Owned(Buffer::zeroed(4096));
        assert!(overlay.write(16384, beyond, WriteMode::Plain).wait().is_err());
    }
}
