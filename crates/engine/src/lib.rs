//! The Esker store: put, get, delete, batches, recovery, destaging.
//!
//! A put, from file to file: `store` → `write` (checks, reserves where it must) → `admission` → `lane` (its place in the log,
//! its sequence number) → `commit` (the device, then visible) → later `reclaim` (to the capacity tier, or away).
//! A get: `store` → `get` (index, memory or one read, key and checksum) and, where two keys share a slot, `settle`.
//! Opening: `open` → `devices` → `format` → `recover` → `staging`.

mod admission;
mod allocation;
mod append;
mod batch;
mod batch_ticks;
mod blocking;
mod cache;
mod clock;
mod close;
mod commit;
mod compact;
mod devices;
mod durability;
mod engine;
mod error;
mod expire;
mod extent;
mod format;
mod gate;
mod get;
mod heads;
mod keys;
mod lane;
mod latency;
mod ledger;
mod memory;
mod open;
mod options;
mod outlet;
mod peek;
mod progress;
mod provision;
mod put_each;
mod range;
mod reclaim;
mod recover;
mod relief;
mod relocate;
mod reserve;
mod room;
mod scan;
mod settle;
mod slot;
mod staging;
mod staging_file;
mod stats;
mod store;
mod tier;
mod trim;
mod update;
mod write;
mod zero_ahead;

pub use batch::Batch;
pub use blocking::Blocking;
pub use error::{Error, ErrorKind, Result};
pub use keys::{KeyEntry, KeyPage};
pub use latency::{Histogram, Latencies, Latency, TierLatencies};
pub use ledger::Written;
pub use options::{Durability, Options};
pub use peek::{Peek, View};
pub use progress::Progress;
pub use scan::{Cursor, Page};
pub use stats::{Activity, Classes, Recovery, States, Stats, TierStats};
pub use store::{Condition, Entry, Store, WriteOptions};

pub use esker_device::{Backend, DeviceCounters};
