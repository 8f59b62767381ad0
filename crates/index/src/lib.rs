//! The in-memory hash index of Esker: at most ten bytes a key, exact, lock-free look-ups
#![deny(missing_docs)]

mod bucket;
mod claims;
mod geometry;
mod grow;
mod hash;
mod index;
mod memory;
mod options;
mod publish;
mod scan;
mod shard;
mod side;
mod slab;
mod slot;
mod table;

pub use claims::{Claim, Suspects};
pub use hash::KeyHash;
pub use index::Index;
pub use options::{ClaimsLimit, IndexOptions};
pub use publish::{Occupant, Published};
pub use scan::Cursor;
pub use slot::Pointer;
