//! The public handles of a store and their calls.

pub(crate) mod blocking;
mod changing;
pub(crate) mod checkpoint;
pub(crate) mod close;
pub(crate) mod devices;
pub(crate) mod handle;
pub(crate) mod iterating;
pub(crate) mod places;
mod reading;
mod replicating;
pub(crate) mod segments;
pub(crate) mod stats;
mod writing;
