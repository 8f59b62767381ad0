//! The in-memory hash index of Esker: at most ten bytes a key, exact, lock-free look-ups
#![deny(missing_docs)]

mod claims;
mod hash;
mod options;
mod oracle;
mod publish;
mod scan;
mod slot;

pub use claims::{Claim, Suspects};
pub use hash::KeyHash;
pub use options::{ClaimsLimit, IndexOptions};
pub use oracle::Index;
pub use publish::{Occupant, Published};
pub use scan::Cursor;
pub use slot::Pointer;
