//! What can be wrong with a file or a payload.

use std::io;

/// Why an RDB file or a payload cannot be read.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Reading failed.
    #[error("cannot read at byte {offset}: {source}")]
    Io {
        /// Bytes that were read before.
        offset: u64,
        /// What the system said.
        source: io::Error,
    },
    /// It is something else.
    #[error("this is no RDB file: it does not begin with REDIS or VALKEY and a version")]
    NotRdb,
    /// Bytes are missing at the end.
    #[error("the file ends early, at byte {offset}: it was cut, or is still being written")]
    EndsEarly {
        /// Where it ends.
        offset: u64,
    },
    /// The bytes make no sense.
    #[error("damaged at byte {offset}: {what}")]
    Corrupt {
        /// Where.
        offset: u64,
        /// What makes no sense.
        what: &'static str,
    },
    /// It holds something that this reader does not know.
    #[error(
        "{what} at byte {offset} is not known here: a newer Redis or Valkey wrote this (RDB version {version})"
    )]
    Unknown {
        /// Where.
        offset: u64,
        /// What it is.
        what: String,
        /// The version that the file says it has.
        version: u32,
    },
    /// The checksum is that of other bytes.
    #[error("damaged: the checksum in the file is {expected:016x}, and that of its bytes {found:016x}")]
    Checksum {
        /// What the file says.
        expected: u64,
        /// What its bytes have.
        found: u64,
    },
}

/// The result of reading RDB.
pub type Result<T, E = Error> = std::result::Result<T, E>;
