//! Bytes and words of the protocol: what arrives becomes commands, answers become bytes. Nothing here knows a verb.

pub(super) mod commands;
pub(super) mod error_text;
pub(super) mod frame;
pub(crate) mod fuzzed;
pub(super) mod glob;
pub(super) mod number;
pub(super) mod reply;
pub(super) mod transport;
