//! The wire format: parses bytes into commands and encodes answers as bytes. Knows no verbs.

pub(super) mod commands;
pub(super) mod error_text;
pub(super) mod frame;
pub(crate) mod fuzzed;
pub(super) mod glob;
pub(super) mod number;
pub(super) mod reply;
pub(super) mod transport;
