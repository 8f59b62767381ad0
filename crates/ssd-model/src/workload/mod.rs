//! Workloads: what a job writes and reads, and what a drive in its steady state makes of that.

mod blocks;
mod job;
mod pattern;
mod reproduce;
mod run;
mod run_tables;

pub use blocks::Blocks;
pub use job::{Job, Jobs, Pattern};
pub use pattern::Stream;
pub use reproduce::{Reproduced, Row, Standing, reproduce};
pub use run::{RunReport, precondition, run};
