//! db_bench's command line: `flags` parses it by the list in `known` and expands it by `flagfile`;
//! `config` and `places` are its meaning, `benchmark` defines the benchmarks, and `help` describes them.

pub(crate) mod benchmark;
pub(crate) mod config;
mod flagfile;
pub(crate) mod flags;
pub(crate) mod help;
mod known;
pub(crate) mod places;
mod suggestions;
