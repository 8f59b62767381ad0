//! Device I/O without a store.

mod file;
mod pressure;

pub(crate) use file::RawFile;
pub(crate) use pressure::RUN_BYTES;
