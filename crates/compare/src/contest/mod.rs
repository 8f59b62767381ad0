//! The contest: its benchmarks, its engines, and their command lines.

pub(crate) mod command_line;
pub(crate) mod engine;
pub(crate) mod plan;
