//! Queries the operating system about an open file: sizes, alignments, caches. Also allocate and discard, which std
//! lacks.
#![expect(unsafe_code, reason = "statx, BLKDISCARD and BLKGETSIZE64 are calls into the kernel")]

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::{Array, ArrayUnit, DeviceKind};

/// Page cache granularity in bytes, used as the block size of buffered I/O.
pub(crate) const PAGE_BYTES: u32 = 4096;

/// Attributes of the device below a file, as the block layer reports them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockQueue {
    pub(crate) logical_block_bytes: u32,
    pub(crate) indirection_unit_bytes: Option<u32>,
    pub(crate) write_cache: bool,
    pub(crate) fua: bool,
    pub(crate) discard: bool,
    pub(crate) discard_bytes: u32,
    /// Reported by Linux 6.16 and later.
    pub(crate) placement_handles: u8,
    pub(crate) reclaim_unit_bytes: Option<u64>,
    pub(crate) limit: CommandLimit,
    /// Byte offset of a partition on its disk; else 0.
    pub(crate) start_bytes: u64,
    /// The array that the device is or lies on.
    pub(crate) array: Option<Array>,
}

/// Longest write in bytes that reaches the device as one command, whatever memory it comes from: powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommandLimit {
    /// For writes from whole pages of memory.
    pub(crate) of_pages: usize,
    /// For writes that begin or end within a page and therefore touch one more page than they would fill.
    pub(crate) of_memory: usize,
}

impl CommandLimit {
    /// The block layer's defaults for a device that reports nothing.
    const DEFAULT: CommandLimit = CommandLimit { of_pages: 512 << 10, of_memory: 256 << 10 };

    fn from(number: impl Fn(&str) -> Option<u64>, page_bytes: u64) -> CommandLimit {
        /// The block layer splits writes with more memory segments before they reach the queue.
        const SEGMENTS_MAX: u64 = 256;
        const SEGMENTS_DEFAULT: u64 = 128;
        let bytes = number("max_sectors_kb").map_or(512 << 10, |kib| kib << 10);
        let segments = number("max_segments").unwrap_or(SEGMENTS_DEFAULT).clamp(1, SEGMENTS_MAX);
        let segment_bytes = number("max_segment_size").unwrap_or(page_bytes).min(page_bytes);
        // No command crosses a multiple of `chunk_sectors`; for some volumes that is not a power of two.
        let boundary = number("chunk_sectors").filter(|sectors| *sectors > 0).map_or(u64::MAX, |sectors| {
            let bytes = sectors << 9;
            1 << bytes.trailing_zeros()
        });
        let longest = |segments: u64| {
            let bytes = bytes.min(boundary).min(segments * segment_bytes).max(page_bytes);
            1 << bytes.ilog2()
        };
        CommandLimit { of_pages: longest(segments), of_memory: longest(segments - 1) }
    }
}

/// Properties of a block device that determine where writes to it are cut.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Volume {
    /// `None` if another layer cuts: a file system, or the page cache.
    pub(crate) limit: Option<CommandLimit>,
    /// Byte offset of the volume on its disk.
    pub(crate) start_bytes: u64,
}

impl BlockQueue {
    /// Worst-case attributes, for a device of which nothing is known.
    pub(crate) const UNKNOWN: BlockQueue = BlockQueue {
        logical_block_bytes: PAGE_BYTES,
        indirection_unit_bytes: None,
        write_cache: true,
        fua: false,
        discard: false,
        discard_bytes: PAGE_BYTES,
        placement_handles: 0,
        reclaim_unit_bytes: None,
        limit: CommandLimit::DEFAULT,
        start_bytes: 0,
        array: None,
    };

    /// Returns a warning for the operator if a store on the device cannot write whole stripes of an array with parity.
    pub(crate) fn array_warning(&self) -> Option<String> {
        let array = self.array.as_ref().filter(|array| array.unit() == ArrayUnit::Unsuitable)?;
        Some(format!(
            "{} has parity, and a full stripe of {} bytes is not a power of two up to {UNIT_BYTES_MAX}: it reads parity before \
             most writes, which esker device explains",
            array.device,
            array.stripe_bytes()
        ))
    }
}

