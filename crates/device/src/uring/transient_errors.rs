//! Transient errors of a ring.

use std::io;

/// True if the error is transient: interrupted, or short of memory or of room for completions.
pub(super) fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
}
