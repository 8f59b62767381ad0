//! Errors of backups.

use std::io;
use std::path::{Path, PathBuf};

use crate::summary::{Summary, Unread};

/// The reason why a backup could not be taken, read or restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store could not be read.
    #[error("{0}")]
    Store(#[from] esker_engine::Error),
    /// A file or device could not be opened or created.
    #[error("{0}")]
    Device(#[from] esker_device::DeviceError),
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system error.
        source: io::Error,
    },
    /// The request succeeded, but the backup is incomplete: parts of the store were unreadable when it was taken.
    #[error("{}", not_whole(.0))]
    Unread(Box<Summary>),
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// A file of the backup does not match the manifest.
    #[error("{}: {what}; the backup cannot be restored from it", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The problem.
        what: String,
    },
}

/// Maximum number of ranges named in an error.
const RANGES_NAMED: usize = 10;

fn not_whole(summary: &Summary) -> String {
    let Summary { id, unread, .. } = summary;
    let bytes: usize = unread.iter().map(|unread| unread.bytes.len()).sum();
    let named: Vec<String> = unread.iter().take(RANGES_NAMED).map(Unread::to_string).collect();
    let more = match unread.len().saturating_sub(RANGES_NAMED) {
        0 => String::new(),
        more => format!(", and {more} more ranges"),
    };
    format!(
        "backup {id} was taken but is incomplete: {bytes} bytes of the store could not be read when it was taken, and records \
         in them are damaged or missing in it: {}{more}; a store restored from it may need esker serve --accept-loss or esker repair \
         before it opens",
        named.join(", ")
    )
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns the summary of a backup, or an error if the backup is incomplete.
    pub(crate) fn unless_whole(summary: Summary) -> Result<Summary> {
        if summary.unread.is_empty() { Ok(summary) } else { Err(Error::Unread(Box::new(summary))) }
    }

    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Error + '_ {
        |source| Error::Io { path: path.to_owned(), source }
    }

    pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> Error {
        Error::Damaged { path: path.to_owned(), what: what.into() }
    }
}
