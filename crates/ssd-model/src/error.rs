//! What can be wrong with a drive's description, a job or a trace.

use std::path::{Path, PathBuf};

/// Why a model was not built, or a trace not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The indirection unit is none that the model knows.
    #[error(
        "an indirection unit of {iu_bytes} bytes is not modelled; it must be a power of two from 4 to 64 KiB"
    )]
    Iu {
        /// What was asked for.
        iu_bytes: u32,
    },
    /// A size is no multiple of the indirection unit.
    #[error(
        "{what} of {bytes} bytes is no multiple of the indirection unit of {iu_bytes} bytes; {below} would be one"
    )]
    NotWholeIus {
        /// Which size.
        what: &'static str,
        /// What was asked for.
        bytes: u64,
        /// The unit.
        iu_bytes: u32,
        /// The next smaller size that fits.
        below: u64,
    },
    /// A number of the description is outside of what it can be.
    #[error("{what} is {given}; it must be {allowed}")]
    Value {
        /// Which number.
        what: &'static str,
        /// What was given.
        given: String,
        /// What would do.
        allowed: &'static str,
    },
    /// The collector would have nothing to work with.
    #[error(
        "flash of {raw_bytes} bytes has no superblock of {superblock_bytes} bytes beyond the namespace; give the drive more \
         over-provisioning or smaller superblocks"
    )]
    TooLittleSpare {
        /// The flash.
        raw_bytes: u64,
        /// What is erased together.
        superblock_bytes: u64,
    },
    /// A request lies outside of the namespace, or is no whole number of sectors.
    #[error("{bytes} bytes at {offset} are not whole sectors inside a namespace of {namespace_bytes} bytes")]
    OutOfRange {
        /// Where the request starts.
        offset: u64,
        /// Its length.
        bytes: u64,
        /// How large the namespace is.
        namespace_bytes: u64,
    },
    /// A request names a placement handle that the drive does not have.
    #[error("placement handle {handle} is not there: the drive has {handles}")]
    NoSuchHandle {
        /// Which was named.
        handle: u16,
        /// How many there are.
        handles: u16,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A description of jobs is not understood.
    #[error("{}: {what}", path.display())]
    Jobs {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The file is no trace that the crate reads.
    #[error(
        "{}, line {line}: this is no trace that can be replayed: {what}; it must be the text of blkparse, the text of \
         ftrace with block_rq_issue or block_rq_complete, or an iolog of fio (version 2 or 3)",
        path.display()
    )]
    UnknownFormat {
        /// Which file.
        path: PathBuf,
        /// Its first line with content.
        line: u64,
        /// What was seen.
        what: String,
    },
    /// A line of a trace is damaged or cut.
    #[error("{}, line {line}: {what}; {remedy}", path.display())]
    TraceLine {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: u64,
        /// What is wrong.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// A trace as a whole cannot be replayed.
    #[error("{}: {what}", path.display())]
    Trace {
        /// Which file.
        path: PathBuf,
        /// What is wrong, and what to do.
        what: String,
    },
    /// A chart was not drawn.
    #[error("{}: the chart was not drawn: {what}", path.display())]
    Chart {
        /// Which file.
        path: PathBuf,
        /// What the drawing library says.
        what: String,
    },
}

impl Error {
    pub(crate) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Error + '_ {
        move |source| Error::File { path: path.to_owned(), source }
    }

    /// Whether the call was wrong, rather than something failing on the way: damage in the middle of a trace, a full disk.
    pub fn is_usage(&self) -> bool {
        !matches!(self, Error::TraceLine { .. } | Error::Chart { .. } | Error::OutOfRange { .. })
    }
}
