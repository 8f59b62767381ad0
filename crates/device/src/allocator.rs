//! The allocator of the C library, made to give memory back.
//!
//! glibc takes large blocks from the kernel one by one, and gives each back when it is freed; but whenever one was
//! freed it raises the size from which on a block counts as large, up to 32 MiB, and from then on keeps such blocks in heaps
//! that hardly shrink. A server that promises to stay within a budget cannot have that: buffers that grow by doubling
//! leave holes of all sizes, and under attack half as much again was resident as was in use.
#![allow(unsafe_code, reason = "parameters of the allocator are set by a call that no crate here wraps")]

/// Blocks of at least so many bytes are given back as soon as they are freed.
const LARGE_BYTES: i32 = 128 << 10;

/// Keeps the size fixed from which on freed blocks go back to the kernel. For the start of a process.
pub fn give_back_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: `mallopt` takes two integers and changes parameters of the allocator only, under its own lock.
    let done = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES) };
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    assert_eq!(done, 1, "glibc refuses a threshold that its manual allows");
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let _ = LARGE_BYTES;
}
