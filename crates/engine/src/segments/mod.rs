//! Segments on devices: free slots, the content of slots, writing of segments, and the memory they are built in. This folder
//! does not know keys.

pub(crate) mod accounting;
pub(crate) mod allocation;
pub(crate) mod allocations;
pub(crate) mod buffers;
pub(crate) mod contents;
pub(crate) mod counts;
pub(crate) mod damaged;
pub(crate) mod device_failure;
pub(crate) mod discards;
pub(crate) mod draining;
pub(crate) mod far_copies;
pub(crate) mod groups;
pub(crate) mod handles;
pub(crate) mod kept_segments;
pub(crate) mod limit;
pub(crate) mod members;
pub(crate) mod oldest;
pub(crate) mod preallocated;
pub(crate) mod room;
pub(crate) mod sets;
pub(crate) mod slot;
pub(crate) mod slots;
pub(crate) mod space;
pub(crate) mod staging;
pub(crate) mod superblock_copies;
pub(crate) mod superblocks;
pub(crate) mod table;
pub(crate) mod tier;
pub(crate) mod unidentified;
pub(crate) mod writer;
pub(crate) mod zero_ahead;
