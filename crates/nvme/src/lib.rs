//! What NVMe drives tell of themselves: how many bytes the host wrote and how many the flash took, and which writes they like.
//!
//! * [`Page`]: the log pages that tell it, and how each is read.
//! * [`saved`]: pages in a file, in binary or as `nvme get-log` prints them.
//! * [`Namespace`]: the writes that a drive likes, as it answers Identify.
//! * [`Drive`]: asking a drive, by ioctl ([`Ioctl`]) or by whatever else takes admin commands ([`Admin`]). Needs root.

mod admin;
mod drive;
mod dump;
mod namespace;
mod page;
mod saved;

pub use admin::{Admin, Command, Ioctl};
pub use drive::{Drive, DriveError};
pub use namespace::{Namespace, NamespaceError};
pub use page::{Counters, Page, PageError};
pub use saved::saved;
