//! The engine on modelled drives: flash cost and duration of a workload.
//!
//! The engine is the real one (`esker-engine`); its environment is simulated. Its device is a drive of `esker-ssd-model`,
//! which receives every write and discard, and its clock and tasks are those of `esker-simulated`, so that operations take
//! the drive's time and the same seed gives the same figures.

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
