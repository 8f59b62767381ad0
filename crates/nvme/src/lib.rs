//! What NVMe drives tell of themselves: how many bytes the host wrote and how many the flash took.
//!
//! * [`Page`]: the log pages that tell it, and how each is read.
//! * [`hex_dump`]: a page as `nvme get-log` prints it.
//! * [`Drive`]: asking a drive, by ioctl. Needs root.

mod drive;
mod dump;
mod page;

pub use drive::{Drive, DriveError};
pub use dump::hex_dump;
pub use page::{Counters, Page, PageError};
