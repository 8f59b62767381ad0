//! An open file or block device, and the parts that all backends of one share: geometry, counters, the checks before an
//! operation, and the blocking form of each operation.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
#[cfg(not(target_os = "linux"))]
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use esker_seeded_bugs::{Bug, planted};
use parking_lot::Mutex;

use crate::counters::Counters;
use crate::probe::Volume;
use crate::{BUFFER_ALIGNMENT, Buffer, DeviceError, DeviceKind, Geometry, OperationKind, WriteMode};

/// Maximum number of retries of an interrupted call without progress, before it counts as an error.
pub(crate) const RETRIES_MAX: u32 = 64;

/// Bytes per write when filling with zeros.
const FILL_BYTES: usize = 1 << 20;

pub(crate) struct DeviceFile {
    pub(crate) file: File,
    pub(crate) path: Arc<str>,
    pub(crate) counters: Counters,
    geometry: Geometry,
    bytes: AtomicU64,
    /// Held during a resize.
    resizing: Mutex<()>,
    /// False once the file system has reported that it does not support discard.
    discard: AtomicBool,
    volume: Volume,
    /// Write unit in bytes that the owner declared, or 0.
    unit_bytes: AtomicU32,
}

impl DeviceFile {
    pub(crate) fn new(file: File, path: Arc<str>, geometry: Geometry, volume: Volume) -> DeviceFile {
        DeviceFile {
            file,
            path,
            counters: Counters::default(),
            bytes: AtomicU64::new(geometry.bytes),
            resizing: Mutex::new(()),
            discard: AtomicBool::new(geometry.discard),
            geometry,
            volume,
            unit_bytes: AtomicU32::new(0),
        }
    }

    /// Returns the length of the longest piece of a write: that of one command, but at least a write unit, which the kernel
    /// cuts itself and submits at once. `None` if another layer cuts writes (a file system, or the page cache).
    pub(crate) fn longest_piece(&self, offset: u64, memory: &[u8]) -> Option<usize> {
        let limit = self.volume.limit?;
        let of_pages = memory.as_ptr().addr().is_multiple_of(crate::probe::page_bytes())
            && offset.is_multiple_of(crate::probe::page_bytes() as u64);
        let command = if of_pages { limit.of_pages } else { limit.of_memory };
        let unit = if planted(Bug::StripeSubmittedInParts) { 0 } else { self.unit_bytes() };
        Some(command.max(unit))
    }

    pub(crate) fn unit_bytes(&self) -> usize {
        self.unit_bytes.load(Ordering::Relaxed) as usize
    }

    pub(crate) fn set_unit_bytes(&self, bytes: u32) {
        self.unit_bytes.store(bytes, Ordering::Relaxed);
        if let Some(why) = self.why_not_whole(bytes) {
            tracing::warn!(path = %self.path, "write units of {bytes} bytes reach the device in parts: {why}");
        }
    }

    /// Returns the reason why units would not reach a block device whole, or `None` if they do.
    fn why_not_whole(&self, unit_bytes: u32) -> Option<String> {
        if self.geometry.kind != DeviceKind::Block {
            return None;
        }
        let start = self.volume.start_bytes;
        if !start.is_multiple_of(unit_bytes.into()) {
            return Some(format!("the partition begins at byte {start} of its disk, which is within a unit"));
        }
        let Some(limit) = self.volume.limit else {
            return (unit_bytes > crate::probe::PAGE_BYTES)
                .then(|| "without direct I/O the page cache writes single pages".to_owned());
        };
        let pages = crate::probe::page_bytes() <= BUFFER_ALIGNMENT;
        let longest = if pages { limit.of_pages } else { limit.of_memory };
        (longest < unit_bytes as usize).then(|| {
            format!(
                "one write command holds {longest} bytes for certain, so the kernel cuts each unit into several \
                 (see max_sectors_kb, max_segments and chunk_sectors of its queue in /sys/block)"
            )
        })
    }

