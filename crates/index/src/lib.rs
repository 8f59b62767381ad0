//! The in-memory hash index of Esker: at most ten bytes a key and what unverified overwrites take, exact, lock-free look-ups.
//!
//! An [`Index`] maps the 128 keyed bits of a key to a [`Pointer`]. It does no I/O and knows nothing of records: where
//! it cannot tell two keys apart it says so ([`UnverifiedOverwrite`], [`Suspects`]), and the caller, who can read, verifies it.
//!
//! From a key to its pointer, file by file:
//!
//! * `hash`: 1,024 shards; in the shard a *stored hash* of 30 bits.
//! * `geometry`: the stored hash is a home bucket, an alternate bucket and a tag, and is given back by them.
//! * `slot`, `bucket`: eight slots of eight bytes in a cache line.
//! * `table`: two buckets for a key; entries make room by moving to their other bucket.
//! * `shard`: how readers without a lock and writers with one meet.
//! * `slab`, `memory`: where tables lie, so that growing leaves neither holes nor readers without a table.
//! * `grow`: a table is rebuilt by a tenth larger, from its slots alone.
//! * `bulk`: a shard's table is written at once when the store is opened.
//! * `side`: keys that are known to collide, by all their bits. `unverified`: keys that may, in a `dense` table.
//! * `scan`: iteration that growth does not disturb.
//! * `keyspaces`: an index for each keyspace, chosen by four bits of the digest.
//!
//! Decision 0002 has the reasons and the arithmetic.
#![deny(missing_docs)]

mod bucket;
mod bulk;
mod dense;
mod geometry;
mod grow;
mod hash;
mod index;
mod keyspaces;
mod memory;
mod options;
mod publish;
mod scan;
mod shard;
mod side;
mod slab;
mod slot;
mod table;
mod unverified;

pub use hash::{KeyHash, Keyspace};
pub use index::Index;
pub use keyspaces::Indexes;
pub use memory::prefetch;
pub use options::{IndexOptions, UnverifiedLimit};
pub use publish::{Occupant, Published};
pub use scan::{Cursor, Step};
pub use slot::Pointer;
pub use unverified::{Suspects, UnverifiedOverwrite, Verified};
