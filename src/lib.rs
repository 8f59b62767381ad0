//! Esker is a key-value store on flash drives that survives crashes. An index of all keys is in memory, 9 to 10 bytes a key at
//! rest and up to 12.5 under overwrites; values are appended to a log on the drive in large writes. A get costs one read of the
//! drive, or none if the value is in memory (rarely more, if keys collide).
//!
//! ```
//! use esker::{Blocking, Options};
//!
//! # let place = tempfile::tempdir().expect("a directory");
//! # let directory = place.path().join("esker-data");
//! // let directory = "./esker-data";
//! let store = Blocking::open(Options::directory(&directory))?;
//! store.put("greeting", "hello")?;
//! store.close()?;
//!
//! // Acknowledged writes are present when the store is opened again, also after a crash.
//! let store = Blocking::open(Options::directory(&directory))?;
//! assert_eq!(store.get("greeting")?.as_deref(), Some(&b"hello"[..]));
//! store.close()?;
//! # Ok::<(), esker::Error>(())
//! ```
//!
//! [`Blocking`] has calls that block. [`Store`] has the same calls as futures, which run on any executor; either leads to the
//! other. Handles are cheap to clone, and all clones share the store.
//!
//! # Overview
//!
//! ```
//! use std::time::Duration;
//!
//! use esker::{Batch, Blocking, Condition, Options, WriteOptions};
//!
//! # let place = tempfile::tempdir().expect("a directory");
//! # let store = Blocking::open(Options::directory(place.path().join("esker-data")))?;
//! // Keys and values are bytes: slices, strings, arrays, vectors or `Bytes`, borrowed or owned.
//! store.put(7u32.to_be_bytes(), vec![1, 2, 3])?;
//!
//! // Changes in one step.
//! assert_eq!(store.increment("visits", 1)?, 1);
//! assert!(store.insert_if_absent("lock", "mine")?);
//! assert!(store.compare_and_swap("lock", "mine", "yours")?);
//! let made = store.get_or_insert("config", || "made once")?;
//! assert_eq!(made, "made once");
//!
//! // Time to live, and other options of one write.
//! store.put_with("session", "abc", WriteOptions::new().ttl(Duration::from_secs(600)))?;
//!
//! // A batch is visible and recovered whole or not at all, and written only if its conditions hold.
//! let mut batch = Batch::new();
//! batch.require("new name", Condition::IfAbsent);
//! batch.put("new name", "value").delete("old name");
//! store.write(batch)?;
//!
//! // All entries in arbitrary order, or the keys alone.
//! for entry in store.keys().prefix("new") {
//!     assert_eq!(entry?.key, "new name");
//! }
//! store.close()?;
//! # Ok::<(), esker::Error>(())
//! ```
//!
//! [`Store::update`] reads several keys and writes values computed from them, with no other write in between
//! (`examples/update.rs`); [`Store::stream`] iterates without blocking, and [`Store::scan`] from a cursor that can be stored. With
//! [`Options::when_full`] a store is a cache that evicts keys which are rarely read, and [`Store::observe`] reports the evicted
//! keys (`examples/cache.rs`).
//!
//! # Choosing durability
//!
//! [`Options::durability`] is the level of the store, and [`WriteOptions::durability`] that of one write.
//!
//! | level | a write is acknowledged when | SIGKILL loses | a power cut loses | choose it for |
//! |---|---|---|---|---|
//! | [`Sync`](Durability::Sync), the default | it is on the drive; no reader sees it earlier | nothing | nothing | data that must not be lost. Concurrent writers share one write of the drive, so many of them cost little more than one |
//! | [`Process`](Durability::Process) | it is in memory that outlives the process | nothing ¹ | about the last second ² | data that a crash of the program must not lose, on a machine with a battery or with a copy elsewhere |
//! | [`Periodic(d)`](Durability::Periodic) | it is in memory | no promise ³ | about the last `d`, at most one second ² | small amounts of data that can be computed again |
//! | [`None`](Durability::None) | it is in memory | no promise ³ | about the last second ² | caches and bulk loads |
//!
//! ¹ As long as the staging file exists: in a container, keep the store's directory, or `/dev/shm` for raw devices.
//! ² With [`Options::coalesce_for`], its duration if that is longer; `Periodic(d)` never more than `d`.
//! ³ Nothing if the store has a staging file, which `Process` needs; but that is not promised.
//!
//! After writes at a lower level, [`Store::flush`] makes all acknowledged writes durable. [`Store::close`] does so too;
//! dropping the last handle does not wait. `docs/durability.md` in the source tree states the full promise and the
//! assumptions about the drive.
//!
//! # Sizing
//!
//! * **Memory**: [`Options::memory_bytes`] (512 MiB by default) is for the index, write buffers and the read cache. It does not
//!   cover the table of slots, about 118 bytes for each segment that fits on the devices: 2 MiB for 256 GiB, 235 MiB for 30 TiB
//!   in segments of 16 MiB. The index takes 9 to 10 bytes a key at rest and up to 12.5 under overwrites. If the index has no
//!   memory left, puts fail with [`Full`](ErrorKind::Full).
//! * **Space**: users can fill all but the reserve, 80 % by default ([`Options::reserve_percent`]). A larger reserve lowers
//!   write amplification.
//! * **The largest size is fixed when the store is formatted.** Set [`Options::capacity_limit_bytes`] at the first opening to the
//!   largest size that you will ever want. Without it a store in a directory is formatted for 256 GiB, which can be raised to
//!   512 GiB later, but no further.
//! * **Values** fit in one segment, 16 MiB by default: [`Store::max_value_bytes`]. Keys have up to 65,536 bytes.
//! * `esker calc` computes these figures and the wear of a drive for a number of keys.
//!
//! # Errors
//!
//! A missing key is not an error. Branch on [`Error::kind`]; the message names the remedy.
//!
//! | kind | cause | remedy |
//! |---|---|---|
//! | [`Invalid`](ErrorKind::Invalid) | the call or an option is wrong; nothing was done | change it |
//! | [`Conflict`](ErrorKind::Conflict) | a condition did not hold; nothing was written | read the key again, then decide |
//! | [`Full`](ErrorKind::Full) | no space, or no memory for more keys; nothing was written; reads and deletes still work | delete keys, or raise the limit that the message names |
//! | [`Corrupt`](ErrorKind::Corrupt) | bytes on the drive are damaged | put the key again, or restore it from a backup |
//! | [`Locked`](ErrorKind::Locked) | another process has the store open | close it there, or try again later |
//! | [`Closed`](ErrorKind::Closed) | it was closed, or stopped after a failed write; reads still work in the second case | open it again: durable writes are present |
//! | [`Io`](ErrorKind::Io) | the device failed | a failed read can be tried again; after a failed write the store is read-only, and that write may or may not have happened |
//! | [`Unsupported`](ErrorKind::Unsupported) | the call needs a cargo feature that this build lacks, such as `zstd` for a value compressed with it; nothing is damaged | build with the feature that the message names |
//! | [`Cancelled`](ErrorKind::Cancelled) | a checkpoint was cancelled, by a call or because it kept space that writers needed; the store is not affected | read faster, or take it when more space is free |
//!
//! [`Error::is_retryable`] is true if the same call may succeed later: a failed read, and `Locked`.
//!
//! # Async and watching
//!
//! * The futures of [`Store`] run on any executor. They are tested on tokio (`examples/tokio.rs`), on the simulator's executor,
//!   and on a bare `block_on`, which [`Blocking`] is.
//! * The store has threads of its own: two for background work, one for timers, and one for the io_uring ring (or blocking
//!   threads if io_uring is not allowed).
//! * A future may be dropped at any time. That does not undo its write: it happens whole or not at all.
//! * [`Store::stats`] has space, memory, segments, bytes written by cause and counts of operations; it is cheap.
//!   [`Store::latencies`] has histograms of calls and devices. [`Store::check_writable`] returns an error with the reason if a put
//!   would be refused: alert on it.
//!
//! # When not to use it
//!
//! Esker has no range scans and no order among keys, no snapshots, no interactive transactions, and keeps one copy of the data. The README names the alternative for each of these needs.
#![deny(missing_docs)]

pub use esker_engine::*;

/// The examples of the README are compiled too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
