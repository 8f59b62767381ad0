//! Workloads: what a job writes and reads, and what a drive in its steady state makes of that.

mod job;
mod pattern;
mod reproduce;
mod run;

pub use job::{Job, Jobs, Pattern};
pub use reproduce::{Reproduced, Row, Standing, reproduce};
pub(crate) use run::fill;
pub use run::{RunReport, run};
