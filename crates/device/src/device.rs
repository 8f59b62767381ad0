//! The trait that every medium implements.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::{Buffer, DeviceCounters, DeviceError, Geometry, Pending, SegmentBuffer, Task};

/// The source of a write's bytes. The device keeps it alive until the write completes.
#[derive(Debug)]
pub enum Source {
    /// A buffer owned by the write, freed when the write completes.
    Owned(Buffer),
    /// A published part of a log segment that is being built.
    Shared {
        /// The segment's memory.
        buffer: Arc<SegmentBuffer>,
        /// The byte range of the buffer to write.
        range: Range<usize>,
    },
}

impl Source {
    /// The bytes to write.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Source::Owned(buffer) => buffer,
            Source::Shared { buffer, range } => buffer.slice(range.clone()),
        }
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Source::Owned(buffer) => buffer.len(),
            Source::Shared { range, .. } => range.len(),
        }
    }

    /// True if there are no bytes to write.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<Buffer> for Source {
    fn from(buffer: Buffer) -> Source {
        Source::Owned(buffer)
    }
}

/// The durability of a completed write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteMode {
    /// Visible to reads; a later flush makes it durable.
    Plain,
    /// Durable when it completes (RWF_DSYNC, which the kernel turns into FUA or a flush). Implies nothing about other
    /// writes.
    Durable,
}

/// Placement handle of a write. A drive with placement handles (FDP; write streams of the kernel) never puts data of
/// two handles into the same erase unit, so data that is expected to be freed together shares a handle. 0: no
/// placement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PlacementHandle(pub u8);

/// A medium that holds bytes: a block device, a regular file, or memory.
///
/// * Offsets and lengths are multiples of [`Geometry::block_bytes`]; otherwise the operation fails with
///   [`DeviceError::Unaligned`] and does not touch the medium.
/// * An operation succeeds as a whole or fails. After a failed write the content of its range is undefined.
/// * Operations in flight are unordered, with one exception: a flush covers all writes that *completed* before the
///   flush was submitted.
/// * Submitting never blocks. The caller bounds the operations in flight and the memory that they hold.
pub trait Device: Send + Sync + 'static {
    /// Returns sizes, alignments and capabilities.
    fn geometry(&self) -> Geometry;

    /// Returns the name of the device for messages.
    fn path(&self) -> String;

    /// Returns a buffer of `bytes` bytes, from the device's registered pool if a fitting slot is free, else from the
    /// heap. Its content is unspecified.
    fn buffer(&self, bytes: usize) -> Buffer;

    /// Fills the whole buffer from `offset`, or fails.
    fn read(&self, offset: u64, buffer: Buffer) -> Pending<(Buffer, Result<(), DeviceError>)>;

    /// As [`read`](Self::read), for background work: foreground reads take precedence if the device can tell the two
    /// apart.
    fn read_background(&self, offset: u64, buffer: Buffer) -> Pending<(Buffer, Result<(), DeviceError>)> {
        self.read(offset, buffer)
    }

    /// Writes all of `source` at `offset`, or fails.
    fn write(&self, offset: u64, source: Source, mode: WriteMode) -> Pending<Result<(), DeviceError>>;

    /// As [`write`](Self::write), with a placement handle of at most [`Geometry::placement_handles`]. A device without
    /// placement handles ignores it.
    fn write_placed(
        &self,
        offset: u64,
        source: Source,
        mode: WriteMode,
        handle: PlacementHandle,
    ) -> Pending<Result<(), DeviceError>> {
        let _ = handle;
        self.write(offset, source, mode)
    }

    /// Makes all writes durable that completed before this call. If it fails, none of them may be assumed durable, even
    /// if a later flush succeeds.
    fn flush(&self) -> Pending<Result<(), DeviceError>>;

    /// Discards a range (TRIM, or hole punching in a file). Afterwards the range reads as unspecified bytes (zeros, the
    /// old bytes, noise), which may change at a power failure. Does nothing if the device does not support it. In a
    /// file it frees the blocks, so a later write to the range can fail with [`DeviceError::Full`].
    fn discard(&self, offset: u64, bytes: u64) -> Pending<Result<(), DeviceError>>;

    /// Allocates the blocks of a range of a file and keeps their content, so that a later write to the range cannot
    /// fail because the file system is full. Does nothing for other media. Needed after a [`discard`](Self::discard).
    fn allocate(&self, offset: u64, bytes: u64) -> Pending<Result<(), DeviceError>> {
        let _ = (offset, bytes);
        Pending::ready(Ok(()))
    }

    /// Returns the number of free bytes of the file system by which the file could grow; a quota may allow less. `None`
    /// if the device is not a file or the number is unknown.
    fn room_bytes(&self) -> Option<u64> {
        None
    }

    /// Resizes a regular file (or memory) to `bytes`, durably. Growing allocates the space, so that a full file system
    /// fails this call and not a later write.
    fn resize(&self, bytes: u64) -> Pending<Result<(), DeviceError>>;

    /// Extends a regular file (or memory) to at least `bytes`, durably and without allocating space: the new range
    /// reads as zeros, and a write to it can fail with [`DeviceError::Full`] until the range is
    /// [allocated](Self::allocate).
    fn extend(&self, bytes: u64) -> Pending<Result<(), DeviceError>> {
        if bytes <= self.geometry().bytes {
            return Pending::ready(Ok(()));
        }
        self.resize(bytes)
    }

    /// Declares that from now on every write consists of whole, aligned units of `bytes` bytes, a power of two. A block
    /// device with direct I/O then issues commands of whole units only. A unit longer than one command is submitted to the
    /// kernel as one write, which the kernel cuts; logs a warning then, and if units cannot be kept whole.
    fn set_write_unit(&self, bytes: u32) {
        let _ = bytes;
    }

    /// Returns the operation counters since the device was opened.
    fn counters(&self) -> DeviceCounters;

    /// Runs a task on the thread that reaps this device's completions, so that operations which the task submits and
    /// awaits are never handed to another thread. Returns the task if the device has no such thread.
    ///
    /// The task's polls delay all other completions, so they must be short. The task is dropped unfinished with the
    /// device. `name` appears in messages.
    fn spawn_on_io_thread(&self, name: &'static str, task: Task) -> Option<Task> {
        let _ = name;
        Some(task)
    }
}

impl fmt::Debug for dyn Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("path", &self.path()).field("geometry", &self.geometry()).finish()
    }
}
