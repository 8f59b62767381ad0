//! Measurements of the Esker store, as the program `esker-bench` (and `esker bench`, where it was built with that).
//!
//! # Layout
//!
//! - `workload`: which key comes next, and what its value is. Everything is drawn from a seed.
//! - `load`: keeps a number of operations in flight; `latency` records how long they took.
//! - `bed`: a store on devices that the measurement also sees from below; `ram` is one that is kept in memory.
//! - `account`: which bytes were written to which tier, as the store says and as the devices say.
//! - one module for each command.
//!
//! What is public is what `esker-compare` shares: [`run`], [`Failure`], [`process::Usage`], and printing.
//!
//! Results go to stdout (`output`), progress and notes to stderr.
#![allow(
    clippy::disallowed_methods,
    reason = "a measurement lives in real time; only the engine is replayed"
)]

// First, since its macros are for what comes after it.
#[macro_use]
pub mod output;

mod account;
mod bed;
mod command;
mod db_bench;
mod endurance;
mod failure;
mod latency;
mod load;
pub mod process;
mod progress;
mod ram;
mod workload;
mod writeamp;

pub use command::{refused, run};
pub use failure::{Failure, Result};
