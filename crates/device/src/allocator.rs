//! Configures the C library's allocator to return freed memory to the kernel.
//!
//! glibc allocates large blocks with mmap and unmaps each one when it is freed. But each such free raises the size
//! threshold for large blocks, up to 32 MiB, and blocks below the threshold live in heaps that rarely shrink. That
//! breaks a server's memory budget: buffers that grow by doubling leave holes of all sizes, and in attack tests
//! resident memory was 1.5 times the memory in use.
#![allow(unsafe_code, reason = "parameters of the allocator are set by a call that no crate here wraps")]

/// Minimum size in bytes of a block that is returned to the kernel as soon as it is freed.
const LARGE_BYTES: i32 = 128 << 10;

/// Fixes the size threshold above which freed blocks are returned to the kernel. Call it at process start.
pub fn give_back_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: `mallopt` takes two integers and changes parameters of the allocator only, under its own lock.
    let done = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES) };
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    assert_eq!(done, 1, "glibc refuses a threshold that its manual allows");
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let _ = LARGE_BYTES;
}
