//! Looks into a store from outside: its content, its health, and the data that can be saved.
//!
//! * [`StoreView`] opens a store read-only, without its lock, closed or beside a server that has it open.
//! * [`StoreView::overview`], [`StoreView::slot_rows`], [`StoreView::records`], [`StoreView::trace`],
//!   [`StoreView::get`] and [`StoreView::scan`] show the content, from the log alone.
//! * [`StoreView::check`] verifies every byte in use. [`StoreView::repair_to`] makes a new store from the
//!   healthy records.
//! * [`restore_copies`] rewrites damaged copies of a superblock from any copy that is left;
//!   [`find_segments`] rebuilds a superblock from the segments if all its copies are lost.
//!
//! The parsers of `esker-log` read all bytes. The engine is used only to compare its index with the log,
//! and to write repaired stores.

mod check;
mod class;
mod current;
mod error;
mod find_segments;
mod find_superblock;
mod fold;
mod key;
mod layout;
mod marks;
mod memory;
mod names;
mod newest_versions;
mod overview;
mod owner;
mod records;
mod repair;
mod segments;
mod several;
mod slots;
mod store;
mod superblocks;
mod svg;
mod tier_view;
mod versions;
mod watch;

pub use check::CheckOptions;
pub use check::report::{Counts, Effort, Finding, IndexCheck, Report, Severity, StagingReport};
pub use error::{InspectError, Result};
pub use find_segments::{FoundTier, find_segments, restore_superblocks};
pub use key::{Key, Name, hex, shown};
pub use layout::{LayoutField, LayoutTable, format_version, layout, layout_text};
pub use memory::{CheckEstimate, MemoryLimits, estimate_check};
pub use overview::{ClassOverview, Overview, Space, State, States, TierOverview, Written};
pub use owner::give_to_owner_of_directory;
pub use records::{Item, RecordRow, Records, Standing};
pub use repair::Repaired;
pub use segments::{Segments, SlotRow, SlotState};
pub use store::{StoreView, TierView, holds_store};
pub use superblocks::{RestoredCopies, SuperblockCopy, restore_copies, write_copies};
pub use svg::{colour, svg};
pub use watch::Watcher;

pub use esker_log::SegmentClass;
