//! Errors in a drive's description, a job or a trace.

use std::path::{Path, PathBuf};

/// The reason why a model was not built, or a trace not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The indirection unit is not supported by the model.
    #[error(
        "an indirection unit of {iu_bytes} bytes is not modelled; it must be a power of two from 4 to 64 KiB"
    )]
    Iu {
        /// The requested unit in bytes.
        iu_bytes: u32,
    },
    /// A size is not a multiple of the indirection unit.
    #[error(
        "{what} of {bytes} bytes is not a multiple of the indirection unit of {iu_bytes} bytes; use {below}, for example"
    )]
    NotWholeIus {
        /// Name of the size.
        what: &'static str,
        /// The requested size.
        bytes: u64,
        /// The unit.
        iu_bytes: u32,
        /// Next smaller valid size.
        below: u64,
    },
    /// A number in the description is out of range.
    #[error("{what} is {given}; it must be {allowed}")]
    Value {
        /// Name of the number.
        what: &'static str,
        /// The given value.
        given: String,
        /// The allowed values.
        allowed: &'static str,
    },
    /// The collector would have no spare superblock to work with.
    #[error(
        "flash of {raw_bytes} bytes has no superblock of {superblock_bytes} bytes beyond the namespace; give the drive more \
         over-provisioning or smaller superblocks"
    )]
    TooLittleSpare {
        /// Size of the flash in bytes.
        raw_bytes: u64,
        /// Erase unit in bytes.
        superblock_bytes: u64,
    },
    /// A request lies outside the namespace, or is not a whole number of sectors.
    #[error("{bytes} bytes at {offset} are not whole sectors inside a namespace of {namespace_bytes} bytes")]
    OutOfRange {
        /// Offset of the request.
        offset: u64,
        /// Length of the request.
        bytes: u64,
        /// Size of the namespace.
        namespace_bytes: u64,
    },
    /// A request uses a placement handle that the drive does not have.
    #[error("placement handle {handle} does not exist: the drive has {handles} handles")]
    NoSuchHandle {
        /// The requested handle.
        handle: u16,
        /// Number of handles.
        handles: u16,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The system error.
        source: std::io::Error,
    },
    /// A description of jobs could not be parsed.
    #[error("{}: {what}", path.display())]
    Jobs {
        /// Path of the file.
        path: PathBuf,
        /// The problem.
        what: String,
    },
    /// The file is not a trace in a supported format.
    #[error(
        "{}, line {line}: not a trace that can be replayed: {what}; it must be the text of blkparse, the text of \
         ftrace with block_rq_issue or block_rq_complete, or an iolog of fio (version 2 or 3)",
        path.display()
    )]
    UnknownFormat {
        /// Path of the file.
        path: PathBuf,
        /// Number of its first line with content.
        line: u64,
        /// The content found.
        what: String,
    },
    /// A line of a trace is damaged or truncated.
    #[error("{}, line {line}: {what}; {remedy}", path.display())]
    TraceLine {
        /// Path of the file.
        path: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// The problem.
        what: String,
        /// The remedy.
        remedy: String,
    },
    /// A trace as a whole cannot be replayed.
    #[error("{}: {what}", path.display())]
    Trace {
        /// Path of the file.
        path: PathBuf,
        /// The problem and the remedy.
        what: String,
    },
    /// A chart could not be drawn.
    #[error("{}: the chart was not drawn: {what}", path.display())]
    Chart {
        /// Path of the file.
        path: PathBuf,
        /// The message of the drawing library.
        what: String,
    },
}

impl Error {
    pub(crate) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Error + '_ {
        move |source| Error::File { path: path.to_owned(), source }
    }

    /// True if the call was wrong, false for failures during execution: damage in the middle of a trace, a full disk.
    pub fn is_usage(&self) -> bool {
        !matches!(self, Error::TraceLine { .. } | Error::Chart { .. } | Error::OutOfRange { .. })
    }
}
