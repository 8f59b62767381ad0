//! The error type of this crate. Messages name the operation, its position and the limit that it exceeded.

use std::fmt;
use std::io;
use std::sync::Arc;

/// An operation on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OperationKind {
    /// Opening, probing and locking the device.
    Open,
    /// Reading a range.
    Read,
    /// Writing a range.
    Write,
    /// Making completed writes durable.
    Flush,
    /// Discarding a range.
    Discard,
    /// Allocating the blocks of a range of a file.
    Allocate,
    /// Resizing a file.
    Resize,
}

impl fmt::Display for OperationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OperationKind::Open => "open",
            OperationKind::Read => "read",
            OperationKind::Write => "write",
            OperationKind::Flush => "flush",
            OperationKind::Discard => "discard",
            OperationKind::Allocate => "allocate",
            OperationKind::Resize => "resize",
        })
    }
}

/// The limit that an operation exceeded when it found no space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// Space of the device, the file system, a quota, or an in-memory device (ENOSPC, EDQUOT).
    Space,
    /// The maximum size of a file (EFBIG): of the process (RLIMIT_FSIZE) or of the file system.
    FileSize,
}

impl Shortage {
    /// Returns the limit behind a system error: [`Shortage::FileSize`] for EFBIG, else [`Shortage::Space`].
    pub fn of(error: &io::Error) -> Shortage {
        if error.raw_os_error() == Some(libc::EFBIG) { Shortage::FileSize } else { Shortage::Space }
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Shortage::Space => "no space left",
            Shortage::FileSize => {
                "the file may not be so large: raise the limit of the process (ulimit -f, LimitFSIZE= in systemd), or use a file \
                 system with larger files"
            }
        })
    }
}

/// The reason why an operation on a device failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DeviceError {
    /// The operating system reported an error. After a failed write the content of the range is undefined. After a
    /// failed flush no write that it covered may be assumed durable, even if a later flush succeeds.
    Io {
        /// The failed operation.
        op: OperationKind,
        /// Byte offset on the device.
        offset: u64,
        /// Length in bytes.
        bytes: u64,
        /// The device.
        path: Arc<str>,
        /// The system error.
        source: Arc<io::Error>,
    },
    /// No space is left for the operation, or the file has reached its maximum size.
    Full {
        /// The limit that was exceeded.
        shortage: Shortage,
        /// The failed operation.
        op: OperationKind,
        /// Byte offset on the device.
        offset: u64,
        /// Length in bytes.
        bytes: u64,
        /// The device.
        path: Arc<str>,
    },
    /// The device disappeared (ENODEV, ENXIO). Later operations cannot be expected to succeed.
    Vanished {
        /// The failed operation.
        op: OperationKind,
        /// Byte offset on the device.
        offset: u64,
        /// Length in bytes.
        bytes: u64,
        /// The device.
        path: Arc<str>,
    },
    /// Another process, or another handle of this process, has the device open.
    Locked {
        /// The device.
        path: Arc<str>,
        /// The process that holds the lock, if it could be determined.
        holder: String,
    },
    /// An invalid request or path, independent of the state of the medium.
    Invalid {
        /// The device.
        path: Arc<str>,
        /// The problem, with the value and the limit.
        what: String,
    },
    /// Offset or length is not a multiple of the logical block size.
    Unaligned {
        /// The failed operation.
        op: OperationKind,
        /// Byte offset on the device.
        offset: u64,
        /// Length in bytes.
        bytes: u64,
        /// The required alignment in bytes.
        block_bytes: u32,
        /// The device.
        path: Arc<str>,
    },
    /// The range extends beyond the end of the device.
    OutOfRange {
        /// The failed operation.
        op: OperationKind,
        /// Byte offset on the device.
        offset: u64,
        /// Length in bytes.
        bytes: u64,
        /// The size of the device.
        device_bytes: u64,
        /// The device.
        path: Arc<str>,
    },
}

impl std::error::Error for DeviceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            DeviceError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceError::Locked { path, holder } => {
                return write!(f, "{path} is in use by {holder}; a device can be open only once");
            }
            DeviceError::Invalid { path, what } => return write!(f, "{path}: {what}"),
            DeviceError::Io { op, offset, bytes, path, .. }
            | DeviceError::Full { op, offset, bytes, path, .. }
            | DeviceError::Vanished { op, offset, bytes, path }
            | DeviceError::Unaligned { op, offset, bytes, path, .. }
            | DeviceError::OutOfRange { op, offset, bytes, path, .. } => {
                write!(f, "{op} of {bytes} bytes at offset {offset} of {path}")?;
            }
        }
        match self {
            DeviceError::Io { source, .. } => write!(f, ": {source}"),
            DeviceError::Full { shortage, .. } => write!(f, ": {shortage}"),
            DeviceError::Unaligned { block_bytes, .. } => {
                write!(f, " is not aligned to blocks of {block_bytes} bytes")
            }
            DeviceError::OutOfRange { device_bytes, .. } => {
                write!(f, " ends beyond its {device_bytes} bytes")
            }
            DeviceError::Vanished { .. } => f.write_str(": the device has vanished"),
            DeviceError::Locked { .. } | DeviceError::Invalid { .. } => Ok(()),
        }
    }
}

impl DeviceError {
    /// Maps a system error to the variant that callers handle.
    pub(crate) fn from_io(
        op: OperationKind,
        path: &Arc<str>,
        offset: u64,
        bytes: u64,
        source: io::Error,
    ) -> Self {
        let path = path.clone();
        match source.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => {
                DeviceError::Full { shortage: Shortage::of(&source), op, offset, bytes, path }
            }
            Some(libc::ENODEV | libc::ENXIO) => DeviceError::Vanished { op, offset, bytes, path },
            _ => DeviceError::Io { op, offset, bytes, path, source: Arc::new(source) },
        }
    }

    pub(crate) fn open(path: &Arc<str>, source: io::Error) -> Self {
        DeviceError::from_io(OperationKind::Open, path, 0, 0, source)
    }

    pub(crate) fn invalid(path: &Arc<str>, what: impl Into<String>) -> Self {
        DeviceError::Invalid { path: path.clone(), what: what.into() }
    }

    /// Returns the system's error number, if the error has one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            DeviceError::Io { source, .. } => source.raw_os_error(),
            DeviceError::Full { shortage: Shortage::Space, .. } => Some(libc::ENOSPC),
            DeviceError::Full { shortage: Shortage::FileSize, .. } => Some(libc::EFBIG),
            DeviceError::Vanished { .. } => Some(libc::ENODEV),
            _ => None,
        }
    }

    /// Returns the failed operation, if the device was already open.
    pub fn operation(&self) -> Option<OperationKind> {
        match self {
            DeviceError::Io { op, .. }
            | DeviceError::Full { op, .. }
            | DeviceError::Vanished { op, .. }
            | DeviceError::Unaligned { op, .. }
            | DeviceError::OutOfRange { op, .. } => Some(*op),
            DeviceError::Locked { .. } | DeviceError::Invalid { .. } => None,
        }
    }

    /// True if the content of the medium is undefined after this error: a write or a flush was attempted and failed.
    pub fn leaves_doubt(&self) -> bool {
        let was_tried =
            matches!(self, DeviceError::Io { .. } | DeviceError::Full { .. } | DeviceError::Vanished { .. });
        was_tried && matches!(self.operation(), Some(OperationKind::Write | OperationKind::Flush))
    }

    /// True if retrying a *read* may succeed. A failed write or flush is never retried.
    pub fn is_retryable(&self) -> bool {
        matches!(self, DeviceError::Io { op: OperationKind::Read, .. })
    }
}