pub(crate) fn kind_of(metadata: &fs::Metadata) -> Option<DeviceKind> {
    if metadata.file_type().is_block_device() {
        Some(DeviceKind::Block)
    } else if metadata.is_file() {
        Some(DeviceKind::File)
    } else {
        None
    }
}

/// Reads `/sys/dev/block/<major>:<minor>/queue` of the device (for a partition: of its disk).
pub(crate) fn block_queue(metadata: &fs::Metadata, kind: DeviceKind) -> BlockQueue {
    let device = if kind == DeviceKind::Block { metadata.rdev() } else { metadata.dev() };
    let (major, minor) = (libc::major(device), libc::minor(device));
    let mut directory = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let mut start_bytes = 0;
    let is_partition = directory.join("partition").exists();
    if is_partition {
        let start =
            fs::read_to_string(directory.join("start")).ok().and_then(|text| text.trim().parse().ok());
        start_bytes = start.unwrap_or(0u64) << 9;
        directory = match fs::canonicalize(&directory).ok().and_then(|path| path.parent().map(PathBuf::from))
        {
            Some(parent) => parent,
            None => return BlockQueue::UNKNOWN,
        };
    }
    let queue = directory.join("queue");
    if !queue.is_dir() {
        return BlockQueue::UNKNOWN;
    }
    let attribute = |name: &str| fs::read_to_string(queue.join(name)).ok().map(|text| text.trim().to_owned());
    let whole = queue_from(&attribute);
    let array = Array::read(&directory);
    let indirection_unit_bytes = unit_on(array.as_ref(), kind, whole.indirection_unit_bytes);
    // The kernel accepts no handle for a partition, because other writers to the disk would share the handles.
    let placement_handles = if is_partition { 0 } else { whole.placement_handles };
    BlockQueue { start_bytes, placement_handles, indirection_unit_bytes, array, ..whole }
}

/// Returns the write unit of a device or of a file, given the array that it lies on, and the unit that its queue reports.
fn unit_on(array: Option<&Array>, kind: DeviceKind, reported: Option<u32>) -> Option<u32> {
    match array.map(Array::unit) {
        // A file system does not place files on stripes.
        Some(ArrayUnit::Stripe(bytes)) => Some(bytes).filter(|_| kind == DeviceKind::Block),
        Some(ArrayUnit::Drives(unit)) => unit,
        Some(ArrayUnit::Unsuitable) => None,
        None => reported,
    }
}

/// True if the kernel reports in sysfs that the block device is read-only.
pub(crate) fn is_read_only(metadata: &fs::Metadata) -> bool {
    let (major, minor) = (libc::major(metadata.rdev()), libc::minor(metadata.rdev()));
    let read_only = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro"));
    read_only.is_ok_and(|text| text.trim() == "1")
}

pub(crate) fn page_bytes() -> usize {
    rustix::param::page_size()
}

/// Largest write unit of a store in bytes: the longest stripe of an array that is written as a whole.
pub const UNIT_BYTES_MAX: u64 = 4 << 20;

/// True if a granularity can be an indirection unit of a drive: a power of two above 4 KiB (which carries no information)
/// and at most 1 MiB (larger values are stripes, or allocation units of virtual devices).
pub fn is_indirection_unit(bytes: u64) -> bool {
    bytes.is_power_of_two() && (4096 < bytes && bytes <= 1 << 20)
}

/// Returns the indirection unit that a device reports, from its sysfs queue attributes by name. `None` if it reports
/// none above 4 KiB, as most drives do whatever their mapping unit.
pub fn reported_unit_bytes(attribute: &dyn Fn(&str) -> Option<String>) -> Option<u32> {
    ["physical_block_size", "minimum_io_size", "discard_granularity"]
        .into_iter()
        .filter_map(|name| attribute(name)?.parse::<u32>().ok())
        .filter(|bytes| is_indirection_unit(u64::from(*bytes)))
        .max()
}

