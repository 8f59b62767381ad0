//! What is known of a device before the first byte is read.

/// What kind of thing a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// A regular file on some file system.
    File,
    /// A raw block device.
    Block,
    /// Memory of this process.
    Memory,
}

/// Sizes, alignments and abilities of a device, as far as the system reports them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Size in bytes, a multiple of `block_bytes`. Changes with [`Device::resize`](crate::Device::resize).
    pub bytes: u64,
    /// Offset and length of every operation are multiples of this: the logical block, or what O_DIRECT asks for.
    pub block_bytes: u32,
    /// The granularity that the device reports, when it is coarser than 4 KiB. Taken from the physical block, the
    /// minimum I/O size and the discard granularity; never from the optimal I/O size, which is often a RAID stripe
    /// or a transfer limit. Most drives report 4 KiB whatever their indirection unit is, so that counts as unknown.
    pub indirection_unit_bytes: Option<u32>,
    /// Completed writes may sit in a cache that a power cut empties. True when it cannot be found out.
    pub write_cache: bool,
    /// The device can force a single write through its cache.
    pub fua: bool,
    /// Discards reach the medium (or free the file's blocks).
    pub discard: bool,
    /// Discards free whole, aligned pieces of this size and nothing of a piece in part.
    pub discard_bytes: u32,
    /// Placement handles, numbered from 1; 0: the device has none.
    pub placement_handles: u8,
    /// What the drive erases together (an FDP reclaim unit), if it tells.
    pub reclaim_unit_bytes: Option<u64>,
    /// I/O bypasses the page cache.
    pub direct: bool,
    /// File, block device or memory.
    pub kind: DeviceKind,
    /// `"io_uring"`, `"threads"` or `"memory"`.
    pub backend: &'static str,
}

impl Geometry {
    /// The geometry of an in-memory device of `bytes` bytes: 512-byte blocks and a volatile write cache.
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
