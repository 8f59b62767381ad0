//! Opens a path as a device: checks the file type, locks it, and chooses the access mode and the backend, with
//! fallbacks.
//!
//! 1. Open it (creating the file if requested), and make a new directory entry durable.
//! 2. Refuse anything but a regular file or a block device.
//! 3. Lock it. Happens before anything is read, because otherwise two openers would act on the same bytes.
//! 4. Switch to direct I/O, or explain why not.
//! 5. Choose the backend by trying it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;

use crate::file::DeviceFile;
use crate::probe::{self, BlockQueue, DirectIo, Volume};
use crate::threads::ThreadDevice;
use crate::{Buffer, Device, DeviceError, DeviceKind, Geometry, lock, private};

/// The backend that submits operations to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// io_uring if it works, else threads.
    #[default]
    Auto,
    /// io_uring or an error.
    Uring,
    /// Blocking calls on a thread pool.
    Threads,
}

/// Use of direct I/O (bypassing the page cache).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direct {
    /// Direct if the file system supports it.
    #[default]
    Auto,
    /// Always through the page cache.
    Never,
    /// Direct, or an error.
    Require,
}

/// The path to open, and the options of its device.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// A block device or a regular file.
    pub path: PathBuf,
    /// Create the file, for this user alone, if it is missing. Its parent directory must exist.
    pub create: bool,
    /// The backend.
    pub backend: Backend,
    /// Use of direct I/O.
    pub direct: Direct,
    /// Maximum number of operations in flight in the kernel; further ones wait in a queue.
    pub depth: u32,
    /// Bytes of buffer memory registered with the kernel (io_uring only), or 0.
    pub registered_bytes: usize,
    /// Maximum number of threads of the thread-pool backend.
    pub threads: usize,
}

impl OpenOptions {
    /// Returns the default options for an existing device.
    pub fn new(path: impl Into<PathBuf>) -> OpenOptions {
        OpenOptions {
            path: path.into(),
            create: false,
            backend: Backend::Auto,
            direct: Direct::Auto,
            depth: 256,
            registered_bytes: 8 << 20,
            threads: 8,
        }
    }

    /// Sets whether a missing file is created.
    pub fn create(mut self, create: bool) -> OpenOptions {
        self.create = create;
        self
    }

    /// Sets the backend.
    pub fn backend(mut self, backend: Backend) -> OpenOptions {
        self.backend = backend;
        self
    }

    /// Sets the use of direct I/O.
    pub fn direct(mut self, direct: Direct) -> OpenOptions {
        self.direct = direct;
        self
    }
}

