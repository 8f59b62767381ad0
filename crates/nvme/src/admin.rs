//! NVMe admin commands and their transport to a drive.
#![allow(unsafe_code, reason = "a command of NVMe is an ioctl that no crate here wraps")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// An admin command that reads: its answer fills a buffer of known length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Opcode.
    pub opcode: u8,
    /// Namespace number.
    pub namespace: u32,
    /// First command parameter (command dword 10).
    pub cdw10: u32,
}

/// A target of admin commands: a drive, or a fake in tests.
pub trait Admin {
    /// Runs a command, and returns NVMe's status: 0 if `answer` is filled.
    ///
    /// # Errors
    /// If the command did not reach the drive.
    fn send(&self, command: Command, answer: &mut [u8]) -> io::Result<u32>;

    /// Returns the number of the opened namespace.
    ///
    /// # Errors
    /// If the opened device is not a namespace: a controller, or not an NVMe device.
    fn namespace(&self) -> io::Result<u32>;
}

/// The ioctls of Linux's NVMe driver.
#[derive(Debug)]
pub struct Ioctl(pub(crate) File);

/// `struct nvme_passthru_cmd` of `linux/nvme_ioctl.h`.
#[repr(C)]
#[derive(Default)]
struct PassedThrough {
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

const _: () = assert!(size_of::<PassedThrough>() == 72);

/// `NVME_IOCTL_ID`. Ioctl numbers have a different encoding on some architectures, such as PowerPC and MIPS.
#[cfg(target_os = "linux")]
const NAMESPACE_ID: libc::Ioctl = libc::_IO(b'N' as u32, 0x40);
/// `NVME_IOCTL_ADMIN_CMD`.
#[cfg(target_os = "linux")]
const ADMIN_COMMAND: libc::Ioctl = libc::_IOWR::<PassedThrough>(b'N' as u32, 0x41);

/// Other systems have no such ioctls.
#[cfg(not(target_os = "linux"))]
const NAMESPACE_ID: libc::c_ulong = 0;
#[cfg(not(target_os = "linux"))]
const ADMIN_COMMAND: libc::c_ulong = 0;

impl Admin for Ioctl {
    fn send(&self, command: Command, answer: &mut [u8]) -> io::Result<u32> {
        let mut passed = PassedThrough {
            opcode: command.opcode,
            namespace: command.namespace,
            address: answer.as_mut_ptr().expose_provenance() as u64,
            data_bytes: answer.len() as u32,
            cdw10: command.cdw10,
            ..PassedThrough::default()
        };
        // SAFETY: the descriptor is open; the ioctl reads and writes a command of 72 bytes, and at most `data_bytes` bytes at
        // `address`, which are those of `answer`, borrowed for the call.
        let status = unsafe { libc::ioctl(self.0.as_raw_fd(), ADMIN_COMMAND, &mut passed) };
        u32::try_from(status).map_err(|_| io::Error::last_os_error())
    }

    fn namespace(&self) -> io::Result<u32> {
        // SAFETY: the descriptor is open; the ioctl takes no parameter.
        let number = unsafe { libc::ioctl(self.0.as_raw_fd(), NAMESPACE_ID) };
        u32::try_from(number).map_err(|_| io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn ioctl_numbers_match_kernel() {
        assert_eq!((NAMESPACE_ID, ADMIN_COMMAND), (0x4e40, 0xc048_4e41));
    }
}
