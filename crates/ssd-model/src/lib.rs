//! A model of an SSD with a coarse indirection unit (IU).
//!
//! Drives with much QLC flash map it in units of 16 or 64 KiB. A write that is smaller than the unit, or does not start on its
//! boundary, makes the drive read a unit and program it anew; collection then copies it again. This crate counts what that
//! costs: NAND bytes and erases for any stream of writes, and the throughput and latencies that follow on a given medium.
//!
//! * [`Drive`] is the flash translation layer: map, superblocks, collector, placement handles, counters.
//! * [`Timing`] gives each program, read and erase of a drive its time on dies and channels ([`Medium`], [`Profile`]).
//! * [`Job`] describes a workload; [`run`] brings a drive to its steady state and measures.
//! * [`replay`] does the same with a trace of a block device; [`reproduce`] holds the model to published measurements.
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
