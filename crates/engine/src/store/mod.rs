//! The store as its users see it.

pub(crate) mod blocking;
mod changing;
pub(crate) mod close;
pub(crate) mod handle;
pub(crate) mod iterating;
mod reading;
pub(crate) mod segments;
pub(crate) mod stats;
mod writing;
