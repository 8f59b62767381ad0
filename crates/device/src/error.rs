//! The one error type of this crate. Messages name what was asked, where, and the limit that it met.

use std::fmt;
use std::io;
use std::sync::Arc;

/// What was being done to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OperationKind {
    /// Opening, probing and locking it.
    Open,
    /// Reading a range.
    Read,
    /// Writing a range.
    Write,
    /// Making completed writes durable.
    Flush,
    /// Telling the device that a range holds nothing of value.
    Discard,
    /// Giving a range of a file its blocks.
    Allocate,
    /// Changing its size.
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

/// The limit that leaves no room for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// The device, the file system, a quota, or an in-memory device (ENOSPC, EDQUOT).
    Space,
    /// The largest size of a file (EFBIG): the process's (RLIMIT_FSIZE) or the file system's.
    FileSize,
}

impl Shortage {
    /// The limit that an error of the system stands for: that of a file for EFBIG, else that of the device.
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

/// Why a device could not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The operating system reported an error. After a failed write the range is undefined; after a failed flush
    /// nothing that it should have covered may be trusted to be durable, not even after a later flush succeeds.
    #[error("{op} of {bytes} bytes at offset {offset} of {path}: {source}")]
    Io {
        /// What was being done.
        op: OperationKind,
        /// Where on the device.
        offset: u64,
        /// How many bytes.
        bytes: u64,
        /// The device.
        path: Arc<str>,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// No space is left for the operation, or the file may not grow.
    #[error("{op} of {bytes} bytes at offset {offset} of {path}: {shortage}")]
    Full {
        /// Which limit was met.
        shortage: Shortage,
        /// What was being done.
        op: OperationKind,
        /// Where on the device.
        offset: u64,
        /// How many bytes.
        bytes: u64,
        /// The device.
        path: Arc<str>,
    },
    /// The device is gone (ENODEV, ENXIO). No later operation can be expected to succeed.
    #[error("{op} of {bytes} bytes at offset {offset} of {path}: the device has vanished")]
    Vanished {
        /// What was being done.
        op: OperationKind,
        /// Where on the device.
        offset: u64,
        /// How many bytes.
        bytes: u64,
        /// The device.
        path: Arc<str>,
    },
    /// Somebody else has it open.
    #[error("{path} is in use by {holder}; a device can be open only once")]
    Locked {
        /// The device.
        path: Arc<str>,
        /// Who holds it, as far as could be found out.
        holder: String,
    },
    /// The request or the path cannot work, whatever the medium does.
    #[error("{path}: {what}")]
    Invalid {
        /// The device.
        path: Arc<str>,
        /// What is wrong, with the value and the limit.
        what: String,
    },
    /// Offset or length is not a multiple of the logical block.
    #[error(
        "{op} of {bytes} bytes at offset {offset} of {path} is not aligned to blocks of {block_bytes} bytes"
    )]
    Unaligned {
        /// What was being done.
        op: OperationKind,
        /// Where on the device.
        offset: u64,
        /// How many bytes.
        bytes: u64,
        /// The alignment that the device asks for.
        block_bytes: u32,
        /// The device.
        path: Arc<str>,
    },
    /// The range ends beyond the device.
    #[error("{op} of {bytes} bytes at offset {offset} of {path} ends beyond its {device_bytes} bytes")]
    OutOfRange {
        /// What was being done.
        op: OperationKind,
        /// Where on the device.
        offset: u64,
        /// How many bytes.
        bytes: u64,
        /// The size of the device.
        device_bytes: u64,
        /// The device.
        path: Arc<str>,
    },
}

impl DeviceError {
    /// Sorts what the system said into the kinds that callers treat differently.
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

    /// The operating system's error number, where there is one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            DeviceError::Io { source, .. } => source.raw_os_error(),
            DeviceError::Full { shortage: Shortage::Space, .. } => Some(libc::ENOSPC),
            DeviceError::Full { shortage: Shortage::FileSize, .. } => Some(libc::EFBIG),
            DeviceError::Vanished { .. } => Some(libc::ENODEV),
            _ => None,
        }
    }

    /// What was being done, where it was an operation on a device that is open.
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

    /// Whether nobody can know any more what is on the medium: a write or a flush was tried, and failed.
    pub fn leaves_doubt(&self) -> bool {
        let was_tried =
            matches!(self, DeviceError::Io { .. } | DeviceError::Full { .. } | DeviceError::Vanished { .. });
        was_tried && matches!(self.operation(), Some(OperationKind::Write | OperationKind::Flush))
    }

    /// Whether the same *read* might succeed when asked again. A failed write or flush is never retried and trusted.
    pub fn is_retryable(&self) -> bool {
        matches!(self, DeviceError::Io { op: OperationKind::Read, .. })
    }
}
