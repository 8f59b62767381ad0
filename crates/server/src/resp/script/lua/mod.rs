//! The interpreter of scripts: its libraries, and the conversion of values. Knows no commands.

mod compile;
pub(in crate::resp) mod errors;
pub(in crate::resp) mod from_reply;
mod libs;
mod number;
pub(in crate::resp) mod sandbox;
#[cfg(test)]
mod tests;
pub(in crate::resp) mod to_reply;

pub(in crate::resp) use libs::redis::digest;
pub(in crate::resp) use number::spelled;
