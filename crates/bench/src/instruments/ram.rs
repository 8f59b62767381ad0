//! A device in memory without overhead: the bytes, once, and the counters. (The in-memory device of the
//! device crate also models power failures, which takes twice the memory and three copies per write.)

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use esker_device::{
    Buffer, Device, DeviceCounters, DeviceError, Geometry, OperationKind, Pending, Source, WriteMode,
};
use parking_lot::RwLock;

const CHUNK_BYTES: usize = 1 << 20;

/// Memory as a device. Chunks that were never written take no memory.
pub(crate) struct RamDevice {
    path: Arc<str>,
    geometry: Geometry,
    chunks: Vec<RwLock<Option<Box<[u8]>>>>,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    write_bytes: AtomicU64,
    flushes: AtomicU64,
    discards: AtomicU64,
    discard_bytes: AtomicU64,
}

impl RamDevice {
    /// A device of `bytes` bytes, a multiple of 512.
    pub(crate) fn new(path: &str, bytes: u64) -> RamDevice {
        assert!(bytes.is_multiple_of(512), "{bytes} bytes are not whole blocks");
        let chunks = (bytes as usize).div_ceil(CHUNK_BYTES);
        RamDevice {
            path: path.into(),
            geometry: Geometry::memory(bytes),
            chunks: (0..chunks).map(|_| RwLock::new(None)).collect(),
            counters: Counters::default(),
        }
    }

    fn check(&self, op: OperationKind, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        let (path, block_bytes) = (self.path.clone(), self.geometry.block_bytes);
        if !(offset | bytes).is_multiple_of(u64::from(block_bytes)) {
            return Err(DeviceError::Unaligned { op, offset, bytes, block_bytes, path });
        }
        if offset.checked_add(bytes).is_none_or(|end| end > self.geometry.bytes) {
            let what = format!(
                "{op} of {bytes} bytes at offset {offset} ends behind the device's {} bytes",
                self.geometry.bytes
            );
            return Err(DeviceError::Invalid { path, what });
        }
        Ok(())
    }

    /// Returns the chunks of a range: the chunk's number, the range within it, and the matching part of
    /// the whole range.
    fn parts(
        offset: u64,
        bytes: usize,
    ) -> impl Iterator<Item = (usize, std::ops::Range<usize>, std::ops::Range<usize>)> {
        let mut done = 0;
        std::iter::from_fn(move || {
            let at = offset as usize + done;
            let within = at % CHUNK_BYTES;
            let count = (CHUNK_BYTES - within).min(bytes - done);
            let part = done..done + count;
            done += count;
            (count > 0).then_some((at / CHUNK_BYTES, within..within + count, part))
        })
    }
}

