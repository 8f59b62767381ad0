//! What can go wrong, said so that the reader knows what to do.
//!
//! [`Error`] carries the details; [`ErrorKind`] is the small set that callers branch on. A missing key is not an error.

use std::io;

use esker_device::{DeviceError, OperationKind};

use crate::base::option_name::OptionName;

/// What a caller can branch on.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The call or the options are wrong; nothing was done.
    Invalid,
    /// A condition of the write did not hold; nothing was written.
    Conflict,
    /// The store, or the file system or drive that it lies on, has no room for the write. Reads and deletes go on; deleting,
    /// raising the limit, or making room on the file system helps. Nothing was written.
    Full,
    /// Bytes on the medium are damaged. Putting the key again replaces its record.
    Corrupt,
    /// The store is open already, here or in another process. It can be opened when that one has closed it.
    Locked,
    /// The store was closed, or it stopped after a failed write. Opening it again brings back what is durable.
    Closed,
    /// The device failed.
    Io,
    /// The checkpoint was cancelled and cannot be read any further. The store keeps running.
    Cancelled,
}

/// An error of the store.
#[non_exhaustive]
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The arguments or options are wrong.
    #[error("{what}")]
    Invalid {
        /// What was wrong, with the value and the limit.
        what: String,
    },
    /// The value of an option cannot be used, or does not allow what was asked for.
    #[error("{option} {what}")]
    Option {
        /// The option.
        option: OptionName,
        /// What is wrong with it, in words that follow its name.
        what: String,
    },
    /// The condition of a write did not hold. Read the key again to decide what to write.
    #[error("condition failed: {what}")]
    Conflict {
        /// Which condition, and what was found.
        what: String,
        /// The version that the key has now, if it is there.
        current: Option<u64>,
    },
    /// No room.
    #[error("{}", full_text(*live_bytes, *limit_bytes, option.as_str()))]
    Full {
        /// Bytes of current records, and of their entries in the summaries of segments.
        live_bytes: u64,
        /// What users may fill: capacity less the reserve, and less what a small store has to work in.
        limit_bytes: u64,
        /// The option that sets how large the tier is.
        option: OptionName,
    },
    /// No room on the file system.
    #[error(
        "the file system of {path} has no room for the store to grow: {live_bytes} bytes are used of at most {limit_bytes}; \
         make room on the file system, or delete keys"
    )]
    FileSystemFull {
        /// The file that cannot grow.
        path: String,
        /// Bytes of current records, and of their entries in the summaries of segments.
        live_bytes: u64,
        /// What users may fill of the room that the store has now.
        limit_bytes: u64,
    },
    /// No memory for more keys.
    #[error("{}", out_of_memory_text(*index_bytes, *budget_bytes, OptionName::Memory.as_str()))]
    OutOfMemory {
        /// Memory of the index.
        index_bytes: u64,
        /// What there is for it and the read cache.
        budget_bytes: u64,
    },
    /// A record or a segment is damaged.
    #[error("damaged data{}: {what} (segment {segment}, offset {offset}){}", key_suffix(.key), remedy(.key))]
    Corrupt {
        /// The key, where it is known.
        key: Option<Vec<u8>>,
        /// The segment's number.
        segment: u64,
        /// Byte offset in the segment.
        offset: u64,
        /// What did not agree.
        what: String,
    },
    /// Another process, or this one, has the store open.
    #[error("{path} is in use by {holder}; a store can be open only once, so close it there first")]
    Locked {
        /// The file or device.
        path: String,
        /// Who holds it, where known.
        holder: String,
    },
    /// The store is closed or latched after a failed write.
    #[error("store is closed: {reason}; open it again to go on")]
    Closed {
        /// Why.
        reason: String,
    },
    /// The device failed.
    #[error(transparent)]
    Io(DeviceError),
    /// A checkpoint was cancelled.
    #[error("the checkpoint was cancelled: {reason}")]
    Cancelled {
        /// Why, and what to do.
        reason: String,
    },
}

fn full_text(live_bytes: u64, limit_bytes: u64, option: &str) -> String {
    format!(
        "store is full: {live_bytes} bytes are used of at most {limit_bytes}; delete keys, or raise {option}"
    )
}

