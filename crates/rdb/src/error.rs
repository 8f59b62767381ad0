//! Errors of a file or a payload.

use std::io;

/// The reason why an RDB file or a payload cannot be read.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Reading failed.
    #[error("cannot read at byte {offset}: {source}")]
    Io {
        /// Number of bytes read before.
        offset: u64,
        /// The system error.
        source: io::Error,
    },
    /// The file is not in RDB format.
    #[error("not an RDB file: it does not begin with REDIS or VALKEY and a version")]
    NotRdb,
    /// The file is truncated.
    #[error("the file ends early, at byte {offset}: it is truncated, or is still being written")]
    EndsEarly {
        /// Offset of the end.
        offset: u64,
    },
    /// The bytes are invalid.
    #[error("damaged at byte {offset}: {what}")]
    Corrupt {
        /// Byte offset.
        offset: u64,
        /// The problem.
        what: &'static str,
    },
    /// The file contains an element that this reader does not know.
    #[error(
        "unknown {what} at byte {offset}: a newer Redis or Valkey wrote this file (RDB version {version})"
    )]
    Unknown {
        /// Byte offset.
        offset: u64,
        /// Description of the element.
        what: String,
        /// RDB version of the file.
        version: u32,
    },
    /// The checksum does not match.
    #[error("checksum mismatch: the file states {expected:016x}, but its bytes have {found:016x}")]
    Checksum {
        /// Checksum in the file.
        expected: u64,
        /// Checksum of the bytes read.
        found: u64,
    },
}

/// The result of reading RDB.
pub type Result<T, E = Error> = std::result::Result<T, E>;
