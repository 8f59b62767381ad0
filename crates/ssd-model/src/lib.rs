//! A model of an SSD with a coarse indirection unit (IU).
//!
//! Large QLC drives map their flash in units of 16 or 64 KiB. A write that is smaller than the unit, or not aligned to
//! it, makes the drive read a unit and program it again; collection then copies it once more. This crate computes the
//! cost: NAND bytes and erases for any stream of writes, and the resulting throughput and latencies on a given medium.
//!
//! * [`Drive`] is the flash translation layer: map, superblocks, collector, placement handles, counters.
//! * [`Timing`] gives each program, read and erase of a drive its time on dies and channels ([`Medium`], [`Profile`]).
//! * [`Job`] describes a workload; [`run`] brings a drive to steady state and measures.
//! * [`replay`] does the same with a trace of a block device; [`reproduce`] compares the model with published
//!   measurements.
//!
//! Nothing here touches a device, a clock or the store. The same call with the same seed gives the same counts.
//!
//! ```
//! use esker_ssd_model::{Drive, Handle, Shape};
//!
//! let shape = Shape::over_provisioned(64 << 10, 1 << 30, 0.12);
//! let mut drive = Drive::new(&shape)?;
//! drive.write(4096, 4096, Handle(0))?; // a 4 KiB write into a unit of 64 KiB
//! drive.flush();
//! assert_eq!(drive.counters().write_amplification(), 16.0);
//! # Ok::<(), esker_ssd_model::Error>(())
//! ```

mod chart;
mod drive;
mod error;
mod life;
mod media;
mod report;
mod request;
mod trace;
mod workload;

pub use chart::{ChartKind, Line, Sweep, draw, sweep};
pub use drive::{Cause, Collector, Counters, Drive, Flash, Handle, SECTOR_BYTES, Shape, Untimed, Wear};
pub use error::Error;
pub use life::{Endurance, Life};
pub use media::{Choice, Latencies, Medium, PROFILES, Profile, Recorder, Timed, Timing};
pub use report::{Table, json};
pub use request::{Kind, Request, Stage};
pub use trace::{Format, NotUnderstood, Replay, ReplayReport, Requests, Tally, replay};
pub use workload::{
    Blocks, Job, Jobs, Pattern, Reproduced, Row, RunReport, Standing, Stream, precondition, reproduce, run,
};
