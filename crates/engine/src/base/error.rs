//! Errors of the store. Each message names the value, the limit and the remedy.
//!
//! [`Error`] carries the details; [`ErrorKind`] is the small set that callers branch on. A missing key is not an error.

use std::fmt;
use std::io;

use esker_device::{DeviceError, OperationKind};

use crate::base::cluster_error::ClusterError;
use crate::base::option_name::OptionName;

/// Category of an error, for callers to branch on.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The arguments or options are invalid. Nothing was done.
    Invalid,
    /// The condition of a write did not hold. Nothing was written.
    Conflict,
    /// The store, its file system or its drive has no room for the write. Reads and deletes still work. Remedy: delete
    /// keys, raise the limit, or free space on the file system. Nothing was written.
    Full,
    /// Bytes on the medium are damaged. Putting the key again replaces its record.
    Corrupt,
    /// The store is already open, in this process or another. Retry after it is closed there.
    Locked,
    /// The store was closed, or it stopped after a failed write. Opening it again recovers everything durable.
    Closed,
    /// The device failed.
    Io,
    /// The checkpoint was cancelled and cannot be read any further. The store keeps running.
    Cancelled,
    /// The call needs a cargo feature that this build lacks. Nothing was done, and nothing is damaged.
    Unsupported,
    /// Another node of the cluster leads the key's group. Nothing was done; ask that node.
    Elsewhere,
    /// The key's group has no leader that is ready. Nothing was done; try again later.
    Unavailable,
    /// The write of a replicated store may or may not have happened. Read the keys before repeating it.
    Uncertain,
}

/// An error of the store.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub enum Error {
    /// The arguments or options are invalid.
    Invalid {
        /// The problem, with the value and the limit.
        what: String,
    },
    /// An option has an unusable value, or its value forbids the call.
    Option {
        /// The option.
        option: OptionName,
        /// The problem, phrased to follow the option's name.
        what: String,
    },
    /// The condition of a write did not hold. Read the key again to decide about the next write.
    Conflict {
        /// The condition, and the state that was found.
        what: String,
        /// The key's current version; `None` if the key is absent.
        current: Option<u64>,
    },
    /// The store is full: no room within its limits.
    Full {
        /// Bytes of current records, and of their entries in the summaries of segments.
        live_bytes: u64,
        /// User limit: capacity minus the reserve, and minus the working space that a small store needs.
        limit_bytes: u64,
        /// The option that limits the size of the tier.
        option: OptionName,
    },
    /// The file system is full.
    FileSystemFull {
        /// The file that cannot grow.
        path: String,
        /// Bytes of current records, and of their entries in the summaries of segments.
        live_bytes: u64,
        /// User limit within the space that the store has now.
        limit_bytes: u64,
    },
    /// The index has no memory for more keys.
    OutOfMemory {
        /// Memory of the index, in bytes.
        index_bytes: u64,
        /// Memory for the index and the read cache together, in bytes.
        budget_bytes: u64,
    },
    /// A record or a segment is damaged.
    Corrupt {
        /// The key, if known.
        key: Option<Vec<u8>>,
        /// Number of the segment.
        segment: u64,
        /// Byte offset in the segment.
        offset: u64,
        /// The check that failed.
        what: String,
    },
    /// A device has no superblock at its start, but a copy elsewhere, or segments of a store.
    SuperblocksLost {
        /// The file or device.
        path: String,
        /// Byte offset on the device of the copy or the segment that was found.
        offset: u64,
        /// True if a copy of the superblock was found, false if only a segment.
        is_copy: bool,
        /// The data that the start of the device holds now, if it is not zeros.
        holds: Option<&'static str>,
    },
    /// The store is open in another process, or a second time in this one.
    Locked {
        /// The file or device.
        path: String,
        /// The process that holds it, if known.
        holder: String,
    },
    /// The store is closed or latched after a failed write.
    Closed {
        /// The reason.
        reason: String,
    },
    /// The device failed.
    Io(DeviceError),
    /// One of several devices of a tier failed, and the store stops then. Reads continue.
    DeviceFailed {
        /// The failed write or flush, which names the device.
        cause: DeviceError,
        /// The option that decides whether the store stops.
        option: OptionName,
    },
    /// A checkpoint was cancelled.
    Cancelled {
        /// The reason, and the remedy.
        reason: String,
    },
    /// The call needs a cargo feature that this build lacks.
    MissingFeature {
        /// The feature of the package.
        feature: &'static str,
        /// The operation that needs the feature.
        what: String,
    },
    /// The cluster of a replicated store cannot do it here or now.
    Cluster(ClusterError),
}

fn superblocks_lost_text(path: &str, offset: u64, is_copy: bool, holds: Option<&str>) -> String {
    let holds = holds.map_or(String::new(), |what| format!(", which now holds {what},"));
    if is_copy {
        return format!(
            "{path} has a copy of the superblock of a store at byte {offset}, but none at its start{holds} which was overwritten. \
             The records are still there: do not format it. `esker repair {path} --superblocks --confirm` restores the start, \
             which destroys other data there; then run `esker check`"
        );
    }
    format!(
        "{path} has a segment of a store at byte {offset}, but no superblock: its start{holds} was overwritten. The records are \
         still there: do not format it, rebuild the superblock with `esker repair {path} --find-segments --confirm`"
    )
}

