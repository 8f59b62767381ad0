//! What the operating system says of this process and of files; unknown outside of Linux.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// File systems count blocks of files in these.
const BLOCK_BYTES: u64 = 512;

/// Memory that the process has now.
pub(crate) fn resident_bytes() -> Option<u64> {
    status_bytes("VmRSS:")
}

/// The most that it had at a time.
pub(crate) fn peak_bytes() -> Option<u64> {
    status_bytes("VmHWM:")
}

/// Memory of the machine.
pub(crate) fn machine_bytes() -> Option<u64> {
    kib_in("/proc/meminfo", "MemTotal:")
}

fn status_bytes(name: &str) -> Option<u64> {
    kib_in("/proc/self/status", name)
}

/// The bytes of a line of a file that names an amount in kB.
fn kib_in(file: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// What a file takes of its file system, however long it is; none of what is no file.
pub(crate) fn blocks_bytes(path: &Path) -> Option<u64> {
    let file = std::fs::metadata(path).ok().filter(|file| file.is_file())?;
    Some(file.blocks() * BLOCK_BYTES)
}
