//! Redis' RDB format: files ([`Reader`]) and payloads of `DUMP` ([`dump`]), as Redis and Valkey write them. The
//! version says which of the two it was, whose newer types have the same numbers.
//!
//! Strings are read. Values of other types are skipped, and named, so that whoever imports a file can count what is left out.
//! Memory is bounded by the limits that the caller sets, whatever the bytes say; bytes that make no sense are an [`Error`].
//!
//! ```text
//! file:    "REDIS" or "VALKEY" version | what there is, one after the other | EOF checksum
//! payload: type value version checksum
//! ```
//!
//! # Layout
//!
//! - `reader`: what a file holds, entry by entry.
//! - `kind`: types of values, and skipping them.
//! - `dump`: payloads of `DUMP`.
//! - `strings`: the encodings of a string. `lzf`: one of them.
//! - `input`: bytes with their checksum and their offset; lengths.

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