fn queue_from(attribute: &dyn Fn(&str) -> Option<String>) -> BlockQueue {
    let number = |name: &str| attribute(name).and_then(|text| text.parse::<u64>().ok());
    BlockQueue {
        logical_block_bytes: number("logical_block_size")
            .and_then(|bytes| u32::try_from(bytes).ok())
            .unwrap_or(4096),
        indirection_unit_bytes: reported_unit_bytes(attribute),
        write_cache: attribute("write_cache").as_deref() != Some("write through"),
        fua: number("fua") == Some(1),
        discard: number("discard_max_bytes").is_some_and(|bytes| bytes > 0),
        discard_bytes: number("discard_granularity")
            .and_then(|bytes| u32::try_from(bytes).ok())
            .filter(|bytes| bytes.is_power_of_two())
            .map_or(PAGE_BYTES, |bytes| bytes.max(PAGE_BYTES)),
        placement_handles: number("max_write_streams").unwrap_or(0).min(u8::MAX.into()) as u8,
        reclaim_unit_bytes: number("write_stream_granularity").filter(|bytes| *bytes > 0),
        limit: CommandLimit::from(number, page_bytes() as u64),
        start_bytes: 0,
        array: None,
    }
}

/// Support for direct I/O on a file, as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirectIo {
    /// Unknown: the kernel is old, or the file system does not report it.
    Untold,
    /// Not supported. Such a file may accept O_DIRECT nevertheless and use the page cache.
    Refused,
    /// Supported with this alignment of offsets in bytes.
    Aligned(u32),
}

impl DirectIo {
    /// Interprets an answer of statx. `mask` contains the fields that are filled.
    #[cfg(target_os = "linux")]
    fn told(mask: u32, offset_align: u32) -> DirectIo {
        match offset_align {
            _ if mask & libc::STATX_DIOALIGN == 0 => DirectIo::Untold,
            0 => DirectIo::Refused,
            bytes => DirectIo::Aligned(bytes),
        }
    }
}

#[cfg(target_os = "linux")]
pub(crate) fn direct_io(file: &File) -> DirectIo {
    // SAFETY: an all-zero `statx` is a valid value: it consists of integers only.
    let mut answer: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the path is a valid empty C string, the descriptor is open, and `answer` is writable and large enough.
    let outcome = unsafe {
        libc::statx(file.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN, &mut answer)
    };
    if outcome == 0 { DirectIo::told(answer.stx_mask, answer.stx_dio_offset_align) } else { DirectIo::Untold }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn direct_io(_: &File) -> DirectIo {
    DirectIo::Untold
}

/// Switches an open file to direct I/O.
#[cfg(target_os = "linux")]
pub(crate) fn set_direct(file: &File) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    Ok(rustix::fs::fcntl_setfl(file, flags | rustix::fs::OFlags::DIRECT)?)
}

/// Switches back to the page cache.
#[cfg(target_os = "linux")]
pub(crate) fn clear_direct(file: &File) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    Ok(rustix::fs::fcntl_setfl(file, flags - rustix::fs::OFlags::DIRECT)?)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn clear_direct(_: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn set_direct(_: &File) -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
}

#[cfg(target_os = "linux")]
pub(crate) fn allocate(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    Ok(rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), offset, bytes)?)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn allocate(_: &File, _: u64, _: u64) -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
}

