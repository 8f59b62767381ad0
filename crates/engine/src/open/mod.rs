//! Opening a store: its devices, its superblocks, and recovery of its content.

pub(crate) mod adding;
mod changes;
pub(crate) mod devices;
pub(crate) mod extent;
pub(crate) mod format;
mod lost;
mod medium;
pub(crate) mod memory_plan;
pub(crate) mod opening;
pub(crate) mod options;
pub(crate) mod progress;
pub(crate) mod recover;
mod run;
pub(crate) mod several;
pub mod sizing;
pub(crate) mod staged;
pub(crate) mod staging_file;
pub(crate) mod staging_look;