    pub(crate) fn geometry(&self) -> Geometry {
        let mut geometry = self.geometry.clone();
        geometry.bytes = self.bytes.load(Ordering::Acquire);
        geometry.discard = self.discard.load(Ordering::Relaxed);
        geometry
    }

    pub(crate) fn block_bytes(&self) -> usize {
        self.geometry.block_bytes as usize
    }

    /// True if a durable write needs RWF_DSYNC, that is, unless the device is a block device without a volatile cache,
    /// opened for direct I/O.
    pub(crate) fn needs_dsync(&self, mode: WriteMode) -> bool {
        let plain_is_durable =
            self.geometry.kind == DeviceKind::Block && self.geometry.direct && !self.geometry.write_cache;
        mode == WriteMode::Durable && !plain_is_durable && !planted(Bug::PlainWriteBelieved)
    }

    /// Refuses operations that the kernel would refuse with a less clear error, or would execute beyond the end.
    pub(crate) fn check(&self, op: OperationKind, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        check(op, offset, bytes, self.geometry.block_bytes, self.bytes.load(Ordering::Acquire), &self.path)
    }

    pub(crate) fn error(
        &self,
        op: OperationKind,
        offset: u64,
        bytes: usize,
        source: io::Error,
    ) -> DeviceError {
        DeviceError::from_io(op, &self.path, offset, bytes as u64, source)
    }

    pub(crate) fn read(&self, offset: u64, buffer: &mut Buffer) -> Result<(), DeviceError> {
        let bytes = buffer.len();
        let block_bytes = self.geometry.block_bytes as usize;
        transfer(bytes, block_bytes, |done| read_at(&self.file, &mut buffer[done..], offset + done as u64))
            .map_err(|source| self.error(OperationKind::Read, offset, bytes, source))
    }

    pub(crate) fn write(&self, offset: u64, source: &[u8], dsync: bool) -> io::Result<()> {
        let block_bytes = self.geometry.block_bytes as usize;
        transfer(source.len(), block_bytes, |done| {
            write_at(&self.file, &source[done..], offset + done as u64, dsync)
        })
    }

    pub(crate) fn flush(&self) -> Result<(), DeviceError> {
        self.flush_by(sync_data)
    }

    /// Syncs exactly once, whatever the outcome: the kernel reports lost bytes only once, so a retry could succeed
    /// although bytes were lost. Not even an interrupted call is retried, because it may already have consumed such an
    /// error.
    fn flush_by(&self, sync: impl Fn(&File) -> io::Result<()>) -> Result<(), DeviceError> {
        let mut synced = sync(&self.file);
        if planted(Bug::FailedFlushRepeated) && synced.is_err() {
            synced = sync(&self.file);
        }
        synced.map_err(|source| self.error(OperationKind::Flush, 0, 0, source))
    }

