//! A record that was appended to a segment and is to be published.

use bytes::Bytes;
use esker_index::{KeyHash, Pointer};
use esker_log::{Kind, Location, Packing};

/// The record that a write was found to replace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replaced {
    pub(crate) pointer: Pointer,
    /// Length of the record, padding included.
    pub(crate) padded_bytes: u32,
}

/// A record that was appended and is to be published.
pub(crate) struct Appended {
    pub(crate) kind: Kind,
    pub(crate) key: Bytes,
    pub(crate) hash: KeyHash,
    pub(crate) location: Location,
    pub(crate) pointer: Pointer,
    pub(crate) sequence: u64,
    pub(crate) padded_bytes: u32,
    pub(crate) replaces: Option<Replaced>,
}

/// Turns packed locations into index pointers and back.
pub(crate) fn pointer(packing: &Packing, location: esker_log::Location) -> esker_index::Pointer {
    esker_index::Pointer::new(packing.pack(location)).expect("a record never begins at offset 0")
}
