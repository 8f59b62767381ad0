//! db_bench's command line: `flags` reads it by the list in `known`, with what stands for others by `flagfile`; `config` and
//! `places` are what it says.

pub(crate) mod config;
mod flagfile;
pub(crate) mod flags;
pub(crate) mod known;
pub(crate) mod meant;
pub(crate) mod places;
