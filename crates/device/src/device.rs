//! The trait that every medium implements.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::{Buffer, DeviceCounters, DeviceError, Geometry, Pending, SegmentBuffer, Task};

/// Where a write takes its bytes from. Kept alive by the device until the write completes.
#[derive(Debug)]
pub enum Source {
    /// A buffer of its own, freed when the write completes.
    Owned(Buffer),
    /// A published part of a log segment that is being built.
    Shared {
        /// The segment's memory.
        buffer: Arc<SegmentBuffer>,
        /// Which bytes of it.
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

    /// How many bytes.
    pub fn len(&self) -> usize {
        match self {
            Source::Owned(buffer) => buffer.len(),
            Source::Shared { range, .. } => range.len(),
        }
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<Buffer> for Source {
    fn from(buffer: Buffer) -> Source {
        Source::Owned(buffer)
    }
}

/// What a completed write promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteMode {
    /// Reads see it; a later flush makes it durable.
    Plain,
    /// It is durable when it completes (RWF_DSYNC, which the kernel turns into FUA or a flush). Says nothing about
    /// other writes.
    Durable,
}

/// Where a drive puts a write: a drive that has placement handles (FDP; the kernel's write streams) erases nothing of two of
/// them together, so what is expected to die together shares one. 0: anywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PlacementHandle(pub u8);

/// A medium that holds bytes: a block device, a regular file, or memory.
///
/// * Offsets and lengths are multiples of [`Geometry::block_bytes`]; anything else is refused as
///   [`DeviceError::Unaligned`] without touching the medium.
/// * An operation succeeds as a whole or fails. After a failed write its range is undefined.
/// * Operations in flight at the same time happen in any order. Only this is ordered: a flush covers the writes that
///   *completed* before it was submitted.
/// * Submitting never blocks. The memory of what is in flight is the callers', and so is its bound.
pub trait Device: Send + Sync + 'static {
    /// Sizes, alignments and abilities.
    fn geometry(&self) -> Geometry;

    /// What to call the device in messages.
    fn path(&self) -> String;

    /// A buffer of `bytes` bytes, from the device's registered pool if one fits and is free, else from the heap. Its
    /// content is unspecified.
    fn buffer(&self, bytes: usize) -> Buffer;

    /// Fills the whole buffer from `offset`, or fails.
    fn read(&self, offset: u64, buffer: Buffer) -> Pending<(Buffer, Result<(), DeviceError>)>;

    /// As [`read`](Self::read), for work in the background that nobody waits for: it lets others go first where the
    /// device can tell them apart.
    fn read_background(&self, offset: u64, buffer: Buffer) -> Pending<(Buffer, Result<(), DeviceError>)> {
        self.read(offset, buffer)
    }

    /// Writes all of `source` at `offset`, or fails.
    fn write(&self, offset: u64, source: Source, mode: WriteMode) -> Pending<Result<(), DeviceError>>;

    /// As [`write`](Self::write), with a placement handle, at most [`Geometry::placement_handles`]. Where a device has none it
    /// says nothing.
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

    /// Makes every write durable that completed before this call. When it fails, none of them may be trusted to be
    /// durable, even if a later flush succeeds.
    fn flush(&self) -> Pending<Result<(), DeviceError>>;

    /// Tells the device that a range holds nothing of value. What it reads as afterwards is unspecified (zeros, the
    /// old bytes, noise), and so is whether that survives a power cut. Does nothing where it is not supported. On a
    /// file it frees the blocks, so that a later write to the range can fail as [`DeviceError::Full`].
    fn discard(&self, offset: u64, bytes: u64) -> Pending<Result<(), DeviceError>>;

    /// Sees to it that a file's blocks in a range exist, so that a later write there does not find the file system full.
    /// Keeps what they hold, and does nothing where there is no file. Needed after a [`discard`](Self::discard).
    fn allocate(&self, offset: u64, bytes: u64) -> Pending<Result<(), DeviceError>> {
        let _ = (offset, bytes);
        Pending::ready(Ok(()))
    }

    /// How many more bytes the file system has for a file that grows. `None` where the device has its space, or nobody
    /// knows. A quota may leave less.
    fn room_bytes(&self) -> Option<u64> {
        None
    }

    /// Grows or shrinks a regular file (or memory) to `bytes`, durably. Growing allocates the space, so that a full
    /// file system shows here and not in a later write.
    fn resize(&self, bytes: u64) -> Pending<Result<(), DeviceError>>;

    /// Makes a regular file (or memory) at least so long, durably, and takes no space for it: what is new reads as zeros, and
    /// a write there can fail as [`DeviceError::Full`] until the range was [allocated](Self::allocate).
    fn extend(&self, bytes: u64) -> Pending<Result<(), DeviceError>> {
        if bytes <= self.geometry().bytes {
            return Pending::ready(Ok(()));
        }
        self.resize(bytes)
    }

    /// Says that from now on every write is whole, aligned units of so many bytes, a power of two. A block device with
    /// direct I/O gets them whole, however it is asked; a warning is logged where that cannot be.
    fn set_write_unit(&self, bytes: u32) {
        let _ = bytes;
    }

    /// What the device was asked to do since it was opened.
    fn counters(&self) -> DeviceCounters;

    /// Runs a task on the thread that hears first when this device completes something, so that what the task asks of the
    /// device, and what it waits for there, passes to no other thread. Gives it back where there is no such thread.
    ///
    /// Whatever else completes waits while the task is polled, so that must be short. It is dropped unfinished with the
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