/// Returns start and end of the next hole of a file at or after `at`; both are at most `end`. The range beyond the end
/// of the file is a hole, and the only one if the file system does not report holes.
#[cfg(target_os = "linux")]
pub(crate) fn next_hole(file: &File, at: u64, end: u64) -> io::Result<(u64, u64)> {
    use rustix::fs::{SeekFrom, seek};
    let length = file.metadata()?.len();
    if at >= length {
        return Ok((at.min(end), end));
    }
    let hole = seek(file, SeekFrom::Hole(at)).unwrap_or(length);
    // No data after it: the hole extends to the end of the file and beyond.
    let data = if hole < length { seek(file, SeekFrom::Data(hole)).unwrap_or(end) } else { end };
    Ok((hole.min(end), data.min(end)))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn next_hole(file: &File, at: u64, end: u64) -> io::Result<(u64, u64)> {
    let length = file.metadata()?.len();
    Ok((at.max(length).min(end), end))
}

/// Size of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// Total size in bytes.
    pub total_bytes: u64,
    /// Bytes available to unprivileged users. A quota may allow less.
    pub available_bytes: u64,
}

impl FileSystem {
    /// Returns `None` if the file system does not report its size.
    fn of(told: &rustix::fs::StatVfs) -> Option<FileSystem> {
        let bytes = |blocks: u64| blocks.saturating_mul(told.f_frsize);
        let told = FileSystem { total_bytes: bytes(told.f_blocks), available_bytes: bytes(told.f_bavail) };
        Some(told).filter(|told| told.total_bytes > 0)
    }
}

/// Returns the file system that contains the path, or would if the path existed. `None` if unknown.
pub fn file_system(path: &Path) -> Option<FileSystem> {
    let absolute = std::path::absolute(path).ok()?;
    let there = absolute.ancestors().find_map(|path| rustix::fs::statvfs(path).ok())?;
    FileSystem::of(&there)
}

/// Returns the file system of an open file.
pub(crate) fn file_system_of(file: &File) -> Option<FileSystem> {
    FileSystem::of(&rustix::fs::fstatvfs(file).ok()?)
}

