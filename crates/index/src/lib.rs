//! Esker's in-memory hash index: exact, with lock-free look-ups, at most ten bytes per key plus the unverified overwrites.
//!
//! An [`Index`] maps the 128 keyed bits of a key to a [`Pointer`]. It does no I/O and does not know the format of records:
//! where it cannot distinguish two keys it reports that ([`UnverifiedOverwrite`], [`Suspects`]), and the caller, which can read
//! records, verifies it.
//!
//! From a key to its pointer, file by file:
//!
//! * `hash`: 1,024 shards; in the shard a *stored hash* of 30 bits.
//! * `geometry`: maps the stored hash to a home bucket, an alternate bucket and a tag, and back.
//! * `slot`, `bucket`: eight slots of eight bytes in a cache line; larger tables leave more of their bits to the pointer.
//! * `table`: two buckets per key; entries make room by moving to their other bucket.
//! * `shard`: the protocol between lock-free readers and locking writers.
//! * `slab`, `memory`: the memory of tables, so that growing leaves neither holes nor readers without a table.
//! * `grow`: rebuilds a table a tenth larger, from its slots alone.
//! * `bulk`: fills a shard's table at once when the store is opened.
//! * `side`: keys that are known to collide, by all their bits. `unverified`: keys that may collide, in a `dense` table.
//! * `scan`: iteration that growth does not disturb.
//! * `keyspaces`: one index per keyspace, chosen by eight bits of the digest.
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
pub use unverified::{Standing, Suspects, UnverifiedOverwrite, Verified};