    pub(crate) fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        if bytes == 0 || !self.discard.load(Ordering::Relaxed) {
            return Ok(());
        }
        match retry_interrupted(|| crate::probe::discard(&self.file, self.geometry.kind, offset, bytes)) {
            Ok(()) => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                tracing::warn!(path = %self.path, "discard is not supported here; freed space is not reported to it");
                self.discard.store(false, Ordering::Relaxed);
                Ok(())
            }
            Err(source) => {
                Err(DeviceError::from_io(OperationKind::Discard, &self.path, offset, bytes, source))
            }
        }
    }

    pub(crate) fn allocate(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        if bytes == 0 || self.geometry.kind != DeviceKind::File {
            return Ok(());
        }
        allocate(&self.file, offset, bytes).map_err(|source| {
            DeviceError::from_io(OperationKind::Allocate, &self.path, offset, bytes, source)
        })
    }

    pub(crate) fn room_bytes(&self) -> Option<u64> {
        let is_file = self.geometry.kind == DeviceKind::File;
        is_file.then(|| crate::probe::file_system_of(&self.file)).flatten().map(|it| it.available_bytes)
    }

    pub(crate) fn resize(&self, bytes: u64) -> Result<(), DeviceError> {
        let _alone = self.resizing.lock();
        let before = self.bytes.load(Ordering::Acquire);
        let set = |file: &File| match bytes.checked_sub(before).filter(|&more| more > 0) {
            Some(more) => allocate(file, before, more).inspect_err(|_| {
                // A full file system may have allocated some of the blocks; frees them for other files.
                let _ = file.set_len(before);
            }),
            None => retry_interrupted(|| file.set_len(bytes)),
        };
        self.set_length(bytes, set, sync_all)
    }

    pub(crate) fn extend(&self, bytes: u64) -> Result<(), DeviceError> {
        let _alone = self.resizing.lock();
        if bytes <= self.bytes.load(Ordering::Acquire) {
            return Ok(());
        }
        self.set_length(bytes, |file| retry_interrupted(|| file.set_len(bytes)), sync_all)
    }

    /// Changes the length of a file, durably. Serialised by `resizing`, because otherwise the file's length and `bytes`
    /// could end up different.
    fn set_length(
        &self,
        bytes: u64,
        set: impl FnOnce(&File) -> io::Result<()>,
        sync: impl Fn(&File) -> io::Result<()>,
    ) -> Result<(), DeviceError> {
        let block_bytes = u64::from(self.geometry.block_bytes);
        let before = self.bytes.load(Ordering::Acquire);
        if !bytes.is_multiple_of(block_bytes) {
            let what = format!("a size of {bytes} bytes is not a multiple of blocks of {block_bytes} bytes");
            return Err(DeviceError::invalid(&self.path, what));
        }
        // A file may end within a block; that partial block is not counted in `bytes`.
        let is_within = |file: &File| file.metadata().is_ok_and(|m| m.is_file() && m.len() != bytes);
        if bytes == before && !is_within(&self.file) {
            return Ok(());
        }
        if self.geometry.kind != DeviceKind::File {
            let what = format!("a block device of {before} bytes cannot be resized to {bytes} bytes");
            return Err(DeviceError::invalid(&self.path, what));
        }
        if bytes < before {
            // `bytes` shrinks before the file does, because otherwise the checks would let an operation through to the
            // range being cut off.
            self.bytes.store(bytes, Ordering::Release);
        }
        let outcome = set(&self.file)
            .map_err(|source| DeviceError::from_io(OperationKind::Resize, &self.path, bytes, 0, source))
            // A resize flushes everything; a failure of that flush is a failed flush.
            .and_then(|()| self.flush_by(sync));
        // After a failure the size is restored, because otherwise the same call again would find nothing to do and
        // succeed.
        self.bytes.store(if outcome.is_ok() { bytes } else { before }, Ordering::Release);
        outcome
    }
}

/// The checks that every backend makes before an operation.
pub(crate) fn check(
    op: OperationKind,
    offset: u64,
    bytes: u64,
    block_bytes: u32,
    device_bytes: u64,
    path: &Arc<str>,
) -> Result<(), DeviceError> {
    let block = u64::from(block_bytes);
    if !offset.is_multiple_of(block) || !bytes.is_multiple_of(block) {
        return Err(DeviceError::Unaligned { op, offset, bytes, block_bytes, path: path.clone() });
    }
    if offset.checked_add(bytes).is_none_or(|end| end > device_bytes) {
        return Err(DeviceError::OutOfRange { op, offset, bytes, device_bytes, path: path.clone() });
    }
    Ok(())
}

