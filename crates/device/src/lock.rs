//! Exclusive locks on devices. Files are locked by open file description, so that a second opener in the same process
//! is refused too, and the kernel releases the lock when the last descriptor is closed, however the process ends.
#![allow(
    unsafe_code,
    reason = "open-file-description locks are a call into the kernel that no crate here wraps"
)]

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use esker_seeded_bugs::{Bug, planted};

/// Acquires the lock. Returns false if another open file description holds it.
#[cfg(target_os = "linux")]
pub(crate) fn try_lock(file: &File) -> io::Result<bool> {
    match set_lock(file, libc::F_WRLCK) {
        Err(_) if planted(Bug::SecondOpener) => Ok(true),
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Releases the lock. Closing the file releases it too, but only once the kernel has dropped every reference to the
/// open file.
#[cfg(target_os = "linux")]
pub(crate) fn unlock(file: &File) {
    set_lock(file, libc::F_UNLCK).ok();
}

#[cfg(target_os = "linux")]
fn set_lock(file: &File, kind: libc::c_int) -> io::Result<()> {
    // SAFETY: an all-zero `flock` is a valid value: it consists of integers only. `l_pid` must be zero.
    let mut request: libc::flock = unsafe { std::mem::zeroed() };
    request.l_type = kind as _;
    request.l_whence = libc::SEEK_SET as _;
    // SAFETY: the descriptor is open, and F_OFD_SETLK reads a `flock` from the address.
    let outcome = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &request) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// True if another open file description holds the lock. Does not acquire it.
#[cfg(target_os = "linux")]
pub(crate) fn is_locked(file: &File) -> bool {
    // SAFETY: an all-zero `flock` is a valid value: it consists of integers only. `l_pid` must be zero.
    let mut request: libc::flock = unsafe { std::mem::zeroed() };
    request.l_type = libc::F_RDLCK as _;
    request.l_whence = libc::SEEK_SET as _;
    // SAFETY: the descriptor is open, and F_OFD_GETLK reads a `flock` from the address and writes one to it.
    let outcome = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut request) };
    outcome == 0 && request.l_type != libc::F_UNLCK as libc::c_short
}

/// Always false: this system has no way to query the lock.
#[cfg(not(target_os = "linux"))]
pub(crate) fn is_locked(_: &File) -> bool {
    false
}

/// Does nothing: closing the file releases the lock.
#[cfg(not(target_os = "linux"))]
pub(crate) fn unlock(_: &File) {}

/// Acquires the lock. Returns false if another open file description holds it.
#[cfg(not(target_os = "linux"))]
pub(crate) fn try_lock(file: &File) -> io::Result<bool> {
    // SAFETY: the descriptor is open.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::WouldBlock { Ok(false) } else { Err(error) }
}

/// Time that a killed process may take to release the lock: its operations in flight keep the file open and locked
/// until the kernel has completed them.
const LETTING_GO: Duration = Duration::from_secs(5);

/// Time that a process may have the file open by accident: a child inherits it between fork and exec.
const PASSING_BY: Duration = Duration::from_millis(200);

/// Retries while opening or locking is refused, as long as no visible process has the file open for more than a moment.
/// That is how a process that was just killed looks.
pub(crate) fn retry<T>(metadata: &fs::Metadata, mut attempt: impl FnMut() -> Option<T>) -> Result<T, String> {
    #[expect(
        clippy::disallowed_methods,
        reason = "opening a path blocks, and is not part of what is replayed"
    )]
    let began = Instant::now();
    loop {
        if let Some(done) = attempt() {
            return Ok(done);
        }
        let holders = holders(metadata);
        if !holders.is_empty() && began.elapsed() > PASSING_BY {
            return Err(holders.join(", "));
        }
        if began.elapsed() > LETTING_GO {
            return Err("another process (or a mount)".to_owned());
        }
        #[expect(clippy::disallowed_methods, reason = "as above")]
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Names the processes that have the file open, as far as `/proc` shows them: the kernel does not report the holder of
/// an open-file-description lock.
fn holders(metadata: &fs::Metadata) -> Vec<String> {
    let mut holders = Vec::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let descriptors = fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        // This process is listed only if it has the file open besides the descriptor of this attempt.
        let open = descriptors
            .filter_map(|entry| fs::metadata(entry.path()).ok())
            .filter(|other| (other.dev(), other.ino()) == (metadata.dev(), metadata.ino()))
            .count();
        let own = id == std::process::id();
        if open > usize::from(own) {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            let who = if own { ", this process" } else { "" };
            holders.push(format!("process {id} ({}{who})", name.trim()));
        }
    }
    holders
}