fn key_suffix(key: &Option<Vec<u8>>) -> String {
    key.as_ref().map(|k| format!(" under key \"{}\"", k.escape_ascii())).unwrap_or_default()
}

fn remedy(key: &Option<Vec<u8>>) -> &'static str {
    key.as_ref().map_or("", |_| "; put the key again, which replaces it")
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io(error) => error.source(),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.in_words(|option| option.as_str().to_owned()))
    }
}

impl Error {
    pub(crate) fn invalid(what: impl Into<String>) -> Error {
        Error::Invalid { what: what.into() }
    }

    /// Returns an error about an option. The text is phrased to follow the option's name.
    pub(crate) fn option(option: OptionName, what: impl Into<String>) -> Error {
        Error::Option { option, what: what.into() }
    }

    /// Returns the message with each option named by `name`, the front end's word for it. `Display` uses the library's
    /// names.
    pub fn in_words(&self, name: impl Fn(OptionName) -> String) -> String {
        match self {
            Error::Invalid { what } => what.clone(),
            Error::Option { option, what } => format!("{} {what}", name(*option)),
            Error::Conflict { what, .. } => format!("condition failed: {what}"),
            Error::Full { live_bytes, limit_bytes, option } => format!(
                "store is full: {live_bytes} bytes are used of at most {limit_bytes}; delete keys, or raise {}",
                name(*option)
            ),
            Error::FileSystemFull { path, live_bytes, limit_bytes } => format!(
                "the file system of {path} has no room for the store to grow: {live_bytes} bytes are used of at most \
                 {limit_bytes}; make room on the file system, or delete keys"
            ),
            Error::OutOfMemory { index_bytes, budget_bytes } => format!(
                "the index takes {index_bytes} of the {budget_bytes} bytes of memory for index and cache; delete keys or \
                 raise {}",
                name(OptionName::Memory)
            ),
            Error::Corrupt { key, segment, offset, what } => format!(
                "damaged data{}: {what} (segment {segment}, offset {offset}){}",
                key_suffix(key),
                remedy(key)
            ),
            Error::SuperblocksLost { path, offset, is_copy, holds } => {
                superblocks_lost_text(path, *offset, *is_copy, *holds)
            }
            Error::Locked { path, holder } => {
                format!(
                    "{path} is in use by {holder}; a store can be open only once, so close it there first"
                )
            }
            Error::DeviceFailed { cause, option } => format!(
                "the store takes no more writes, because a device failed: {cause}; replace the device, or set {} to \
                 \"serve\" to go on with the other devices after the next start",
                name(*option)
            ),
            Error::Closed { reason } => format!("store is closed: {reason}; open it again to go on"),
            Error::Io(error) => error.to_string(),
            Error::Cancelled { reason } => format!("the checkpoint was cancelled: {reason}"),
            Error::MissingFeature { feature, what } => format!(
                "{what}, and this program was built without the feature \"{feature}\"; build it with that feature"
            ),
            Error::Cluster(error) => error.to_string(),
        }
    }

    /// Returns true if the error is a failed read: it raises no doubt about anything that was written.
    pub(crate) fn is_of_reading(&self) -> bool {
        let op = esker_device::OperationKind::Read;
        matches!(self, Error::Corrupt { .. } | Error::MissingFeature { .. })
            || matches!(self, Error::Io(DeviceError::Io { op: of, .. }) if *of == op)
    }

    /// Returns the category of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Invalid { .. } | Error::Option { .. } => ErrorKind::Invalid,
            Error::Conflict { .. } => ErrorKind::Conflict,
            Error::Full { .. } | Error::FileSystemFull { .. } | Error::OutOfMemory { .. } => ErrorKind::Full,
            // Not after a write was tried: that write may have happened in part, and the store stopped.
            Error::Io(error @ DeviceError::Full { .. }) if !error.leaves_doubt() => ErrorKind::Full,
            Error::Corrupt { .. } | Error::SuperblocksLost { .. } => ErrorKind::Corrupt,
            Error::Locked { .. } => ErrorKind::Locked,
            Error::Closed { .. } | Error::DeviceFailed { .. } => ErrorKind::Closed,
            Error::Io(_) => ErrorKind::Io,
            Error::Cancelled { .. } => ErrorKind::Cancelled,
            Error::MissingFeature { .. } => ErrorKind::Unsupported,
            Error::Cluster(error) => error.kind(),
        }
    }

    /// Returns true if the same call may succeed later without any change by its caller: a device failed to read, or
    /// the store is still open elsewhere.
    ///
    /// `Full` is not retryable: a write already waited for all room that could still be freed. After a `Conflict`, read
    /// the key again and derive the new value from it.
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Io(error) => error.is_retryable(),
            Error::Locked { .. } => true,
            Error::Cluster(error) => error.kind() == ErrorKind::Unavailable,
            Error::Invalid { .. }
            | Error::Option { .. }
            | Error::Conflict { .. }
            | Error::Full { .. }
            | Error::FileSystemFull { .. }
            | Error::OutOfMemory { .. }
            | Error::Corrupt { .. }
            | Error::SuperblocksLost { .. }
            | Error::Closed { .. }
            | Error::DeviceFailed { .. }
            | Error::Cancelled { .. }
            | Error::MissingFeature { .. } => false,
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
            // The path is wrong, not the device.
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
