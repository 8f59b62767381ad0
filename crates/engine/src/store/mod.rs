//! The store as its users see it.

pub(crate) mod blocking;
pub(crate) mod close;
pub(crate) mod handle;
mod reading;
pub(crate) mod stats;
mod writing;
