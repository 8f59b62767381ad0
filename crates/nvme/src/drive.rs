//! Asking a drive.
#![allow(unsafe_code, reason = "a command of NVMe is an ioctl that no crate here wraps")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use crate::page::{Counters, PAGE_BYTES, Page, PageError};

/// Why a drive does not answer.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// The device cannot be opened.
    #[error("{}: {error}{}", path.display(), hint(error))]
    Open {
        /// The device.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is no NVMe device.
    #[error("{} is no NVMe device: its driver does not know NVMe's commands", .0.display())]
    NotNvme(PathBuf),
    /// The command failed.
    #[error("{}: page {page:#04x} cannot be had: {error}{}", path.display(), hint(error))]
    Command {
        /// The device.
        path: PathBuf,
        /// Which log page was asked for.
        page: u8,
        /// Why.
        error: io::Error,
    },
    /// The drive has no such page.
    #[error("{} has no log page {page:#04x} (status {status:#x})", path.display())]
    NoPage {
        /// The device.
        path: PathBuf,
        /// Which log page was asked for.
        page: u8,
        /// NVMe's status.
        status: u32,
    },
    /// What it answered is no page.
    #[error("{}: {error}", path.display())]
    Page {
        /// The device.
        path: PathBuf,
        /// What is wrong with it.
        error: PageError,
    },
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; log pages are for root",
        _ => "",
    }
}

/// An NVMe drive.
#[derive(Debug)]
pub struct Drive {
    file: File,
    path: PathBuf,
}

/// `struct nvme_passthru_cmd` of `linux/nvme_ioctl.h`.
#[repr(C)]
#[derive(Default)]
struct AdminCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    address: u64,
    metadata_bytes: u32,
    data_bytes: u32,
    cdw10: u32,
    cdw11: u32,
    cdw12: u32,
    cdw13: u32,
    cdw14: u32,
    cdw15: u32,
    timeout_ms: u32,
    result: u32,
}

const _: () = assert!(size_of::<AdminCommand>() == 72);

/// `NVME_IOCTL_ADMIN_CMD`: `_IOWR('N', 0x41, struct nvme_passthru_cmd)`.
const ADMIN_COMMAND: libc::c_ulong = 3 << 30 | 72 << 16 | (b'N' as libc::c_ulong) << 8 | 0x41;
const GET_LOG_PAGE: u8 = 0x02;
const ALL_NAMESPACES: u32 = u32::MAX;

impl Drive {
    /// Opens a device such as `/dev/nvme0` or `/dev/nvme0n1`.
    ///
    /// # Errors
    /// `Open`.
    pub fn open(path: &Path) -> Result<Drive, DriveError> {
        let file = File::open(path).map_err(|error| DriveError::Open { path: path.to_owned(), error })?;
        Ok(Drive { file, path: path.to_owned() })
    }

    /// What the drive counts: from the page of OCP, which proves what it is, with the standard one, else from its vendor's.
    ///
    /// # Errors
    /// As it failed with the last page that was asked for.
    pub fn counters(&self) -> Result<Counters, DriveError> {
        match self.page(Page::Ocp) {
            Ok(media) => Ok(media.or(self.page(Page::Health)?)),
            Err(DriveError::NoPage { .. } | DriveError::Page { .. }) => self.page(Page::Vendor),
            Err(error) => Err(error),
        }
    }

    fn page(&self, page: Page) -> Result<Counters, DriveError> {
        let mut bytes = [0u8; PAGE_BYTES];
        let words = (PAGE_BYTES / 4 - 1) as u32;
        let mut command = AdminCommand {
            opcode: GET_LOG_PAGE,
            namespace: ALL_NAMESPACES,
            address: bytes.as_mut_ptr().expose_provenance() as u64,
            data_bytes: PAGE_BYTES as u32,
            cdw10: words << 16 | u32::from(page.id()),
            ..AdminCommand::default()
        };
        // SAFETY: the descriptor is open; the ioctl reads and writes a command of 72 bytes, and at most `data_bytes` bytes at
        // `address`, which are those of `bytes`, borrowed for the call.
        let status = unsafe { libc::ioctl(self.file.as_raw_fd(), ADMIN_COMMAND as _, &mut command) };
        let path = || self.path.clone();
        match status {
            0 => page.parse(&bytes).map_err(|error| DriveError::Page { path: path(), error }),
            1.. => Err(DriveError::NoPage { path: path(), page: page.id(), status: status as u32 }),
            _ => {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    Some(libc::ENOTTY | libc::EINVAL | libc::EOPNOTSUPP) => Err(DriveError::NotNvme(path())),
                    _ => Err(DriveError::Command { path: path(), page: page.id(), error }),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_nvme_device_is_told() {
        let drive = Drive::open(Path::new("/dev/null")).expect("it can be opened");
        assert!(matches!(drive.counters(), Err(DriveError::NotNvme(_))), "{:?}", drive.counters());
        let error = Drive::open(Path::new("/dev/nvme99n1")).expect_err("there is none");
        assert!(error.to_string().starts_with("/dev/nvme99n1: "), "{error}");
    }
}
