//! db_bench's command line: `flags` reads it by the list in `known`, with what stands for others by `flagfile`; `config` and
//! `places` are what it says, `benchmark` is what the names mean, and `help` tells of all.

pub(crate) mod benchmark;
pub(crate) mod config;
mod flagfile;
pub(crate) mod flags;
pub(crate) mod help;
mod known;
pub(crate) mod places;
mod suggestions;
