//! Measurements of the Esker store, as the program `esker-bench` (and `esker bench`, where it was built with that).
//!
//! # Layout
//!
//! - `workload`: which key comes next, and what its value is. Everything is drawn from a seed.
//! - `instruments`: a store on devices that the measurement also sees from below, operations in flight, latencies, and what
//!   the process took of the machine.
//! - `writeamp`, `endurance`, `cache`, `db_bench`: one for each command; `command` picks one.
//!
//! What is public is what `esker-compare` shares: [`run`], [`Failure`], [`process::Usage`], and printing ([`println!`]).
//!
//! Results go to stdout (`instruments::output`), progress and notes to stderr.
#![allow(
    clippy::disallowed_methods,
    reason = "a measurement lives in real time; only the engine is replayed"
)]

// First, since its macros are for what comes after it.
#[macro_use]
pub mod instruments;

mod cache;
mod command;
mod db_bench;
mod endurance;
mod workload;
mod writeamp;

pub use command::{refused, run};
pub use instruments::failure::{Failure, Result};
pub use instruments::process;
