//! The tests of the store as its users see it. They are one program: the engine is linked once, and all cores have work until the
//! last test ends. `cargo test --test store crash` runs those whose names contain a word.
//!
//! Whatever looks at its own process starts this program once more for it, with `support::child`.

mod astray;
mod cache_mode;
mod coalescing;
mod compression;
mod counters;
mod damage;
mod damaged_scans;
mod damaged_tombstones;
mod databases;
mod determinism;
mod device_use;
mod devices;
mod discard;
mod durability;
mod endings;
mod expiry;
mod face;
mod failed_flush;
mod fairness;
mod faults;
mod full;
mod full_disk;
mod full_kills;
mod handles;
mod hot_keys;
mod keys;
mod kill;
mod large;
mod leftovers;
mod live_bytes;
mod made_up;
mod memory;
mod model;
mod neighbours;
mod observe;
mod openings;
mod options;
mod overwritten;
mod places;
mod reopen;
mod room;
mod scrub;
mod sizes;
mod small_limits;
mod space;
mod staging_file;
mod staging_left;
mod stalled_readers;
mod support;
mod sweep;
mod unreadable;
mod update;
mod whole_units;
