//! Queries to an NVMe drive.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::admin::{Admin, Command, Ioctl};
use crate::namespace::{IDENTIFY_BYTES, Namespace, NamespaceError};
use crate::page::{Counters, PAGE_BYTES, Page, PageError};

/// The reason why a query to a drive failed.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// The device cannot be opened.
    #[error("{}: {error}{}", path.display(), hint(error))]
    Open {
        /// The device.
        path: PathBuf,
        /// The system error.
        error: io::Error,
    },
    /// The device is not an NVMe device.
    #[error("{} is not an NVMe device: its driver does not support NVMe commands", .0.display())]
    NotNvme(PathBuf),
    /// The command did not reach the drive.
    #[error("{}: cannot read NVMe {what}: {error}{}", path.display(), hint(error))]
    Command {
        /// The device.
        path: PathBuf,
        /// The queried item.
        what: String,
        /// The system error.
        error: io::Error,
    },
    /// The drive refused the command, for example because it does not support the page.
    #[error("{}: the drive refused to return NVMe {what} (status {status:#x})", path.display())]
    Refused {
        /// The device.
        path: PathBuf,
        /// The queried item.
        what: String,
        /// NVMe status code.
        status: u32,
    },
    /// The answer is not a valid log page.
    #[error("{}: {error}", path.display())]
    Page {
        /// The device.
        path: PathBuf,
        /// The problem with the page.
        error: PageError,
    },
    /// The answer does not describe a namespace.
    #[error("{}: {error}", path.display())]
    Namespace {
        /// The device.
        path: PathBuf,
        /// The problem with the answer.
        error: NamespaceError,
    },
    /// The drive supports none of the known pages with a counter of flash writes.
    #[error("the drive does not report the bytes written to its flash: {ocp}; {vendor}")]
    Untold {
        /// The failure of the OCP page.
        ocp: Box<DriveError>,
        /// The failure of the vendor's page.
        vendor: Box<DriveError>,
    },
}

fn hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => "; only root may query a drive",
        Some(libc::EINVAL | libc::EOPNOTSUPP) => {
            "; not an NVMe device, or its driver does not pass commands through"
        }
        _ => "",
    }
}

/// An NVMe drive, or one namespace of it.
#[derive(Debug)]
pub struct Drive<A = Ioctl> {
    admin: A,
    path: PathBuf,
}

const GET_LOG_PAGE: u8 = 0x02;
const IDENTIFY: u8 = 0x06;
/// Value of CNS (structure that Identify returns): the namespace.
const OF_NAMESPACE: u32 = 0x00;
const ALL_NAMESPACES: u32 = u32::MAX;

impl Drive {
    /// Opens a device such as `/dev/nvme0` or `/dev/nvme0n1`.
    ///
    /// # Errors
    /// [`DriveError::Open`].
    pub fn open(path: &Path) -> Result<Drive, DriveError> {
        let file = File::open(path).map_err(|error| DriveError::Open { path: path.to_owned(), error })?;
        Ok(Drive::over(Ioctl(file), path))
    }
}

impl<A: Admin> Drive<A> {
    /// Returns a drive with another transport; `path` names it in errors.
    pub fn over(admin: A, path: &Path) -> Drive<A> {
        Drive { admin, path: path.to_owned() }
    }

    /// Reads the write counters: from the OCP page, which identifies itself, combined with the standard page, else from
    /// the vendor's page.
    ///
    /// # Errors
    /// The failure of a query; [`DriveError::Untold`] if the drive supports neither page.
    pub fn counters(&self) -> Result<Counters, DriveError> {
        match self.page(Page::Ocp) {
            Ok(media) => Ok(media.or(self.page(Page::Health)?)),
            Err(ocp @ (DriveError::Refused { .. } | DriveError::Page { .. })) => {
                self.page(Page::Vendor).map_err(|vendor| match vendor {
                    DriveError::Refused { .. } | DriveError::Page { .. } => {
                        DriveError::Untold { ocp: Box::new(ocp), vendor: Box::new(vendor) }
                    }
                    error => error,
                })
            }
            Err(error) => Err(error),
        }
    }

    /// Identifies the opened namespace.
    ///
    /// # Errors
    /// The failure of the query; [`DriveError::NotNvme`] if the opened device is a controller instead of a namespace.
    pub fn namespace(&self) -> Result<Namespace, DriveError> {
        let what = "namespace number";
        let namespace = self.admin.namespace().map_err(|error| self.unreached(what, error))?;
        let mut bytes = [0; IDENTIFY_BYTES];
        let command = Command { opcode: IDENTIFY, namespace, cdw10: OF_NAMESPACE };
        self.send("Identify data", command, &mut bytes)?;
        let failed = |error| DriveError::Namespace { path: self.path.clone(), error };
        Namespace::parse(&bytes).map_err(failed)
    }

    fn page(&self, page: Page) -> Result<Counters, DriveError> {
        let mut bytes = [0; PAGE_BYTES];
        let words = (PAGE_BYTES / 4 - 1) as u32;
        let cdw10 = words << 16 | u32::from(page.id());
        let command = Command { opcode: GET_LOG_PAGE, namespace: ALL_NAMESPACES, cdw10 };
        self.send(&format!("log page {:#04x}", page.id()), command, &mut bytes)?;
        page.parse(&bytes).map_err(|error| DriveError::Page { path: self.path.clone(), error })
    }

    fn send(&self, what: &str, command: Command, answer: &mut [u8]) -> Result<(), DriveError> {
        match self.admin.send(command, answer) {
            Ok(0) => Ok(()),
            Ok(status) => Err(DriveError::Refused { path: self.path.clone(), what: what.to_owned(), status }),
            Err(error) => Err(self.unreached(what, error)),
        }
    }

