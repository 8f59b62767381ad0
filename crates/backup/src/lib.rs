//! Backups of an Esker store: its contents at one point in time, copied while it is in use.
//!
//! A backup directory has one file per segment and one manifest per backup. A sealed segment never changes, so the next
//! backup copies only new segments. See `docs/decisions/0017-backups.md`.
//!
//! ```text
//! DIR/lock                          held while a process changes the directory
//! DIR/backups/000007.json           the manifest, in JSON Lines: superblocks, segments, checksums, one of itself
//! DIR/segments/capacity-65543.seg   a sealed segment; any number of backups share it
//! DIR/segments/7-capacity-65544.seg the part of a segment that was still open at backup 7, or a segment that differs from an
//!                                   earlier backup's segment of this number
//! DIR/segments/….seg.damaged        a file that failed a verification
//! ```
#![allow(clippy::disallowed_methods, reason = "a backup is taken in real time; only the engine is replayed")]

mod directory;
mod error;
mod manifest;
mod previous_backups;
mod reading;
mod restore;
mod summary;
mod take;
mod verify;

pub use directory::{list, prune};
pub use error::{Error, Result};
pub use restore::{Target, restore};
pub use summary::{Summary, Unread};
pub use take::{Copied, Report, backup};
pub use verify::verify;