/// Opens a device exclusively. Also returns warnings for the operator, one sentence each.
pub fn open(options: OpenOptions) -> Result<(Arc<dyn Device>, Vec<String>), DeviceError> {
    let path: Arc<str> = options.path.display().to_string().into();
    let mut warnings = Vec::new();
    let failed = |source| DeviceError::open(&path, source);

    // 1.
    let file = open_file(&options, &path)?;
    // 2.
    let metadata = file.metadata().map_err(failed)?;
    let Some(kind) = probe::kind_of(&metadata) else {
        return Err(DeviceError::invalid(&path, "neither a regular file nor a block device"));
    };
    refuse_read_only(&metadata, kind, &path)?;
    // 3.
    let locked =
        lock::retry(&metadata, || lock::try_lock(&file).map(|taken| taken.then_some(())).transpose());
    locked.map_err(|holder| DeviceError::Locked { path: path.clone(), holder })?.map_err(failed)?;
    // 4.
    let queue = probe::block_queue(&metadata, kind);
    warnings.extend(queue.array_warning().filter(|_| kind == DeviceKind::Block));
    let (direct, block_bytes) = direct(&file, &options, kind, &queue, &path, &mut warnings)?;
    let bytes = size_of(&file).map_err(failed)?;
    let geometry = Geometry {
        bytes: bytes / u64::from(block_bytes) * u64::from(block_bytes),
        block_bytes,
        indirection_unit_bytes: queue.indirection_unit_bytes,
        write_cache: queue.write_cache,
        fua: queue.fua,
        // Freeing a file's blocks is useful even if the device below does not support discard.
        discard: cfg!(target_os = "linux") && (kind == DeviceKind::File || queue.discard),
        discard_bytes: match kind {
            // A file system frees whole blocks of its own size.
            DeviceKind::File => {
                u32::try_from(metadata.blksize()).map_or(4096, |b| b.next_power_of_two().clamp(4096, 1 << 20))
            }
            _ => queue.discard_bytes,
        },
        reclaim_unit_bytes: queue.reclaim_unit_bytes.filter(|_| kind == DeviceKind::Block),
        // The page cache does not keep placement handles, and a file system chooses the location itself.
        placement_handles: if direct && kind == DeviceKind::Block { queue.placement_handles } else { 0 },
        direct,
        kind,
        backend: "threads",
    };
    // 5.
    let volume = match kind {
        DeviceKind::Block => Volume { limit: direct.then_some(queue.limit), start_bytes: queue.start_bytes },
        _ => Volume::default(),
    };
    let mut file = Arc::new(DeviceFile::new(file, path.clone(), geometry, volume));
    if options.backend != Backend::Threads {
        file = match start_uring(file, &options, &mut warnings) {
            Ok(device) => return Ok((device, warnings)),
            Err((_, error)) if options.backend == Backend::Uring => {
                return Err(DeviceError::invalid(
                    &path,
                    format!("io_uring is required but does not work: {error}{}", uring_remedy(&error)),
                ));
            }
            Err((file, error)) => {
                warnings.push(format!(
                    "{path}: io_uring does not work here ({error}){}; using a pool of threads",
                    uring_remedy(&error)
                ));
                file
            }
        };
    }
    Ok((Arc::new(ThreadDevice::new(file, options.threads)?), warnings))
}

/// Refuses a read-only block device: the first write would fail with EPERM, which does not name the cause.
fn refuse_read_only(metadata: &fs::Metadata, kind: DeviceKind, path: &Arc<str>) -> Result<(), DeviceError> {
    if kind != DeviceKind::Block || !probe::is_read_only(metadata) {
        return Ok(());
    }
    Err(DeviceError::invalid(
        path,
        "the device is read-only: it is write-protected, or was set so (blockdev --getro); a store needs to write: clear the \
         protection, such as with blockdev --setrw, or use another device",
    ))
}

/// Names the sysctl or the seccomp profile that forbids io_uring, if it can be determined.
fn uring_remedy(error: &io::Error) -> String {
    let setting = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    uring_forbidden_by(error, setting.trim(), &status).map_or_else(String::new, |what| format!("; {what}"))
}

/// Returns the setting that forbids io_uring, given the sysctl kernel.io_uring_disabled and /proc/self/status.
fn uring_forbidden_by(error: &io::Error, setting: &str, status: &str) -> Option<&'static str> {
    let is_filtered = status.lines().any(|line| line.starts_with("Seccomp:") && line.ends_with('2'));
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) if setting == "2" => {
            Some("the sysctl kernel.io_uring_disabled is 2, which forbids it to all processes: set it to 0")
        }
        Some(libc::EPERM | libc::EACCES) if setting == "1" => Some(
            "the sysctl kernel.io_uring_disabled is 1, which forbids it to processes without CAP_SYS_ADMIN that are not in \
             kernel.io_uring_group: set it to 0, or add the group",
        ),
        Some(libc::EPERM | libc::EACCES | libc::ENOSYS) if is_filtered => Some(
            "a seccomp profile filters the system calls of this process: allow io_uring_setup, io_uring_enter and \
             io_uring_register in the profile of the container or service",
        ),
        Some(libc::ENOSYS) => {
            Some("the kernel has no io_uring: it needs Linux 5.6 or later, built with CONFIG_IO_URING")
        }
        Some(libc::ENOMEM) => Some("memory for the ring cannot be locked: raise RLIMIT_MEMLOCK (ulimit -l)"),
        _ => None,
    }
}