impl Device for RamDevice {
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
        let bytes = buffer.len();
        if let Err(error) = self.check(OperationKind::Read, offset, bytes as u64) {
            return Pending::ready((buffer, Err(error)));
        }
        self.counters.reads.fetch_add(1, Relaxed);
        self.counters.read_bytes.fetch_add(bytes as u64, Relaxed);
        for (chunk, within, part) in RamDevice::parts(offset, bytes) {
            match &*self.chunks[chunk].read() {
                Some(chunk) => buffer[part].copy_from_slice(&chunk[within]),
                None => buffer[part].fill(0),
            }
        }
        Pending::ready((buffer, Ok(())))
    }

    fn write(&self, offset: u64, source: Source, _: WriteMode) -> Pending<Result<(), DeviceError>> {
        let bytes = source.as_slice();
        if let Err(error) = self.check(OperationKind::Write, offset, bytes.len() as u64) {
            return Pending::ready(Err(error));
        }
        self.counters.writes.fetch_add(1, Relaxed);
        self.counters.write_bytes.fetch_add(bytes.len() as u64, Relaxed);
        for (chunk, within, part) in RamDevice::parts(offset, bytes.len()) {
            let mut chunk = self.chunks[chunk].write();
            let chunk = chunk.get_or_insert_with(|| vec![0; CHUNK_BYTES].into());
            chunk[within].copy_from_slice(&bytes[part]);
        }
        Pending::ready(Ok(()))
    }

    fn flush(&self) -> Pending<Result<(), DeviceError>> {
        self.counters.flushes.fetch_add(1, Relaxed);
        Pending::ready(Ok(()))
    }

    fn discard(&self, offset: u64, bytes: u64) -> Pending<Result<(), DeviceError>> {
        if let Err(error) = self.check(OperationKind::Discard, offset, bytes) {
            return Pending::ready(Err(error));
        }
        self.counters.discards.fetch_add(1, Relaxed);
        self.counters.discard_bytes.fetch_add(bytes, Relaxed);
        for (chunk, within, _) in RamDevice::parts(offset, bytes as usize) {
            let mut chunk = self.chunks[chunk].write();
            if within.len() == CHUNK_BYTES {
                *chunk = None;
            } else if let Some(chunk) = &mut *chunk {
                chunk[within].fill(0);
            }
        }
        Pending::ready(Ok(()))
    }

    fn resize(&self, bytes: u64) -> Pending<Result<(), DeviceError>> {
        let what = format!("memory of {} bytes cannot become {bytes} bytes", self.geometry.bytes);
        Pending::ready(Err(DeviceError::Invalid { path: self.path.clone(), what }))
    }

    fn counters(&self) -> DeviceCounters {
        let of = |counter: &AtomicU64| counter.load(Relaxed);
        let mut counters = DeviceCounters::default();
        counters.reads = of(&self.counters.reads);
        counters.read_bytes = of(&self.counters.read_bytes);
        counters.writes = of(&self.counters.writes);
        counters.write_bytes = of(&self.counters.write_bytes);
        counters.flushes = of(&self.counters.flushes);
        counters.discards = of(&self.counters.discards);
        counters.discard_bytes = of(&self.counters.discard_bytes);
        counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(device: &RamDevice, offset: u64, bytes: usize) -> Vec<u8> {
        let (buffer, read) = device.read(offset, device.buffer(bytes)).wait();
        read.expect("the read succeeds");
        buffer.to_vec()
    }

    #[test]
    fn raw_file_holds_writes_across_chunks() {
        let device = RamDevice::new("ram", 4 << 20);
        let bytes: Vec<u8> = (0..2 << 20).map(|at| (at / 512 % 251) as u8 + 1).collect();
        let offset = (1 << 20) - 512;
        let write = device.write(offset, Buffer::copy_from(&bytes).into(), WriteMode::Plain);
        write.wait().expect("the write succeeds");
        assert!(read(&device, offset, bytes.len()) == bytes);
        assert_eq!(read(&device, 0, 512), vec![0; 512]);
        device.discard(1 << 20, 1 << 20).wait().expect("the discard succeeds");
        assert_eq!(read(&device, 1 << 20, 512), vec![0; 512]);
        assert_eq!(read(&device, offset, 512), bytes[..512]);
        let counters = device.counters();
        assert_eq!((counters.writes, counters.write_bytes), (1, 2 << 20));
        assert_eq!((counters.discards, counters.discard_bytes), (1, 1 << 20));
    }

    #[test]
    fn unaligned_or_outside_access_is_refused() {
        let device = RamDevice::new("ram", 1 << 20);
        let at = |offset, bytes| device.write(offset, Buffer::zeroed(bytes).into(), WriteMode::Plain).wait();
        assert!(matches!(at(1, 512), Err(DeviceError::Unaligned { .. })));
        assert!(matches!(at(1 << 20, 512), Err(DeviceError::Invalid { .. })));
        assert!(matches!(at(u64::MAX - 511, 512), Err(DeviceError::Invalid { .. })));
        assert_eq!(device.counters().writes, 0);
    }
}
