//! The contest: what is measured, who takes part, and how each is asked.

pub(crate) mod command_line;
pub(crate) mod engine;
pub(crate) mod plan;