fn out_of_memory_text(index_bytes: u64, budget_bytes: u64, option: &str) -> String {
    format!(
        "the index takes {index_bytes} of the {budget_bytes} bytes of memory for index and cache; delete keys or raise \
         {option}"
    )
}

fn key_suffix(key: &Option<Vec<u8>>) -> String {
    key.as_ref().map(|k| format!(" under key \"{}\"", k.escape_ascii())).unwrap_or_default()
}

fn remedy(key: &Option<Vec<u8>>) -> &'static str {
    key.as_ref().map_or("", |_| "; put the key again, which replaces it")
}

impl Error {
    pub(crate) fn invalid(what: impl Into<String>) -> Error {
        Error::Invalid { what: what.into() }
    }

    /// An option that cannot be used, for a reason in words that follow its name.
    pub(crate) fn option(option: OptionName, what: impl Into<String>) -> Error {
        Error::Option { option, what: what.into() }
    }

    /// The message with options called as the reader calls them. Displayed, an error calls them as the library does.
    pub fn in_words(&self, name: impl Fn(OptionName) -> String) -> String {
        match self {
            Error::Option { option, what } => format!("{} {what}", name(*option)),
            Error::Full { live_bytes, limit_bytes, option } => {
                full_text(*live_bytes, *limit_bytes, &name(*option))
            }
            Error::OutOfMemory { index_bytes, budget_bytes } => {
                out_of_memory_text(*index_bytes, *budget_bytes, &name(OptionName::Memory))
            }
            other => other.to_string(),
        }
    }

    /// Whether something could not be read: nothing that was written is in doubt because of it.
    pub(crate) fn is_of_reading(&self) -> bool {
        let op = esker_device::OperationKind::Read;
        matches!(self, Error::Corrupt { .. })
            || matches!(self, Error::Io(DeviceError::Io { op: of, .. }) if *of == op)
    }

    /// The kind that callers branch on.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Invalid { .. } | Error::Option { .. } => ErrorKind::Invalid,
            Error::Conflict { .. } => ErrorKind::Conflict,
            Error::Full { .. } | Error::FileSystemFull { .. } | Error::OutOfMemory { .. } => ErrorKind::Full,
            // Not after a write was tried: that may have happened in part, and the store stopped.
            Error::Io(error @ DeviceError::Full { .. }) if !error.leaves_doubt() => ErrorKind::Full,
            Error::Corrupt { .. } => ErrorKind::Corrupt,
            Error::Locked { .. } => ErrorKind::Locked,
            Error::Closed { .. } => ErrorKind::Closed,
            Error::Io(_) => ErrorKind::Io,
            Error::Cancelled { .. } => ErrorKind::Cancelled,
        }
    }

    /// Whether the same call may succeed later although its caller changes nothing: a device failed to read, or another
    /// process still has the store open.
    ///
    /// A store without room is none of these: writes wait for room that is about to come, and fail with `Full` when there is
    /// none to wait for. After a `Conflict` the key is to be read again, and what is written follows from what it holds now.
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Io(error) => error.is_retryable(),
            Error::Locked { .. } => true,
            Error::Invalid { .. }
            | Error::Option { .. }
            | Error::Conflict { .. }
            | Error::Full { .. }
            | Error::FileSystemFull { .. }
            | Error::OutOfMemory { .. }
            | Error::Corrupt { .. }
            | Error::Closed { .. }
            | Error::Cancelled { .. } => false,
        }
    }
}

/// The store's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Error {
        match &error {
            DeviceError::Locked { path, holder } => {
                Error::Locked { path: path.to_string(), holder: holder.clone() }
            }
            DeviceError::Invalid { .. } => Error::Invalid { what: error.to_string() },
            // The path is at fault, and not the device.
            DeviceError::Io { op: OperationKind::Open, path, source, .. } if is_about_path(source) => {
                Error::Invalid { what: format!("{path} cannot be opened: {source}") }
            }
            _ => Error::Io(error),
        }
    }
}

fn is_about_path(error: &io::Error) -> bool {
    use io::ErrorKind::{
        InvalidFilename, IsADirectory, NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem,
    };
    let kind = error.kind();
    matches!(
        kind,
        NotFound | NotADirectory | IsADirectory | PermissionDenied | ReadOnlyFilesystem | InvalidFilename
    )
}
