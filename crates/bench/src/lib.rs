//! Measurements of the Esker store, for the program `esker-bench` and for `esker bench`.
//!
//! # Layout
//!
//! - `workload`: draws keys and values from a seed.
//! - `instruments`: a store on devices with readable counters, operations in flight, latencies, and the
//!   resources of the process.
//! - `writeamp`, `endurance`, `cache`, `db_bench`, `machine`: one per command; `command` selects one. `machine` runs benchmarks of
//!   `db_bench`.
//!
//! The public items are those shared with `esker-compare`: [`run`], [`Failure`], [`process::Usage`], and
//! printing ([`println!`]).
//!
//! Results go to stdout (`instruments::output`), progress and notes to stderr.
#![allow(
    clippy::disallowed_methods,
    reason = "a measurement lives in real time; only the engine is replayed"
)]

// First, because its macros are for the modules after it.
#[macro_use]
pub mod instruments;

mod cache;
mod command;
mod db_bench;
mod endurance;
mod machine;
mod workload;
mod writeamp;

pub use command::{refused, run};
pub use instruments::failure::{Failure, Result};
pub use instruments::process;
