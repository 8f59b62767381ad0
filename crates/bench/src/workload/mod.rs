//! What a measurement asks of the store: which key comes next, and what its value is. All of it is drawn from a seed.

mod keys;
mod popularity;
mod values;

pub(crate) use keys::key;
pub(crate) use popularity::{Popularity, Shape};
pub(crate) use values::Values;
