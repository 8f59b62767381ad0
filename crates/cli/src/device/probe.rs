//! Probes capabilities of a machine and a device by trying them. Writes nothing.

use std::fs::{Metadata, OpenOptions};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

use esker_device::Buffer;
use serde::Serialize;

/// The outcome of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(super) enum Trial {
    /// It works.
    Works(bool),
    /// It does not work or was not tried, with the reason.
    Not(String),
}

impl std::fmt::Display for Trial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Trial::Works(_) => f.write_str("works"),
            Trial::Not(why) => f.write_str(why),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Probes {
    /// Reads that bypass the page cache.
    pub(super) direct: Trial,
    pub(super) uring: Trial,
}

pub(super) fn probe(path: &Path, metadata: &Metadata, block_bytes: Option<u64>) -> Probes {
    let uring = match esker_device::try_uring() {
        Ok(()) => Trial::Works(true),
        Err(error) => Trial::Not(format!("does not work here: {error}; a pool of threads takes its place")),
    };
    let direct = if metadata.file_type().is_block_device() || metadata.is_file() {
        read_directly(path, block_bytes.unwrap_or(4096))
    } else {
        Trial::Not("not tried: name the device, or a file".to_owned())
    };
    Probes { direct, uring }
}

fn read_directly(path: &Path, block_bytes: u64) -> Trial {
    let read = || {
        let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path)?;
        let mut buffer = Buffer::zeroed(block_bytes as usize);
        file.read_at(&mut buffer, 0)
    };
    match read() {
        Ok(_) => Trial::Works(true),
        Err(error) => Trial::Not(format!("does not work: {error}")),
    }
}
