//! Properties of a device that are known before the first byte is read.

/// Type of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// A regular file on some file system.
    File,
    /// A raw block device.
    Block,
    /// Memory of this process.
    Memory,
}

/// Sizes, alignments and capabilities of a device, as reported by the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Size in bytes, a multiple of `block_bytes`. Changes with [`Device::resize`](crate::Device::resize).
    pub bytes: u64,
    /// Offset and length of every operation are multiples of this: the logical block size, or the alignment that
    /// O_DIRECT requires.
    pub block_bytes: u32,
    /// Granularity that the device reports, if it is coarser than 4 KiB. Taken from the physical block size, the
    /// minimum I/O size and the discard granularity; never from the optimal I/O size, which is often a RAID stripe or a
    /// transfer limit. Most drives report 4 KiB whatever their indirection unit, so 4 KiB counts as unknown. For an array
    /// with parity this is the full stripe, and for one without the granularity of its drives.
    pub indirection_unit_bytes: Option<u32>,
    /// True if completed writes may be in a volatile cache that a power failure empties. True if unknown.
    pub write_cache: bool,
    /// True if the device supports forced unit access: it can write a single request through its cache.
    pub fua: bool,
    /// True if discards reach the medium (or free the file's blocks).
    pub discard: bool,
    /// Discard granularity in bytes: only whole, aligned pieces of this size are freed.
    pub discard_bytes: u32,
    /// Number of placement handles, numbered from 1; 0: none.
    pub placement_handles: u8,
    /// Size in bytes of the drive's erase unit (an FDP reclaim unit), if reported.
    pub reclaim_unit_bytes: Option<u64>,
    /// True if I/O bypasses the page cache.
    pub direct: bool,
    /// Type of the device.
    pub kind: DeviceKind,
    /// Name of the backend: `"io_uring"`, `"threads"` or `"memory"`.
    pub backend: &'static str,
}

impl Geometry {
    /// Returns the geometry of an in-memory device of `bytes` bytes: 512-byte blocks and a volatile write cache.
    pub fn memory(bytes: u64) -> Self {
        Geometry {
            bytes,
            block_bytes: 512,
            indirection_unit_bytes: None,
            write_cache: true,
            fua: true,
            discard: true,
            discard_bytes: 512,
            placement_handles: 0,
            reclaim_unit_bytes: None,
            direct: true,
            kind: DeviceKind::Memory,
            backend: "memory",
        }
    }
}
