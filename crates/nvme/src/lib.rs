//! NVMe drives: bytes written by the host and to the flash, and the preferred write granularity.
//!
//! * [`Page`]: the log pages with these counters, and their parsers.
//! * [`saved`]: log pages in a file, binary or as printed by `nvme get-log`.
//! * [`Namespace`]: the write granularity that a drive prefers, from its answer to Identify.
//! * [`Drive`]: queries to a drive by ioctl ([`Ioctl`]) or any other transport of admin commands ([`Admin`]). Needs
//!   root.

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
