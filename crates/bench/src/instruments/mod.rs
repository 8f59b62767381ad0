//! What every measurement is made with: a store on devices that are also seen from below, operations that are kept in flight
//! and timed, what it took of the machine, and how it is told.

// First, since its macros are for what comes after it.
#[macro_use]
pub mod output;

pub(crate) mod account;
#[cfg(test)]
pub(crate) mod arguments;
pub(crate) mod failure;
pub(crate) mod latency;
pub(crate) mod load;
pub mod process;
pub(crate) mod progress;
mod ram;
pub(crate) mod store_bed;
