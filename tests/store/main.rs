//! The tests of the store through its public API. They are one program: the engine is linked once, and
//! all cores are busy until the last test ends. `cargo test --test store crash` runs the tests whose
//! names contain a word.
//!
//! A test that examines its own process runs in a child of this program, by means of `support::child`.

mod cache_mode;
mod changing_devices;
mod checkpoints;
mod clock_in_doubt;
mod coalescing;
mod compression;
mod counters;
mod damage;
mod damage_isolation;
mod damaged_scans;
mod damaged_tombstones;
mod databases;
mod determinism;
mod device_use;
mod devices;
mod discard;
mod durability;
mod expiry;
mod failed_flush;
mod fairness;
mod far_copies;
mod faults;
mod forged_devices;
mod full;
mod full_disk;
mod full_kills;
mod handles;
mod hot_keys;
mod interrupted;
mod keys;
mod kill;
mod large;
mod large_drives;
mod large_units;
mod live_bytes;
mod log_scans;
mod memory;
mod misplaced_writes;
mod model;
mod observe;
mod openings;
mod options;
mod public_api;
mod refused_openings;
mod reopen;
mod room;
mod scrub;
mod several_devices;
mod sizes;
mod small_limits;
mod space;
mod staging_file;
mod staging_left;
mod stale_segments;
mod stalled_readers;
mod support;
mod sweep;
mod unreadable_sectors;
mod unverified_overwrites;
mod update;
mod whole_units;