#[cfg(target_os = "linux")]
fn start_uring(
    file: Arc<DeviceFile>,
    options: &OpenOptions,
    warnings: &mut Vec<String>,
) -> Result<Arc<dyn Device>, (Arc<DeviceFile>, io::Error)> {
    // A deeper ring is no faster on any device, and the kernel's own ring limit is not far above.
    let depth = options.depth.clamp(1, 4096);
    match crate::uring::UringDevice::start(&file, depth, options.registered_bytes) {
        Ok((device, more)) => {
            warnings.extend(more.into_iter().map(|warning| format!("{}: {warning}", file.path)));
            Ok(Arc::new(device))
        }
        Err(error) => Err((file, error)),
    }
}

#[cfg(not(target_os = "linux"))]
fn start_uring(
    file: Arc<DeviceFile>,
    _: &OpenOptions,
    _: &mut Vec<String>,
) -> Result<Arc<dyn Device>, (Arc<DeviceFile>, io::Error)> {
    Err((file, io::Error::from_raw_os_error(libc::ENOSYS)))
}

fn open_file(options: &OpenOptions, path: &Arc<str>) -> Result<File, DeviceError> {
    let existing = fs::metadata(&options.path);
    let is_block =
        existing.as_ref().is_ok_and(|metadata| probe::kind_of(metadata) == Some(DeviceKind::Block));
    // Refused before opening, because opening a pipe would block.
    if let Some(metadata) = existing.as_ref().ok().filter(|metadata| probe::kind_of(metadata).is_none()) {
        let what = if metadata.is_dir() { "a directory" } else { "a special file" };
        return Err(DeviceError::invalid(
            path,
            format!("{what}; a regular file or a block device is required"),
        ));
    }
    let mut open = fs::OpenOptions::new();
    open.read(true).write(true);
    if is_block {
        // Refuses while the device is mounted or claimed.
        open.custom_flags(libc::O_EXCL);
    }
    let busy = |error: &io::Error| is_block && error.raw_os_error() == Some(libc::EBUSY);
    let opened = match &existing {
        Ok(metadata) => lock::retry(metadata, || match open.open(&options.path) {
            Err(error) if busy(&error) => None,
            opened => Some(opened),
        })
        .map_err(|holder| DeviceError::Locked { path: path.clone(), holder })?,
        Err(_) => open.open(&options.path),
    };
    // The process that created the file may have died before the directory entry was durable.
    let unused = |file: &File| file.metadata().is_ok_and(|m| m.is_file() && m.len() == 0);
    match opened {
        Ok(file) if unused(&file) => match private::sync_parent_if_readable(&options.path) {
            Ok(()) => Ok(file),
            Err(source) => Err(DeviceError::open(path, source)),
        },
        Ok(file) => Ok(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound && options.create => {
            let made = match private::make_file(&options.path) {
                // Another process created the file first, or the path is a dangling symbolic link.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => open.open(&options.path),
                made => made,
            };
            made.map_err(|source| DeviceError::open(path, source))
        }
        Err(source) => Err(DeviceError::open(path, source)),
    }
}

/// Switches to direct I/O if requested and possible. Returns true if it is on, and the alignment that operations need.
fn direct(
    file: &File,
    options: &OpenOptions,
    kind: DeviceKind,
    queue: &BlockQueue,
    path: &Arc<str>,
    warnings: &mut Vec<String>,
) -> Result<(bool, u32), DeviceError> {
    if options.direct == Direct::Never {
        return Ok((false, probe::PAGE_BYTES));
    }
    let outcome = direct_blocks(kind, queue.logical_block_bytes, probe::direct_io(file)).and_then(|bytes| {
        probe::set_direct(file)?;
        try_read(file, bytes as usize)?;
        Ok(bytes)
    });
    match outcome {
        Ok(block_bytes) => Ok((true, block_bytes)),
        Err(error) if options.direct == Direct::Require => {
            let what = format!("direct I/O is required but {} refuses it: {error}", file_system(file));
            Err(DeviceError::invalid(path, what))
        }
        Err(error) => {
            probe::clear_direct(file).map_err(|source| DeviceError::open(path, source))?;
            warnings.push(format!(
                "{path}: {} refuses direct I/O ({error}); going through the page cache, which costs memory and copies",
                file_system(file)
            ));
            Ok((false, probe::PAGE_BYTES))
        }
    }
}

/// Returns the alignment for direct operations, or the reason why direct I/O is impossible.
fn direct_blocks(kind: DeviceKind, logical_block_bytes: u32, told: DirectIo) -> io::Result<u32> {
    let bytes = match (told, kind) {
        // Checked before any trial transfer: the kernel would silently serve such a transfer through the page cache,
        // and a FailStop would then attribute write errors to the wrong write.
        (DirectIo::Refused, _) => {
            return Err(io::Error::other("the kernel does not support it on this file"));
        }
        (DirectIo::Aligned(bytes), DeviceKind::File) => bytes,
        _ => logical_block_bytes,
    };
    let bytes = bytes.max(512);
    if bytes.is_power_of_two() && bytes as usize <= crate::BUFFER_ALIGNMENT {
        Ok(bytes)
    } else {
        Err(io::Error::other(format!(
            "it requires an alignment of {bytes} bytes; at most 4096 are supported"
        )))
    }
}

/// Tries one direct read, because some file systems accept the flag and refuse the first transfer.
fn try_read(file: &File, block_bytes: usize) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    let mut block = Buffer::zeroed(block_bytes);
    match file.read_at(&mut block, 0) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Err(error),
        // Any other failure comes from the medium and is reported when the data is needed.
        _ => Ok(()),
    }
}