/// Repeats `step` until all bytes are transferred. A short step is followed by one for the remainder, starting at the
/// last whole block, because direct I/O cannot resume within a block. No progress is an error: EIO, or the error that
/// `step` reported.
fn transfer(
    bytes: usize,
    block_bytes: usize,
    mut step: impl FnMut(usize) -> io::Result<usize>,
) -> io::Result<()> {
    let mut done = 0;
    let mut retries = 0;
    while done < bytes {
        match step(done) {
            Ok(moved) => {
                done = progress(done, moved, bytes, block_bytes)?;
                retries = 0;
            }
            Err(error) if is_transient(&error) && retries < RETRIES_MAX => retries += 1,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns the bytes done after a step moved `moved` bytes, rounded down to whole blocks.
pub(crate) fn progress(done: usize, moved: usize, bytes: usize, block_bytes: usize) -> io::Result<usize> {
    let after = done + moved;
    assert!(after <= bytes, "{moved} bytes were transferred at {done} of {bytes}");
    let is_taken_for_whole = planted(Bug::ShortTransferIsWhole) && moved > 0;
    let whole = if after == bytes || is_taken_for_whole { bytes } else { after / block_bytes * block_bytes };
    if whole == done { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(whole) }
}

/// True if a retry may succeed.
pub(crate) fn is_transient(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN))
}

fn retry_interrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut retries = 0;
    loop {
        match call() {
            Err(error) if is_transient(&error) && retries < RETRIES_MAX => retries += 1,
            outcome => return outcome,
        }
    }
}

/// Allocates the blocks of a range of the file, extending it if it ends before. Keeps the existing content.
pub(crate) fn allocate(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    let end = offset.checked_add(bytes).ok_or_else(|| io::Error::from_raw_os_error(libc::EFBIG))?;
    let allocated = retry_interrupted(|| crate::probe::allocate(file, offset, bytes));
    match allocated {
        // The file system cannot preallocate, so zeros are written into the holes, which allocates them.
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => fill_holes(file, offset, end),
        outcome => outcome,
    }
}

// Called directly, because the standard library's functions retry an interrupted call.
#[cfg(target_os = "linux")]
fn sync_data(file: &File) -> io::Result<()> {
    Ok(rustix::fs::fdatasync(file)?)
}

#[cfg(target_os = "linux")]
fn sync_all(file: &File) -> io::Result<()> {
    Ok(rustix::fs::fsync(file)?)
}

#[cfg(not(target_os = "linux"))]
fn sync_data(file: &File) -> io::Result<()> {
    file.sync_data()
}

#[cfg(not(target_os = "linux"))]
fn sync_all(file: &File) -> io::Result<()> {
    file.sync_all()
}

/// Writes zeros to the holes of a file, up to `end`.
fn fill_holes(file: &File, offset: u64, end: u64) -> io::Result<()> {
    let zeros = Buffer::zeroed(FILL_BYTES);
    let mut at = offset;
    while at < end {
        let (hole, data) = crate::probe::next_hole(file, at, end)?;
        at = hole;
        while at < data {
            let bytes = (data - at).min(FILL_BYTES as u64) as usize;
            transfer(bytes, crate::probe::PAGE_BYTES as usize, |done| {
                write_at(file, &zeros[done..bytes], at + done as u64, false)
            })?;
            at += bytes as u64;
        }
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn read_at(file: &File, target: &mut [u8], offset: u64) -> io::Result<usize> {
    Ok(rustix::io::pread(file, target, offset)?)
}

#[cfg(target_os = "linux")]
fn write_at(file: &File, source: &[u8], offset: u64, dsync: bool) -> io::Result<usize> {
    let flags = if dsync { rustix::io::ReadWriteFlags::DSYNC } else { rustix::io::ReadWriteFlags::empty() };
    Ok(rustix::io::pwritev2(file, &[io::IoSlice::new(source)], offset, flags)?)
}

#[cfg(not(target_os = "linux"))]
fn read_at(file: &File, target: &mut [u8], offset: u64) -> io::Result<usize> {
    file.read_at(target, offset)
}

#[cfg(not(target_os = "linux"))]
fn write_at(file: &File, source: &[u8], offset: u64, dsync: bool) -> io::Result<usize> {
    let written = file.write_at(source, offset)?;
    if dsync {
        file.sync_data()?;
    }
    Ok(written)
}

impl Drop for DeviceFile {
    fn drop(&mut self) {
        crate::lock::unlock(&self.file);
    }
}

impl AsRawFd for DeviceFile {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.file.as_raw_fd()
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
