//! Tools shared by all measurements: a store on devices with readable counters, operations in flight and
//! their latencies, the resources of the process, and output.

// First, because its macros are for the modules after it.
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
