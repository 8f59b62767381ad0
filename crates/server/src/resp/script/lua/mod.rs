//! The interpreter of scripts: what they find in it, and how values go in and out. It knows nothing of commands.

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
