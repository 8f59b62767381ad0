//! Resource figures of this process and of files, from the operating system; `None` outside of Linux.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Unit of a file's block count, in bytes.
const BLOCK_BYTES: u64 = 512;

/// Returns the resident memory of the process.
pub(crate) fn resident_bytes() -> Option<u64> {
    status_bytes("VmRSS:")
}

/// Returns the peak resident memory of the process.
pub(crate) fn peak_bytes() -> Option<u64> {
    status_bytes("VmHWM:")
}

/// Returns the memory of the machine.
pub(crate) fn machine_bytes() -> Option<u64> {
    kib_in("/proc/meminfo", "MemTotal:")
}

fn status_bytes(name: &str) -> Option<u64> {
    kib_in("/proc/self/status", name)
}

/// Returns, in bytes, an amount that a line of a file gives in kB.
fn kib_in(file: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Returns the bytes that a file occupies on its file system, whatever its length; `None` if it is not a regular file.
pub(crate) fn blocks_bytes(path: &Path) -> Option<u64> {
    let file = std::fs::metadata(path).ok().filter(|file| file.is_file())?;
    Some(file.blocks() * BLOCK_BYTES)
}