fn size_of(mut file: &File) -> io::Result<u64> {
    use std::io::Seek;
    file.seek(io::SeekFrom::End(0))
}

/// Returns the name of the file system of `file`, for messages.
#[cfg(target_os = "linux")]
fn file_system(file: &File) -> String {
    let Ok(stat) = rustix::fs::fstatfs(file) else { return "its file system".to_owned() };
    let name = match stat.f_type as u64 {
        0xEF53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683E => "btrfs",
        0x0102_1994 => "tmpfs",
        0x794C_7630 => "overlayfs",
        0x6969 => "nfs",
        0x2FC1_2FC1 => "zfs",
        0x6573_5546 => "fuse",
        0x0102_1997 => "9p",
        0xF2F5_2010 => "f2fs",
        other => return format!("its file system (type {other:#x})"),
    };
    format!("the file system {name}")
}

#[cfg(not(target_os = "linux"))]
fn file_system(_: &File) -> String {
    "this system".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_io_uring_names_the_setting_or_the_profile() {
        let forbidden = |errno, setting, status| {
            uring_forbidden_by(&io::Error::from_raw_os_error(errno), setting, status).unwrap_or_default()
        };
        assert!(forbidden(libc::EPERM, "2", "").contains("kernel.io_uring_disabled is 2"));
        assert!(forbidden(libc::EPERM, "1", "Seccomp:\t2").contains("kernel.io_uring_disabled is 1"));
        assert!(forbidden(libc::EPERM, "0", "Name:\tx\nSeccomp:\t2\n").contains("seccomp profile"));
        assert!(forbidden(libc::ENOSYS, "", "Seccomp:\t2").contains("seccomp profile"));
        assert!(forbidden(libc::ENOSYS, "", "Seccomp:\t0").contains("Linux 5.6"));
        assert_eq!(forbidden(libc::EPERM, "0", "Seccomp:\t0"), "");
        assert_eq!(forbidden(libc::EIO, "2", ""), "");
    }

    #[test]
    fn direct_blocks_follow_alignment_reported_by_kernel() {
        use DirectIo::{Aligned, Refused, Untold};
        let (file, block) = (DeviceKind::File, DeviceKind::Block);
        let blocks = |kind, told| direct_blocks(kind, 4096, told).ok();
        assert_eq!((blocks(file, Aligned(512)), blocks(block, Aligned(512))), (Some(512), Some(4096)));
        assert_eq!((blocks(file, Untold), blocks(block, Untold)), (Some(4096), Some(4096)));
        assert_eq!((blocks(file, Refused), blocks(block, Refused)), (None, None));
        assert_eq!(blocks(file, Aligned(1)), Some(512), "less than a sector is not asked for");
        assert_eq!((blocks(file, Aligned(8192)), blocks(file, Aligned(1536))), (None, None));
    }
}