    fn unreached(&self, what: &str, error: io::Error) -> DriveError {
        match error.raw_os_error() {
            Some(libc::ENOTTY) => DriveError::NotNvme(self.path.clone()),
            _ => DriveError::Command { path: self.path.clone(), what: what.to_owned(), error },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::tests::identified;
    use crate::page::tests::{health_page, ocp_page, vendor_page};

    /// A drive that answers each command with the bytes of an answer, an NVMe status, or a system error.
    struct Fake(Answers);

    type Answers = fn(Command) -> Result<Vec<u8>, Answer>;

    enum Answer {
        Status(u32),
        Errno(i32),
    }

    /// "Invalid Log Page", a command-specific status.
    const NO_SUCH_PAGE: u32 = 0x109;

    impl Admin for Fake {
        fn send(&self, command: Command, answer: &mut [u8]) -> io::Result<u32> {
            match (self.0)(command) {
                Ok(bytes) => answer.copy_from_slice(&bytes),
                Err(Answer::Status(status)) => return Ok(status),
                Err(Answer::Errno(errno)) => return Err(io::Error::from_raw_os_error(errno)),
            }
            Ok(0)
        }

        fn namespace(&self) -> io::Result<u32> {
            Ok(7)
        }
    }

    fn drive(answers: Answers) -> Drive<Fake> {
        Drive::over(Fake(answers), Path::new("/dev/nvme0n1"))
    }

    /// Returns the command that reads 512 bytes of a page; the length is in dwords, minus one.
    fn asks_for(page: u32) -> Command {
        Command { opcode: 2, namespace: u32::MAX, cdw10: 127 << 16 | page }
    }

    #[test]
    fn non_nvme_device_is_refused() {
        let drive = Drive::open(Path::new("/dev/null")).expect("it can be opened");
        assert!(matches!(drive.counters(), Err(DriveError::NotNvme(_))), "{:?}", drive.counters());
        assert!(matches!(drive.namespace(), Err(DriveError::NotNvme(_))), "{:?}", drive.namespace());
        let error = Drive::open(Path::new("/dev/nvme99n1")).expect_err("there is none");
        assert!(error.to_string().starts_with("/dev/nvme99n1: "), "{error}");
    }

    #[test]
    fn ocp_and_standard_pages_are_read_first() {
        let counters = drive(|command| match command {
            command if command == asks_for(0xC0) => Ok(ocp_page(3 << 30)),
            command if command == asks_for(0x02) => Ok(health_page(2000)),
            other => panic!("{other:?}"),
        })
        .counters();
        let counters = counters.expect("it tells");
        assert_eq!((counters.media_bytes, counters.host_bytes), (Some(3 << 30), Some(1_024_000_000)));
    }

    #[test]
    fn drive_without_ocp_uses_vendor_page() {
        let without: [Answers; 2] = [
            |command| match command {
                command if command == asks_for(0xCA) => Ok(vendor_page()),
                _ => Err(Answer::Status(NO_SUCH_PAGE)),
            },
            // Returns another page of 512 bytes under the number of the OCP page.
            |command| match command {
                command if command == asks_for(0xCA) => Ok(vendor_page()),
                _ => Ok(vec![0; PAGE_BYTES]),
            },
        ];
        for answers in without {
            let counters = drive(answers).counters().expect("it tells");
            assert_eq!(counters, Page::Vendor.parse(&vendor_page()).expect("it is one"));
        }
    }

    #[test]
    fn drive_without_pages_reports_both_reasons() {
        let text = drive(|_| Err(Answer::Status(NO_SUCH_PAGE))).counters().expect_err("it has none");
        let both = "the drive does not report the bytes written to its flash: /dev/nvme0n1: the drive refused to return NVMe log \
                    page 0xc0 (status 0x109); /dev/nvme0n1: the drive refused to return NVMe log page 0xca (status 0x109)";
        assert_eq!(text.to_string(), both);
    }

    #[test]
    fn kernel_errors_name_remedy() {
        let text = |answers| drive(answers).counters().expect_err("it fails").to_string();
        assert!(text(|_| Err(Answer::Errno(libc::EACCES))).ends_with("; only root may query a drive"));
        assert!(text(|_| Err(Answer::Errno(libc::EINVAL))).contains("does not pass commands through"));
        let gone = text(|_| Err(Answer::Errno(libc::ENODEV)));
        assert_eq!(gone, "/dev/nvme0n1: cannot read NVMe log page 0xc0: No such device (os error 19)");
        assert!(text(|_| Err(Answer::Errno(libc::ENOTTY))).contains("is not an NVMe device"));
    }

    #[test]
    fn opened_namespace_is_identified() {
        let identify = |command| match command {
            Command { opcode: 6, namespace: 7, cdw10: 0 } => Ok(identified()),
            other => panic!("{other:?}"),
        };
        let namespace = drive(identify).namespace().expect("it tells");
        assert_eq!(namespace.write_granularity_bytes, Some(64 << 10));
        let gone = drive(|_| Ok(vec![0; IDENTIFY_BYTES])).namespace().expect_err("it is not active");
        assert_eq!(gone.to_string(), "/dev/nvme0n1: the namespace is not active");
        let refused = drive(|_| Err(Answer::Status(0x0B))).namespace().expect_err("it is refused");
        assert_eq!(
            refused.to_string(),
            "/dev/nvme0n1: the drive refused to return NVMe Identify data (status 0xb)"
        );
    }
}