/// Discards a range: BLKDISCARD, or punches a hole in a file.
#[cfg(target_os = "linux")]
pub(crate) fn discard(file: &File, kind: DeviceKind, offset: u64, bytes: u64) -> io::Result<()> {
    /// From `linux/fs.h`.
    const BLKDISCARD: libc::Ioctl = libc::_IO(0x12, 119);
    if kind == DeviceKind::File {
        let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        return Ok(rustix::fs::fallocate(file, flags, offset, bytes)?);
    }
    let range = [offset, bytes];
    // SAFETY: BLKDISCARD reads two 64-bit numbers from the address, which point to `range` for the whole call.
    let outcome = unsafe { libc::ioctl(file.as_raw_fd(), BLKDISCARD, range.as_ptr()) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn discard(_: &File, _: DeviceKind, _: u64, _: u64) -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;

    fn queue(attributes: &[(&str, &str)]) -> BlockQueue {
        queue_from(&|name| {
            attributes.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn an_alignment_of_zero_is_a_refusal_where_it_is_filled_in() {
        assert_eq!(DirectIo::told(libc::STATX_DIOALIGN, 512), DirectIo::Aligned(512));
        assert_eq!(DirectIo::told(libc::STATX_DIOALIGN | 1, 0), DirectIo::Refused);
        assert_eq!(DirectIo::told(1, 0), DirectIo::Untold);
        assert_eq!(DirectIo::told(1, 512), DirectIo::Untold);
    }

    #[test]
    fn a_coarse_drive_is_recognised_and_the_optimal_size_ignored() {
        let coarse = queue(&[
            ("logical_block_size", "512"),
            ("physical_block_size", "16384"),
            ("minimum_io_size", "16384"),
            ("optimal_io_size", "131072"),
            ("discard_granularity", "512"),
            ("discard_max_bytes", "2199023255040"),
            ("write_cache", "write through"),
            ("fua", "1"),
        ]);
        assert_eq!(coarse.indirection_unit_bytes, Some(16384));
        assert!(!coarse.write_cache && coarse.fua && coarse.discard && coarse.logical_block_bytes == 512);
        assert_eq!(coarse.discard_bytes, PAGE_BYTES, "less than a page is not worth a discard");
        assert_eq!(queue(&[("discard_granularity", "2097152")]).discard_bytes, 2 << 20);
        assert_eq!(
            (coarse.placement_handles, queue(&[("max_write_streams", "7")]).placement_handles),
            (0, 7)
        );
        assert_eq!(
            queue(&[("max_write_streams", "65535")]).placement_handles,
            255,
            "a submission has a byte for it"
        );
        let plain = queue(&[("physical_block_size", "4096"), ("optimal_io_size", "524288"), ("fua", "0")]);
        assert_eq!(plain.indirection_unit_bytes, None);
        assert!(plain.write_cache, "a cache that nothing is known of is volatile");
        let unknown = BlockQueue { limit: queue(&[]).limit, ..BlockQueue::UNKNOWN };
        assert_eq!(queue(&[]), unknown);
    }

    #[test]
    fn devices_on_arrays_get_full_stripes_or_units_of_the_drives() {
        let array = |level, data_drives| Array {
            device: "md0".to_owned(),
            manager: "md",
            level,
            drives: 5,
            data_drives,
            chunk_bytes: 65536,
            drive_unit_bytes: Some(16384),
            failed: 0,
            activity: None,
            consistency: None,
        };
        let (block, file) = (DeviceKind::Block, DeviceKind::File);
        let unit = |array: &Array, kind| unit_on(Some(array), kind, Some(65536));
        let five = array(Level::Parity(5), 4);
        assert_eq!((unit(&five, block), unit(&five, file)), (Some(256 << 10), None));
        let striped = array(Level::Striped, 5);
        assert_eq!((unit(&striped, block), unit(&striped, file)), (Some(16384), Some(16384)));
        let three = array(Level::Parity(5), 3);
        assert_eq!(unit(&three, block), None);
        assert_eq!(unit_on(None, block, Some(65536)), Some(65536));
        let warning = |array| BlockQueue { array, ..BlockQueue::UNKNOWN }.array_warning();
        let told = warning(Some(three)).expect("its stripe is no unit");
        assert!(told.contains("md0") && told.contains("196608"), "{told}");
        assert_eq!([warning(Some(five)), warning(None)], [None, None]);
    }

    #[test]
    fn a_reclaim_unit_is_what_the_kernel_says() {
        assert_eq!(queue(&[("write_stream_granularity", "0")]).reclaim_unit_bytes, None);
        let large = queue(&[("write_stream_granularity", "6442450944")]);
        assert_eq!(large.reclaim_unit_bytes, Some(6 << 30), "more than 32 bits tell");
    }

    #[test]
    fn the_longest_command_fits_every_limit_of_the_queue() {
        let limit = |page_bytes: u64, attributes: &[(&str, u64)]| {
            let number = |name: &str| attributes.iter().find(|(key, _)| *key == name).map(|(_, n)| *n);
            let limit = CommandLimit::from(number, page_bytes);
            (limit.of_pages >> 10, limit.of_memory >> 10)
        };
        let queue = |kib, segments| [("max_sectors_kb", kib), ("max_segments", segments)];
        assert_eq!(limit(4096, &[]), (512, 256), "as the block layer's defaults");
        assert_eq!(limit(4096, &queue(1280, 128)), (512, 256));
        assert_eq!(limit(4096, &queue(1280, 127)), (256, 256));
        assert_eq!(limit(4096, &queue(1280, 129)), (512, 512));
        assert_eq!(limit(4096, &queue(200, 128)), (128, 128));
        assert_eq!(limit(4096, &queue(4096, 65535)), (1024, 512), "the most pages of one transfer");
        assert_eq!(limit(65536, &queue(1280, 128)), (1024, 1024));
        assert_eq!(limit(4096, &queue(4, 1)), (4, 4), "never less than a page");
        assert_eq!(limit(4096, &[("chunk_sectors", 256)]), (128, 128));
        assert_eq!(limit(4096, &[("chunk_sectors", 3 * 128)]), (64, 64));
        assert_eq!(limit(4096, &[("chunk_sectors", 0)]), (512, 256), "there is no boundary");
        assert_eq!(limit(65536, &[("max_segments", 64), ("max_segment_size", 4096)]), (256, 128));
    }
}
