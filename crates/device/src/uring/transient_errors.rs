//! Errors of a ring that pass.

use std::io;

/// Whether it says nothing about the ring: interrupted, or short of memory or of room for completions.
pub(super) fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
}
