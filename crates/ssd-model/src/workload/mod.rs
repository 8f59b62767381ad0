//! Workloads: the requests of a job, and the behaviour of a drive in steady state under them.

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
