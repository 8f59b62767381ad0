//! Redis' RDB format: files ([`Reader`]) and payloads of `DUMP` ([`dump`]), as written by Redis and Valkey. The version
//! distinguishes the two, because their newer types share numbers.
//!
//! Strings are read. Values of other types are skipped and reported by type, so that an importer can count the omitted
//! ones. Memory is bounded by the limits that the caller sets, whatever the input; invalid bytes are an [`Error`].
//!
//! ```text
//! file:    "REDIS" or "VALKEY" version | elements in sequence | EOF checksum
//! payload: type value version checksum
//! ```
//!
//! # Layout
//!
//! - `reader`: the entries of a file.
//! - `kind`: value types, and skipping values.
//! - `dump`: payloads of `DUMP`.
//! - `strings`: string encodings. `lzf`: one of them.
//! - `input`: input bytes with checksum and offset; lengths.

pub mod dump;
mod error;
mod input;
mod kind;
mod lzf;
mod reader;
mod strings;

pub use error::{Error, Result};
pub use kind::Kind;
pub use reader::{Entry, Limits, Reader, Value};
