//! The engine on modelled drives: what a workload costs their flash, and how long it takes.
//!
//! The engine is the real one (`esker-engine`); what it runs on is not. Its device is a drive of `esker-ssd-model`, to which every
//! write and discard goes, and its clock and tasks are those of `esker-simulated`, so that an operation takes the drive's time and
//! the same seed gives the same figures.

mod content;
mod device;
mod engine;
mod error;
mod load;
mod setup;
mod steady;
mod tables;
mod tiers;

pub use engine::{EngineReport, EngineRow, EngineRun, engine};
pub use error::Error;
pub use load::Waits;
pub use setup::{ScaledDrive, Setup};
pub use tiers::{Configuration, DriveRow, TierRow, Tiers, tiers};
