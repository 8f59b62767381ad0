//! Draws the keys and values of a measurement from a seed.

mod keys;
mod popularity;
mod values;

pub(crate) use keys::key;
pub(crate) use popularity::{Popularity, Shape};
pub(crate) use values::Values;
